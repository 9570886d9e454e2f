#pragma once
// Metrics by the names that --metrics has for them.

#include <string>
#include <vector>

namespace quintet {

struct FinetuneMetric {
  std::string name;      // --metrics=f1
  std::string function;  // data.word_f1: what gin calls it
  std::string value;     // "f1": of its values, the one that checkpoints are compared by
};
/// Throws nothing: flags have checked the name.
const FinetuneMetric& finetune_metric(const std::string& name);
std::vector<std::string> finetune_metric_names();

}  // namespace quintet
