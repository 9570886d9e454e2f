#include "data/t5/t5_tasks.h"

#include "data/t5/sentinels.h"
#include "data/tasks/gin_types.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"

namespace quintet::data {
namespace {

using gin::Value;
using Named = gin::Callable::Named;

/// A function of T5 and the arguments that a task gives it.
struct Step {
  std::string name;
  Named arguments = {};
};
const Step kTokenize = {"seqio.preprocessors.tokenize"};
const Step kCache = {"seqio.CacheDatasetPlaceholder"};
const Step kAppendEos = {"seqio.preprocessors.append_eos_after_trim"};

struct T5Task {
  std::string name, tfds_name;
  std::vector<Step> preprocessors;  // of t5.data.preprocessors unless named in full
  std::vector<Step> metrics = {};   // of t5.evaluation.metrics
  std::optional<Step> postprocessor = {};
  std::vector<std::string> splits = {};  // none: all
  std::vector<std::string> features = {"inputs", "targets"};
  bool add_eos = true;
};

std::string in_module(const std::string& module, const std::string& name) {
  return name.find('.') == std::string::npos ? module + "." + name : name;
}

/// {'inputs': None, 'targets': 'text'}
Step rekey(std::initializer_list<std::pair<const char*, const char*>> names) {
  gin::Dict map;
  for (const auto& [name, old_name] : names)
    map.set(name, old_name == nullptr ? Value() : Value(std::string(old_name)));
  return {"rekey", {{"key_map", map}}};
}

gin::List list_of(const std::vector<std::string>& items) {
  gin::List list;
  for (const std::string& item : items) list.push_back(item);
  return list;
}

/// Where tasks are made: with one vocabulary, which the first of them reads.
struct Workshop {
  const gin::Config& config;
  VocabularyPtr vocabulary = {};
};
using WorkshopPtr = std::shared_ptr<Workshop>;

Features features_of(const T5Task& task, Workshop& shop) {
  VocabularyPtr& vocabulary = shop.vocabulary;
  if (!vocabulary)
    vocabulary = shop.config.call_as<VocabularyPtr>("t5.data.get_default_vocabulary");
  Features features;
  for (const std::string& name : task.features) {
    // Inputs may be missing; what a task packs itself has "targets" on the way only.
    const bool required = name != "inputs" && !(name == "targets" && task.features.size() > 2);
    features.emplace_back(name, Feature{.vocabulary = vocabulary,
                                        .add_eos = task.add_eos || name == "targets",
                                        .required = required});
  }
  return features;
}

MetricFn metric_of(const Step& step, const gin::Config& config) {
  const std::string module = "t5.evaluation.metrics";
  Named arguments = step.arguments;
  for (auto& [name, value] : arguments)
    if (name == "metric_fn")
      value = config.call(in_module(module, gin::as<std::string>(value, {step.name})));
  return config.call_as<MetricFn>(in_module(module, step.name), arguments);
}

Task::Config make(const T5Task& task, Workshop& shop) {
  const gin::Config& config = shop.config;
  Named source = {{"tfds_name", task.tfds_name}};
  if (!task.splits.empty()) source.emplace_back("splits", list_of(task.splits));
  Task::Config made{.name = task.name,
                    .source = config.call_as<DataSourcePtr>("seqio.TfdsDataSource", source),
                    .preprocessors = {},
                    .output_features = features_of(task, shop)};
  for (const Step& step : task.preprocessors)
    made.preprocessors.push_back(config.call_as<PreprocessorPtr>(
        in_module("t5.data.preprocessors", step.name), step.arguments));
  for (const Step& step : task.metrics) made.metric_fns.push_back(metric_of(step, config));
  if (task.postprocessor)
    made.postprocess_fn =
        config.call_as<PostprocessFn>(in_module("t5.data.postprocessors", task.postprocessor->name),
                                      task.postprocessor->arguments);
  return made;
}

class Adder {
 public:
  Adder(TaskRegistry& registry, const gin::Config& config)
      : registry_(registry), shop_(std::make_shared<Workshop>(Workshop{config})) {}
  void operator()(T5Task task) {
    registry_.add(task.name, [task, shop = shop_](const TaskRegistry&) -> ProviderPtr {
      return std::make_shared<Task>(make(task, *shop));
    });
  }
  /// Text to text, tokenized.
  void supervised(T5Task task) {
    task.preprocessors.insert(task.preprocessors.end(), {kTokenize, kCache, kAppendEos});
    (*this)(std::move(task));
  }
  /// The same task with one sentinel id at the end of the inputs and the start of the targets.
  void supervised_and_with_sentinel(T5Task task) {
    supervised(task);
    task.preprocessors.insert(task.preprocessors.end(), {kTokenize, kCache, kAppendEos});
    registry_.add(sentinel_task_name(task.name, 1),
                  [task, shop = shop_](const TaskRegistry&) -> ProviderPtr {
                    Task::Config made = make(task, *shop);
                    made.name = sentinel_task_name(task.name, 1);
                    add_sentinels(made, 1);
                    return std::make_shared<Task>(std::move(made));
                  });
  }

 private:
  TaskRegistry& registry_;
  WorkshopPtr shop_;
};

void add_unsupervised(Adder& add) {
  const Step text_as_targets = rekey({{"inputs", nullptr}, {"targets", "text"}});
  for (const char* objective : {"span_corruption", "iid_denoising", "prefix_lm"})
    add({.name = std::string("c4_v220_") + objective,
         .tfds_name = "c4/en:2.2.0",
         .preprocessors = {text_as_targets, kTokenize, kCache, {objective}, kAppendEos}});
  add({.name = "the_pile_span_corruption",  // of t5x/contrib/gpu
       .tfds_name = "ThePile:1.0.0",
       .preprocessors = {text_as_targets, kTokenize, kCache, {"span_corruption"}, kAppendEos}});
  const auto add_unsupervised_task = [&](const std::string& name, const std::string& tfds_name) {
    add({.name = name,
         .tfds_name = tfds_name,
         .preprocessors = {text_as_targets, kTokenize, kCache, {"unsupervised"}, kAppendEos}});
  };
  for (const std::string config : {"", "noclean", "realnewslike", "webtextlike"})
    add_unsupervised_task("c4" + (config.empty() ? "" : "_" + config) + "_v020_unsupervised",
                          "c4/en" + (config.empty() ? "" : "." + config) + ":2.2.0");
  add_unsupervised_task("wikipedia_20190301.en_v003_unsupervised", "wikipedia/20190301.en:1.0.0");
  add_unsupervised_task("wikipedia_dummy", "wikipedia/20190301.als:1.0.0");  // of t5x/contrib/gpu
  add({.name = "c4_v220_full_lm",
       .tfds_name = "c4/en:2.2.0",
       .preprocessors = {text_as_targets, kTokenize, kCache, {"full_lm"}},
       .features = {"targets"}});
  const std::vector<Step> objective = {
      text_as_targets, kTokenize, kCache, {"targets_for_prefix_lm_objective"}};
  T5Task encoder_decoder{
      .name = "c4_prefix_lm_objective_encoder_decoder_architecture",
      .tfds_name = "c4/en:2.2.0",
      .preprocessors = objective,
      .features = {"encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens",
                   "encoder_segment_ids", "encoder_positions", "decoder_segment_ids",
                   "decoder_positions", "decoder_loss_weights", "targets"},
      .add_eos = false};
  encoder_decoder.preprocessors.push_back({"pack_prefix_lm_encoder_decoder"});
  add(std::move(encoder_decoder));
  T5Task decoder{.name = "c4_prefix_lm_objective_decoder_architecture",
                 .tfds_name = "c4/en:2.2.0",
                 .preprocessors = objective,
                 .features = {"decoder_target_tokens", "decoder_input_tokens",
                              "decoder_loss_weights", "decoder_causal_attention", "targets"},
                 .add_eos = false};
  decoder.preprocessors.push_back({"pack_prefix_lm_decoder_only"});
  add(std::move(decoder));
}

/// A data set of GLUE or SuperGLUE: its classes, its metrics and how it is named in its inputs.
struct Benchmark {
  std::string name;
  std::vector<std::string> labels;
  std::vector<Step> metrics = {{"accuracy"}};
  std::string written_as = {};  // none: its name
  std::vector<std::string> features = {};
  bool only_test = false;
};

void add_benchmark(Adder& add, const std::string& suite, const std::string& tfds_version,
                   const std::string& task_version, const Benchmark& b, bool with_sentinel) {
  T5Task task{.name = suite + "_" + b.name + "_" + task_version,
              .tfds_name = suite + "/" + b.name + ":" + tfds_version,
              .preprocessors = {},
              .metrics = b.metrics};
  if (b.only_test) task.splits = {"test"};
  if (b.name == "axb")
    task.preprocessors.push_back(rekey({{"premise", "sentence1"},
                                        {"hypothesis", "sentence2"},
                                        {"label", "label"},
                                        {"idx", "idx"}}));
  if (b.labels.empty()) {  // STS-B and ReCoRD have preprocessors of their own
    task.preprocessors.push_back({b.name});
  } else {
    Named arguments = {{"benchmark_name", b.written_as.empty() ? b.name : b.written_as},
                       {"label_names", list_of(b.labels)}};
    if (!b.features.empty()) arguments.emplace_back("feature_names", list_of(b.features));
    task.preprocessors.push_back({"glue", arguments});
  }
  if (b.name == "stsb")
    task.postprocessor = Step{"string_to_float"};
  else if (b.name == "multirc" || b.name == "record")
    task.postprocessor = Step{b.name};
  else
    task.postprocessor = Step{"string_label_to_class_id", {{"label_classes", list_of(b.labels)}}};
  if (with_sentinel)
    add.supervised_and_with_sentinel(std::move(task));
  else
    add.supervised(std::move(task));
}

void add_glue(Adder& add) {
  const std::vector<std::string> three = {"entailment", "neutral", "contradiction"};
  const std::vector<Step> f1_and_accuracy = {{"f1_score_with_invalid"}, {"accuracy"}};
  const Benchmark benchmarks[] = {
      {"cola",
       {"unacceptable", "acceptable"},
       {{"sklearn_metrics_wrapper",
         {{"metric_str", "matthews_corrcoef"}, {"metric_post_process_fn", 100.0}}}}},
      {"sst2", {"negative", "positive"}},
      {"mrpc", {"not_equivalent", "equivalent"}, f1_and_accuracy},
      {"qqp", {"not_duplicate", "duplicate"}, f1_and_accuracy},
      {"stsb", {}, {{"pearson_corrcoef"}, {"spearman_corrcoef"}}},
      {"mnli", three},
      {"mnli_mismatched", three, {{"accuracy"}}, "mnli"},
      {"mnli_matched", three, {{"accuracy"}}, "mnli"},
      {"qnli", {"entailment", "not_entailment"}},
      {"rte", {"entailment", "not_entailment"}},
      {"wnli", {"not_entailment", "entailment"}},
      {"ax", three, {}, "mnli", {}, true},
  };
  for (const Benchmark& benchmark : benchmarks) {
    add_benchmark(add, "glue", "1.0.0", "v002", benchmark, false);
    add_benchmark(add, "glue", "2.0.0", "v2", benchmark, false);  // of t5x/contrib/gpu
  }
}

void add_super_glue(Adder& add) {
  const std::vector<std::string> two = {"entailment", "not_entailment"};
  const std::vector<std::string> false_true = {"False", "True"};
  const Benchmark benchmarks[] = {
      {"boolq", false_true},
      {"cb",
       {"entailment", "contradiction", "neutral"},
       {{"mean_multiclass_f1", {{"num_classes", 3}}}, {"accuracy"}}},
      {"copa", {"choice1", "choice2"}},
      {"multirc",
       false_true,
       {{"multirc_f1_over_all_answers"}, {"mean_group_metric", {{"metric_fn", "all_match"}}}},
       "",
       {"question", "answer", "paragraph"}},
      {"record", {}, {{"deduplicate_metric", {{"metric_fn", "squad"}}}}},
      {"rte", two},
      {"wic", false_true, {{"accuracy"}}, "", {"sentence1", "sentence2", "word"}},
      {"axb", two, {}, "rte", {}, true},
      {"axg", two, {}, "rte", {}, true},
  };
  for (const Benchmark& benchmark : benchmarks)
    add_benchmark(add, "super_glue", "1.0.2", "v102", benchmark, true);
}

void add_winograd(Adder& add) {
  add.supervised_and_with_sentinel({.name = "dpr_v001_simple",
                                    .tfds_name = "definite_pronoun_resolution:1.1.0",
                                    .preprocessors = {{"definite_pronoun_resolution_simple"}},
                                    .metrics = {{"accuracy"}}});
  add.supervised_and_with_sentinel(
      {.name = "super_glue_wsc_v102_simple_train",
       .tfds_name = "super_glue/wsc.fixed:1.0.2",
       .preprocessors = {{"wsc_simple", {{"correct_referent_only", true}}}},
       .splits = {"train"}});
  add.supervised_and_with_sentinel(
      {.name = "super_glue_wsc_v102_simple_eval",
       .tfds_name = "super_glue/wsc.fixed:1.0.2",
       .preprocessors = {{"wsc_simple", {{"correct_referent_only", false}}}},
       .metrics = {{"accuracy"}},
       .postprocessor = Step{"wsc_simple"},
       .splits = {"validation", "test"}});
  add.supervised({.name = "glue_wnli_v002_simple_eval",
                  .tfds_name = "glue/wnli:1.0.0",
                  .preprocessors = {{"wnli_simple"}},
                  .metrics = {{"accuracy"}},
                  .postprocessor = Step{"wsc_simple"},
                  .splits = {"validation", "test"}});
}

void add_translation(Adder& add) {
  struct Pair {
    std::string task, tfds, source, target;  // TFDS names the pair the other way round
  };
  const Pair pairs[] = {
      {"wmt14", "wmt14_translate", "en", "de"}, {"wmt14", "wmt14_translate", "en", "fr"},
      {"wmt15", "wmt15_translate", "en", "fr"}, {"wmt16", "wmt16_translate", "en", "ro"},
      {"wmt19", "wmt19_translate", "en", "de"}, {"wmt_t2t", "wmt_t2t_translate", "en", "de"}};
  for (const auto& [task, tfds, source, target] : pairs)
    add.supervised({.name = task + "_" + source + target + "_v003",
                    .tfds_name = tfds + "/" + target + "-" + source + ":1.0.0",
                    .preprocessors = {{"translate",
                                       {{"source_language", source}, {"target_language", target}}}},
                    .metrics = {{"bleu"}}});
}

void add_summaries_and_questions(Adder& add) {
  add.supervised({.name = "cnn_dailymail_v002",
                  .tfds_name = "cnn_dailymail:3.4.0",
                  .preprocessors = {{"summarize",
                                     {{"article_key", "article"}, {"summary_key", "highlights"}}}},
                  .metrics = {{"rouge"}}});
  const std::string squad = "squad/v1.1:3.0.0";
  add.supervised({.name = "squad_v010_allanswers",
                  .tfds_name = squad,
                  .preprocessors = {{"squad"}},
                  .metrics = {{"squad"}},
                  .postprocessor = Step{"qa"}});
  add.supervised({.name = "squad_v010_context_free",
                  .tfds_name = squad,
                  .preprocessors = {{"squad", {{"include_context", false}}}},
                  .metrics = {{"squad"}},
                  .postprocessor = Step{"qa"}});
  add.supervised({.name = "squad_v010_allanswers_span",
                  .tfds_name = squad,
                  .preprocessors = {{"squad_span_space_tokenized"}},
                  .metrics = {{"span_squad"}},
                  .postprocessor = Step{"span_qa"}});
  add.supervised({.name = "squad_v010",
                  .tfds_name = squad,
                  .preprocessors = {{"squad"}},
                  .metrics = {{"squad"}}});
  add({.name = "trivia_qa_v010",
       .tfds_name = "trivia_qa/rc:1.1.0",
       .preprocessors = {
           {"trivia_qa"}, kTokenize, kCache, {"trivia_qa_truncate_inputs"}, kAppendEos}});
}

}  // namespace

void register_t5_defaults(gin::Registry& r) {
  const std::string name = "t5.data.utils.get_default_vocabulary";
  r.add(name,
        {{"sentencepiece_model_file", "gs://t5-data/vocabs/cc_all.32000/sentencepiece.model"},
         {"extra_ids", 100}},
        [](const gin::Arguments& a) {
          constexpr const char* kFile = "sentencepiece_model_file";
          const auto file = a.get<std::string>(kFile);
          if (!a.has(kFile) && a.config().query("VOCABULARY") != nullptr)
            return gin::to_value(gin::as<VocabularyPtr>(a.config().evaluate("VOCABULARY"),
                                                        gin::Where{"%VOCABULARY"}));
          local_path(file,
                     "; or bind t5.data.get_default_vocabulary.sentencepiece_model_file to another "
                     "file, or VOCABULARY to another vocabulary");
          return gin::to_value(VocabularyPtr(
              std::make_shared<SentencePieceVocabulary>(file, a.get<int32_t>("extra_ids"))));
        });
  r.add_alias("t5.data.get_default_vocabulary", name);
  r.add_module("t5.data.tasks");
  r.add_module("t5.data.mixtures");
}

void register_t5_tasks(TaskRegistry& registry, const gin::Config& config) {
  Adder add(registry, config);
  add_unsupervised(add);
  add_glue(add);
  add_super_glue(add);
  add_winograd(add);
  add_translation(add);
  add_summaries_and_questions(add);
}

}  // namespace quintet::data
