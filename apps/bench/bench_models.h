#pragma once
// What the benchmarks of `quintet bench` share: models by name, random batches, timing, the JSON line.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/flags/compute_flags.h"
#include "apps/flags/quantize_flag.h"
#include "apps/plan/layout_step.h"
#include "models/base_model.h"

namespace CLI {
class App;
}

namespace quintet {

struct BenchOptions {
  std::string model = "t5_1_1_small";
  int64_t batch = 8, inputs = 256, targets = 64, steps = 5;
  int64_t beams = 1;                       // generate only; 1 is greedy
  double top_p = 0;                        // generate only; 0: no sampling
  bool encode_only = false;                // generate only
  std::string optimizer = "adamw";         // train only
  double dropout = 0;                      // train only
  std::vector<std::string> examples = {};  // train only: INPUTS/TARGETS each, packed into rows
  ComputeFlags compute;
  std::string dtype = "float32";
  QuantizeFlag quantize = {};  // generate only
  bool profile = false;
};

/// Reads the flags that all benchmarks have. False: help was printed. `generates`: those of generation, too,
/// else those of training.
bool parse_bench_options(const std::string& what, const std::string& summary,
                         std::span<char* const> args, bool generates, BenchOptions& options);

/// --model, --batch, --inputs, --targets.
void add_model_flags(CLI::App& app, BenchOptions& options);

/// Sizes of t5_1_1_{tiny,small,base,large,xl,xxl} and of published runs, without dropout; an unknown name is a usage error.
T5Config bench_model_config(const std::string& name, const std::string& dtype = "float32");

/// Model features of an encoder-decoder: random tokens from 3 to vocabulary size, no padding.
HostArrays random_batch(const BenchOptions& options, int64_t vocab_size);

/// The same of examples with the lengths of `options.examples`, packed by best fit into as many rows as it takes.
/// Throws a usage error for what is no INPUTS/TARGETS, or too long for a row.
HostArrays packed_batch(const BenchOptions& options, int64_t vocab_size);

/// Training with AdamW: the model with random parameters, random batches.
LayoutCase bench_case(const BenchOptions& options);

/// Runs step() once to warm up and `options.steps` times timed, prints one JSON object on stdout
/// (tokens_per_second of the fastest step, seconds_per_step, peak_bytes: largest resident set of the
/// process, tensor_bytes: most that tensors held) and a line for people on stderr.
void time_steps(const std::string& what, const BenchOptions& options, int64_t tokens_per_step,
                const std::function<void()>& step);

}  // namespace quintet
