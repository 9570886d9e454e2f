#include "data/configurables/metric_configurables.h"

#include "data/evaluation/legacy_metric.h"
#include "data/metrics/plain/plain_text.h"
#include "data/metrics/postprocessors.h"
#include "data/metrics/sklearn.h"
#include "data/metrics/t5_metrics.h"
#include "data/tasks/gin_types.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

using gin::Arguments;
using gin::Registry;
using gin::Value;
using gin::Where;

const std::string kMetrics = "t5.evaluation.metrics.";
const std::string kPostprocessors = "t5.data.postprocessors.";

/// A label as gin files write it: a number or a text.
Answer label_of(const Value& value, const Where& where) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  return gin::as<int64_t>(value, where);
}

constexpr const char* kDefaultTokenizer = "rouge_score.tokenizers.DefaultTokenizer";

/// Of rouge_score.tokenizers: use_stemmer of the scorer counts for nothing beside one.
struct DefaultTokenizer {
  bool use_stemmer = false;
};

MetricFn rouge_from(const Arguments& a, bool bootstrap) {
  QT_CHECK(!a.get<bool>("split_summaries"),
           "{}: split_summaries = True asks for NLTK's sentences, which are not here; \" . \" and "
           "newlines end sentences",
           a.target().name);
  metrics::RougeOptions options{a.get<std::vector<std::string>>("score_keys"),
                                a.get<bool>("use_stemmer")};
  if (const Value tokenizer = a.value("tokenizer"); !tokenizer.is_none()) {
    const auto plain = tokenizer.object_as<DefaultTokenizer>();
    options.use_stemmer = plain != nullptr && plain->use_stemmer;
    options.tokenizer = tokenizer.object_as<const Vocabulary>();
    QT_CHECK(plain != nullptr || options.tokenizer != nullptr,
             "{}: expected @{}() or a vocabulary such as @seqio.SentencePieceVocabulary(), whose "
             "ids are the tokens, found {}",
             a.where("tokenizer").text, kDefaultTokenizer, tokenizer.repr());
  }
  return bootstrap ? metrics::rouge(options, a.get<bool>("verbose")) : metrics::rouge_mean(options);
}

MetricFn sklearn_from(const Arguments& a) {
  metrics::SklearnOptions options;
  options.metric_dict_str = a.get<std::optional<std::string>>("metric_dict_str").value_or("");
  options.factor = a.get<std::optional<double>>("metric_post_process_fn").value_or(1);
  options.average = a.get<std::string>("average");
  options.pos_label = label_of(a.value("pos_label"), a.where("pos_label"));
  options.beta = a.get<double>("beta");
  options.zero_division = a.get<double>("zero_division");
  const auto labels = a.get<std::optional<std::vector<Value>>>("labels");
  if (labels) {
    options.labels.emplace();
    for (const Value& label : *labels)
      options.labels->push_back(label_of(label, a.where("labels")));
  }
  return metrics::sklearn_metrics_wrapper(a.get<std::string>("metric_str"), options);
}

void register_metric_fns(Registry& r) {
  using Make = MetricFn (*)();
  const std::pair<const char*, Make> plain[] = {
      {"squad", metrics::squad},
      {"trivia_qa", metrics::trivia_qa},
      {"span_squad", metrics::span_squad},
      {"coqa_f1", metrics::coqa_f1},
      {"ShardedSquad", metrics::sharded_squad},
      {"accuracy", metrics::accuracy},
      {"sequence_accuracy", metrics::sequence_accuracy},
      {"all_match", metrics::all_match},
      {"f1_score_with_invalid", metrics::f1_score_with_invalid},
      {"multirc_f1_over_all_answers", metrics::multirc_f1_over_all_answers},
      {"pearson_corrcoef", metrics::pearson_corrcoef},
      {"spearman_corrcoef", metrics::spearman_corrcoef}};
  for (const auto& [name, make] : plain) r.add_function(kMetrics + name, make, {});

  r.add(kDefaultTokenizer, {{"use_stemmer", false}}, [](const Arguments& a) {
    return Value::object(
        std::make_shared<DefaultTokenizer>(DefaultTokenizer{a.get<bool>("use_stemmer")}));
  });
  r.add_function(kMetrics + "bleu", metrics::bleu, {{"tokenizer", "intl"}});
  for (const bool bootstrap : {true, false})
    r.add(kMetrics + (bootstrap ? "rouge" : "rouge_mean"),
          {{"score_keys", gin::tuple_of({"rouge1", "rouge2", "rougeLsum"})},
           {"verbose", true},
           {"use_stemmer", false},
           {"split_summaries", false},
           {"tokenizer", nullptr}},
          [bootstrap](const Arguments& a) { return gin::to_value(rouge_from(a, bootstrap)); });
  r.add_function(kMetrics + "mean_multiclass_f1", metrics::mean_multiclass_f1, {"num_classes"});
  r.add_function(kMetrics + "auc", metrics::auc, {{"targets_threshold", nullptr}});
  r.add_function(kMetrics + "score_auc", metrics::score_auc, {{"targets_threshold", nullptr}});
  r.add_function(kMetrics + "edit_distance", metrics::edit_distance, {{"lower", true}});
  r.add_function(kMetrics + "rank_classification",
                 [](std::optional<int64_t> num_classes, bool normalize, int64_t idx_len) {
                   return metrics::rank_classification({num_classes, normalize, idx_len});
                 },
                 {{"num_classes", nullptr}, {"normalize_by_target_length", false}, {"idx_len", 2}});
  r.add_function(kMetrics + "deduplicate_metric", metrics::deduplicate_metric,
                 {"metric_fn", {"group_key", "group"}, {"value_key", "value"}});
  r.add_function(kMetrics + "mean_group_metric", metrics::mean_group_metric,
                 {"metric_fn",
                  {"group_key", "group"},
                  {"value_key", "value"},
                  {"return_subgroup_scores", false}});
  const metrics::SklearnOptions sklearn;
  r.add(kMetrics + "sklearn_metrics_wrapper",
        {"metric_str",
         {"metric_dict_str", nullptr},
         {"metric_post_process_fn", nullptr},
         {"average", sklearn.average},
         {"labels", nullptr},
         {"pos_label", 1},
         {"beta", sklearn.beta},
         {"zero_division", sklearn.zero_division}},
        [](const Arguments& a) { return gin::to_value(sklearn_from(a)); });
}

/// Of plain text.
void register_our_metrics(Registry& r) {
  using Make = MetricFn (*)();
  const std::pair<const char*, Make> plain[] = {{"exact_match", metrics::exact_match},
                                                {"word_f1", metrics::word_f1},
                                                {"chrf", metrics::chrf},
                                                {"matthews", metrics::matthews},
                                                {"spearman", metrics::spearman}};
  for (const auto& [name, make] : plain)
    r.add_function(std::string("quintet.data.") + name, make, {});
  r.add_function("quintet.data.confusion_matrix", metrics::confusion_matrix, {"classes"});
}

void register_postprocessors(Registry& r) {
  using Make = PostprocessFn (*)();
  const std::pair<const char*, Make> plain[] = {
      {"lower_text", postprocessors::lower_text}, {"multirc", postprocessors::multirc},
      {"record", postprocessors::record},         {"qa", postprocessors::qa},
      {"span_qa", postprocessors::span_qa},       {"wsc_simple", postprocessors::wsc_simple}};
  for (const auto& [name, make] : plain) r.add_function(kPostprocessors + name, make, {});
  r.add_function(kPostprocessors + "string_to_float", postprocessors::string_to_float,
                 {{"default", -1.0}});
  r.add_function(kPostprocessors + "string_label_to_class_id",
                 postprocessors::string_label_to_class_id, {"label_classes", {"default", -1}});
  r.add_function(
      kPostprocessors + "rank_classification",
      [](std::optional<std::vector<std::string>> keys) {
        return postprocessors::rank_classification(keys.value_or(std::vector<std::string>{}));
      },
      {{"passthrough_feature_keys", nullptr}});
}

void register_metric_objects(Registry& r) {
  for (const char* name : {"PassthroughLegacyMetric.from_metric_fn", "LegacyMetric.empty"})
    r.add_function(std::string("seqio.metrics.") + name,
                   [](MetricFn metric_fn, std::optional<PostprocessFn> postprocess_fn) {
                     return legacy_metric(std::move(metric_fn),
                                          postprocess_fn.value_or(PostprocessFn()));
                   },
                   {"metric_fn", {"postprocess_fn", nullptr}});
}

}  // namespace

void register_metrics(gin::Registry& registry) {
  register_metric_objects(registry);
  register_metric_fns(registry);
  register_our_metrics(registry);
  register_postprocessors(registry);
}

}  // namespace quintet::data
