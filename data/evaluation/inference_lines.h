#pragma once
// What inference says of an example, as a line of JSON: t5x.infer's write_inferences_to_file.
//
//   {"inputs": {"inputs_pretokenized": "..", ..}, "prediction": "..", "prediction_tokens": [..],
//    "aux": {"scores": -1.5}}                       or, in mode score, {"inputs": .., "score": ..}

#include "data/metrics/answer.h"
#include "data/tasks/task.h"

namespace quintet::data {

/// The arguments of write_inferences_to_file.
struct InferenceLineOptions {
  bool include_all_inputs = false;  // ids too; else only texts: features named <name>_pretokenized
  std::optional<std::vector<std::string>> input_fields_to_include = {};  // and their texts
  bool output_ids = false;
};

struct Inference {
  std::vector<Tokens> decodes = {};  // the best, or with `all_decodes` all of them, the best last
  bool all_decodes = false;
  std::optional<double> score = {};
  Fields aux = {};
};

/// Without the end of the line.
std::string inference_line(const Example& example, const Inference& inference,
                           const Vocabulary& vocabulary, const InferenceLineOptions& options);

}  // namespace quintet::data
