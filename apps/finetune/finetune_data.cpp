#include "apps/finetune/finetune_data.h"

#include <algorithm>
#include <unordered_set>

#include "runtime/base/check.h"

namespace quintet {
namespace {

/// Calls use(example, input, target) for every example of a split.
template <typename Use>
void for_each_example(const data::Provider& task, const std::string& split, Use use) {
  data::DatasetConfig all;
  all.mixture_or_task_name = task.name();
  all.split = split;
  const data::StreamPtr stream = data::evaluation_stream(task, all);
  for (data::Example example; stream->next(example);)
    use(example, example.text("inputs_pretokenized"), example.text("targets_pretokenized"));
}

void add(FinetuneSplit& split, const data::Example& example, const std::string& target) {
  split.input_lengths.push_back(static_cast<int64_t>(example.tokens("inputs").size()));
  split.target_lengths.push_back(static_cast<int64_t>(example.tokens("targets").size()));
  FinetuneSplit::Uses& uses = split.targets[target];
  if (uses.count++ == 0) uses.first = example.where();
}

}  // namespace

int64_t FinetuneSplit::percentile(std::vector<int64_t> lengths, double share) {
  QT_ASSERT(!lengths.empty());
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(lengths.size() - 1));
  std::nth_element(lengths.begin(), lengths.begin() + at, lengths.end());
  return lengths[static_cast<size_t>(at)];
}

int64_t FinetuneSplit::packed_rows(int64_t input_length, int64_t target_length) const {
  int64_t rows = 0, row_inputs = input_length, row_targets = target_length;  // full: no row yet
  for (size_t i = 0; i < input_lengths.size(); ++i) {
    const int64_t input = std::min(input_lengths[i], input_length);
    const int64_t target = std::min(target_lengths[i], target_length);
    if (row_inputs + input > input_length || row_targets + target > target_length) {
      ++rows;
      row_inputs = row_targets = 0;
    }
    row_inputs += input;
    row_targets += target;
  }
  return rows;
}

FinetuneData read_finetune_data(const data::Provider& provider) {
  FinetuneData data;
  data.tasks = provider.tasks().size();
  const auto pair_of = [](const std::string& input, const std::string& target) {
    return input + '\0' + target;
  };
  for (const data::Task* task : provider.tasks()) {
    std::unordered_set<std::string> seen;
    for_each_example(*task, "train",
                     [&](const auto& example, const auto& input, const auto& target) {
                       add(data.train, example, target);
                       seen.insert(pair_of(input, target));
                     });
    for_each_example(*task, "validation",
                     [&](const auto& example, const auto& input, const auto& target) {
                       add(data.validation, example, target);
                       if (seen.contains(pair_of(input, target)) && data.overlap++ == 0)
                         data.first_overlap = example.where();
                     });
  }
  const int64_t train = std::ssize(data.train.input_lengths);
  const int64_t validation = std::ssize(data.validation.input_lengths);
  QT_CHECK_AS(ExitCode::kData, train > 0 && validation > 0,
              "quintet finetune: {} examples to train on and {} to validate with, of which every "
              "20th example of --train is one where there is no --validation; give more",
              train, validation);
  return data;
}

}  // namespace quintet
