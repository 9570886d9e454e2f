#pragma once
// The metrics of t5.evaluation.metrics, each with the arguments it has there. A task holds what
// these functions return; gin files name them the same (configurables.h).
//
//   MetricFn metric = metrics::deduplicate_metric(metrics::squad());
//   MetricValues got = metric(targets, predictions);
//
// All throw kData, with the metric and the example, for unequal counts, no example at all, answers
// of another type than they compare, and text that is not UTF-8. Percentages are 0 to 100.

#include <optional>

#include "data/metrics/metric.h"
#include "data/metrics/rouge.h"

namespace quintet::data::metrics {

/// "bleu": sacrebleu's corpus BLEU with exponential smoothing. Targets: texts, or one list of texts
/// a reference stream. `tokenizer`: one of bleu_tokenizers().
MetricFn bleu(const std::string& tokenizer = "intl");
/// Median over 1,000 bootstrap resamples of the mean F-measure, 0 to 100, under the rouge type's
/// name. `verbose`: the 95 % confidence intervals go to stderr. " . " ends a sentence for
/// rougeLsum.
MetricFn rouge(RougeOptions options = {}, bool verbose = true);
/// The mean itself, without resampling.
MetricFn rouge_mean(RougeOptions options = {});

/// "em" and "f1" of answers normalised as SQuAD's and TriviaQA's scripts do, the best over the
/// target's list of texts.
MetricFn squad();
MetricFn trivia_qa();
/// squad of spans: target {answers: texts, context: text}, prediction "start: 3 end: 6" in words.
MetricFn span_squad();
/// "f1": mean token F1 after CoQA's normalisation, the best over the target's list of texts.
MetricFn coqa_f1();
/// squad of examples that are not all in one place: merge() gives what squad gives of all of them.
struct ShardedSquad {
  double em = 0, f1 = 0;  // percentages, as squad's
  int64_t count = 0;

  static ShardedSquad of(const Answers& targets, const Answers& predictions);
  ShardedSquad merge(const ShardedSquad& other) const;
  MetricValues compute() const { return {{"em", em}, {"f1", f1}}; }
};
MetricFn sharded_squad();

/// Lower case without ASCII punctuation, articles and extra white space, as SQuAD's script.
std::string normalize_squad(std::string_view answer);
/// The same with punctuation (and ‘ ’ ´) replaced by spaces, as TriviaQA's script.
std::string normalize_trivia_qa(std::string_view answer);

/// "accuracy": percentage of answers that are equal.
MetricFn accuracy();
/// The same of texts, under "sequence_accuracy".
MetricFn sequence_accuracy();
/// "exact_match": 100 if all answers are equal, else 0.
MetricFn all_match();
/// "f1" of class 1; a prediction other than 0 and 1 counts as wrong.
MetricFn f1_score_with_invalid();
/// The same over the field "value" of both.
MetricFn multirc_f1_over_all_answers();
/// "mean_<n>class_f1": mean of the F1 of classes 0 to n - 1.
MetricFn mean_multiclass_f1(int64_t num_classes);

/// "pearson_corrcoef", "spearman_corrcoef": 100 times the coefficient; NaN where a side is
/// constant.
MetricFn pearson_corrcoef();
MetricFn spearman_corrcoef();

/// "auc-roc" and "auc-pr", 0 to 1. Targets below the threshold are 0, others 1; without one they
/// are 0 or 1 already.
MetricFn auc(std::optional<double> targets_threshold = {});
/// The same of the model's scores.
MetricFn score_auc(std::optional<double> targets_threshold = {});

struct RankClassification {
  std::optional<int64_t> num_classes = {};  // none: it varies, and only "accuracy" is reported
  bool normalize_by_target_length = false;
  int64_t idx_len = 2;
};
/// Of the model's scores of every choice: "accuracy" and, with one right choice each, "f1",
/// "auc-roc" and "auc-pr" (two classes) or "mean_<n>class_f1". Targets: (idx, is_correct, weight,
/// length), idx being (input, choice).
MetricFn rank_classification(const RankClassification& options = {});

/// Word edits: "min_edit", "max_edit", "mean_edit", "median_edit", "sum_edit".
MetricFn edit_distance(bool lower = true);

/// `metric` over the field `value_key` of the first example of each group.
MetricFn deduplicate_metric(MetricFn metric, std::string group_key = "group",
                            std::string value_key = "value");
/// Mean over groups of `metric` over the field `value_key`; with `return_subgroup_scores` also
/// "<group>-<name>".
MetricFn mean_group_metric(MetricFn metric, std::string group_key = "group",
                           std::string value_key = "value", bool return_subgroup_scores = false);

}  // namespace quintet::data::metrics
