#pragma once
// Answers of a trained model to texts, or their embeddings, on stdout: what `quintet generate` runs.

#include <span>
#include <string>
#include <vector>

#include "apps/flags/compute_flags.h"
#include "apps/flags/quantize_flag.h"
#include "apps/flags/result_format.h"
#include "apps/generate/generation_flags.h"
#include "apps/process/ranks.h"
#include "runtime/gin/command_line.h"

namespace quintet {

struct GenerateFlags {
  std::string model_dir, adapter, input, target;
  ResultFormat format{"text"};
  std::string embed;  // mean or tokens: the encoder's output in place of answers
  bool ids = false;   // inputs, target and answers are token ids
  std::vector<std::string> texts;
  GenerationFlags generation;
  int64_t batch_size = 8;
  QuantizeFlag quantize;
  CacheFlag cache;
  ComputeFlags compute;
  RankFlags ranks;

  /// Throws a usage error for flags that do not go with --embed.
  void check_embed() const;
  /// Without --model_dir the first text is the model. Throws a usage error if there is none, or no such file.
  void take_model();
};

/// Answers `texts`, the lines of `input` or those of standard input. `bindings`: gin bindings over the
/// run's. Several ranks hold the model together; the first one reads and prints. Throws what open_trained_model
/// throws, and kData for a file that cannot be read.
void generate(const GenerateFlags& flags, const Ranks& ranks, const gin::CommandLine& line);

}  // namespace quintet
