#pragma once
// What `quintet convert` may be told of a model in fewer bits, and doing it.

#include "apps/flags/quantize_flag.h"
#include "apps/flags/result_format.h"
#include "apps/model/trained_dataset.h"
#include "runtime/gin/command_line.h"

namespace quintet {

struct QuantizationFlags {
  TrainedDatasetFlags set;
  QuantizeFlag quantize;
  std::string output;
  bool report = false;
  int64_t num_examples = 16;
  ResultFormat results;

  void add_to(CLI::App& app);
  bool requested() const { return !set.model_dir.empty() || !quantize.name.empty(); }
};

/// Writes a model directory, reports each layer's loss, or both. Throws usage errors for flags that do not
/// go together.
void quantize_model(const QuantizationFlags& flags, const gin::CommandLine& gin_line);

}  // namespace quintet
