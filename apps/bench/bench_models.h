#pragma once
// What the benchmarks of `quintet bench` share: flags, packed batches, timing, the JSON line.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/flags/compute_flags.h"
#include "apps/flags/microbatch_flags.h"
#include "apps/flags/quantize_flag.h"
#include "apps/flags/result_format.h"
#include "apps/plan/model_case.h"
#include "models/decoding/network/parameter_source.h"
#include "models/network.h"

namespace quintet {

struct BenchOptions : ModelCase {
  int64_t steps = 5;
  int64_t beams = 1;                  // generate only; 1 is greedy
  double top_p = 0;                   // generate only; 0: no sampling
  bool encode_only = false;           // generate only
  std::string model_dir = {};         // generate only: instead of a published size
  std::string optimizer = "adamw";    // train only
  double dropout = 0;                 // train only
  std::string remat = "none";         // train only
  bool optimizer_offload = false;     // train only
  MicrobatchFlags microbatches = {};  // train only: their number and what gradients are kept in
  std::vector<std::string> examples = {};  // train only: INPUTS/TARGETS each, packed into rows
  ComputeFlags compute;
  ResultFormat format;
  QuantizeFlag quantize = {};  // generate only
  CacheFlag cache = {};        // generate only
  bool profile = false;
  std::string launcher = {};  // before the program's name in the example of --help
};

/// Reads the flags that all benchmarks have. False: help was printed. `generates`: those of generation, too,
/// else those of training.
bool parse_bench_options(const std::string& what, const std::string& summary,
                         std::span<char* const> args, bool generates, BenchOptions& options);

/// As random_batch, of examples with the lengths of `options.examples`, packed by best fit into as many rows as it takes.
/// Throws a usage error for what is no INPUTS/TARGETS, or too long for a row.
HostArrays packed_batch(const BenchOptions& options, int64_t vocab_size);

/// Random parameters, drawn tensor by tensor as they are packed: the peak is what generation needs.
decoding::ParameterSource random_source(const T5Config& config);

/// What a benchmark measures beside its steps.
struct BesideSteps {
  std::function<void()> before;  // each timed step
  /// JSON members and a line of text, by the seconds of the fastest step; "" and "": none.
  std::function<std::pair<std::string, std::string>(double least)> facts;
};

/// Runs step() once to warm up and `options.steps` times timed, prints one JSON object on stdout
/// (tokens_per_second of the fastest step, seconds_per_step, peak_bytes: largest resident set of the
/// process, tensor_bytes: most that tensors held) and a line for people on stderr.
void time_steps(const std::string& what, const BenchOptions& options, int64_t tokens_per_step,
                const std::function<void()>& step, const BesideSteps& beside = {});

}  // namespace quintet
