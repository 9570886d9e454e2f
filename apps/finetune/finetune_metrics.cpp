#include "apps/finetune/finetune_metrics.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet {
namespace {

const std::vector<FinetuneMetric> kFinetuneMetrics = {
    {"exact_match", "data.exact_match", "exact_match"},
    {"f1", "data.word_f1", "f1"},
    {"bleu", "metrics.bleu", "bleu"},
    {"chrf", "data.chrf", "chrf"},
    {"rouge", "metrics.rouge_mean", "rougeLsum"},
    {"accuracy", "metrics.accuracy", "accuracy"},
    {"matthews", "data.matthews", "matthews_corrcoef"},
    {"spearman", "data.spearman", "spearman_corrcoef"}};

}  // namespace

const FinetuneMetric& finetune_metric(const std::string& name) {
  const auto found = std::ranges::find(kFinetuneMetrics, name, &FinetuneMetric::name);
  QT_ASSERT(found != kFinetuneMetrics.end());
  return *found;
}

std::vector<std::string> finetune_metric_names() {
  std::vector<std::string> names;
  for (const FinetuneMetric& metric : kFinetuneMetrics) names.push_back(metric.name);
  return names;
}

}  // namespace quintet
