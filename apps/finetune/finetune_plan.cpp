#include "apps/finetune/finetune_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/base/check.h"
#include "runtime/base/nearest.h"
#include "runtime/base/process/messages.h"

namespace quintet {
namespace {

int64_t rounded_up(int64_t length) { return (length + 7) / 8 * 8; }

/// The closed set that targets are of; none if they are of none.
std::vector<std::string> labels_of(const FinetuneFlags& flags, const FinetuneData& data) {
  constexpr int64_t kMostLabels = 20, kExamplesOfLabel = 10;
  if (flags.labels == std::vector<std::string>{"none"}) return {};
  if (!flags.labels.empty()) {
    for (const FinetuneSplit* split : {&data.train, &data.validation})
      for (const auto& [target, uses] : split->targets)
        QT_CHECK_AS(ExitCode::kData, std::ranges::find(flags.labels, target) != flags.labels.end(),
                    "{}: the target '{}' is none of --labels={}{}", uses.first, target,
                    fmt::join(flags.labels, ","), did_you_mean(target, flags.labels));
    return flags.labels;
  }
  const auto count = static_cast<int64_t>(data.train.targets.size());
  if (data.tasks > 1 || count < 2 || count > kMostLabels ||
      count * kExamplesOfLabel > data.train.size())
    return {};
  std::set<std::string> labels;  // in order, those of validation too
  for (const FinetuneSplit* split : {&data.train, &data.validation})
    for (const auto& [target, uses] : split->targets) labels.insert(target);
  return {labels.begin(), labels.end()};
}

}  // namespace

FinetunePlan finetune_plan(const FinetuneFlags& flags, const FinetuneData& data, int64_t emb_dim) {
  constexpr int64_t kMostInputs = 1024, kMostTargets = 512, kBatchTokens = 8192;
  constexpr int64_t kLeastEpochs = 10, kEpochs = 80, kMostEpochs = 100;
  const bool narrow = emb_dim < kNarrow;
  const int64_t least_steps = narrow ? 6000 : 2000, most_steps = narrow ? 8000 : 2000;
  const FinetuneSplit& train = data.train;
  FinetunePlan plan;
  const auto length = [](const std::vector<int64_t>& lengths, double share, int64_t most) {
    return std::min(rounded_up(FinetuneSplit::percentile(lengths, share)), most);
  };
  plan.input_length = flags.input_length.value_or(length(train.input_lengths, 0.99, kMostInputs));
  plan.target_length = flags.target_length.value_or(length(train.target_lengths, 1, kMostTargets));
  const int64_t rows = train.packed_rows(plan.input_length, plan.target_length);
  const int64_t row_tokens = plan.input_length + plan.target_length;
  const int64_t fits = std::max<int64_t>(1, flags.batch_tokens.value_or(kBatchTokens) / row_tokens);
  plan.batch_size = flags.batch_size.value_or(
      flags.batch_tokens ? fits : std::min(fits, std::max(rows / 60, std::min<int64_t>(rows, 8))));
  const int64_t epoch = (rows + plan.batch_size - 1) / plan.batch_size;
  const int64_t steps = std::clamp(std::clamp(kEpochs * epoch, least_steps, most_steps),
                                   kLeastEpochs * epoch, kMostEpochs * epoch);
  plan.steps = flags.steps.value_or(
      flags.epochs ? std::max<int64_t>(1, std::llround(*flags.epochs * static_cast<double>(epoch)))
                   : steps);
  plan.warmup_steps = std::max<int64_t>(1, plan.steps / 10);
  QT_CHECK(plan.steps > plan.warmup_steps,
           "quintet finetune: {} step: at least 2 are needed, the first of which only warms up",
           plan.steps);
  plan.eval_period = std::clamp<int64_t>(epoch, (plan.steps + 19) / 20, plan.steps);
  plan.eval_steps = std::max<int64_t>(
      1, data.validation.packed_rows(plan.input_length, plan.target_length) / plan.batch_size);
  plan.microbatches = flags.microbatches.value_or(1);
  plan.labels = labels_of(flags, data);
  if (!flags.metrics.empty())
    plan.metrics = flags.metrics;
  else if (!plan.labels.empty())
    plan.metrics = {"accuracy"};
  else
    plan.metrics = {"f1", "exact_match"};
  plan.best_metric = flags.best_metric.empty() ? plan.metrics.front() : flags.best_metric;
  QT_CHECK(plan.best_metric == "loss" ||
               std::ranges::find(plan.metrics, plan.best_metric) != plan.metrics.end(),
           "--best_metric={}: expected loss or one of the metrics: {}", plan.best_metric,
           fmt::join(plan.metrics, ", "));
  return plan;
}

void warn_of_data(const FinetuneData& data, const FinetunePlan& plan) {
  const auto longer = [](const std::vector<int64_t>& lengths, int64_t most) {
    return std::ranges::count_if(lengths, [most](int64_t length) { return length > most; });
  };
  const auto tell = [&](const char* what, const std::vector<int64_t>& lengths, int64_t most) {
    const auto count = longer(lengths, most);
    if (count > 0)
      print_warning("{} of {} {} are longer than {} tokens and are cut; the longest has {}", count,
                    lengths.size(), what, most, FinetuneSplit::percentile(lengths, 1));
  };
  tell("training inputs", data.train.input_lengths, plan.input_length);
  tell("training targets", data.train.target_lengths, plan.target_length);
  tell("validation targets", data.validation.target_lengths, plan.target_length);
  if (data.overlap > 0)
    print_warning(
        "{} of {} validation examples are training examples, too, first {}: "
        "metrics look better than they are",
        data.overlap, data.validation.size(), data.first_overlap);
  for (const auto& [target, uses] : data.validation.targets)
    if (!plan.labels.empty() && !data.train.targets.contains(target))
      print_warning(
          "{}: the label '{}' of {} validation examples is no training "
          "example's",
          uses.first, target, uses.count);
}

}  // namespace quintet
