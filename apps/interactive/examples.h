#pragma once
// The examples of a command of `quintet interactive`, as a line names them:
//
//   words: 17 => seventeen                     an example; a predicted one is the input alone
//   {"input": "words: 17", "target": "x"}      the same as JSON; [..] holds several
//   @pairs.jsonl                               a file: .jsonl, .csv or .tsv
//   @number_words:validation                   a task or mixture, and a split of it
//   -                                          the lines that follow, up to an empty one

#include <string>
#include <vector>

#include "apps/interactive/interactive_flags.h"
#include "apps/model/trained_model.h"
#include "data/tasks/task.h"

namespace quintet {

struct Examples {
  data::ProviderPtr provider;
  std::string split;
  bool is_task = false;  // which has an order and metrics of its own
};

class ExampleReader {
 public:
  /// Throws a usage error for a model without vocabularies.
  ExampleReader(const InteractiveFlags& flags, TrainedModel& trained);
  /// `has_targets`: an example without a target is an error. `split`: of a task of which none is named. `block`: the
  /// lines that "-" stands for.
  Examples read(const std::string& text, bool has_targets, const std::string& split,
                const std::vector<std::string>& block = {}) const;
  /// inputs and targets of examples that are no task's.
  const data::Features& features() const { return features_; }
  /// Texts and their targets.
  Examples of_pairs(std::vector<std::pair<std::string, std::string>> pairs) const;

 private:
  Examples of_file(const std::string& file, bool has_targets) const;
  Examples of_task(const std::string& name, const std::string& split) const;

  const InteractiveFlags& flags_;
  TrainedModel& trained_;
  data::Features features_;
};

}  // namespace quintet
