#include "data/configurables.h"

#include "data/gin_types.h"
#include "data/metrics/configurables.h"
#include "data/postprocessors.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "data/sources/configurables.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

using gin::Arguments;
using gin::Param;
using gin::Registry;
using gin::Value;
using gin::Where;

void register_vocabularies(Registry& r) {
  r.add_function("seqio.vocabularies.ByteVocabulary",
                 [](int32_t extra_ids) -> VocabularyPtr {
                   return std::make_shared<ByteVocabulary>(extra_ids);
                 },
                 {{"extra_ids", 0}});
  r.add_function(
      "seqio.vocabularies.SentencePieceVocabulary",
      [](std::string file, std::optional<int32_t> extra_ids, bool reverse_extra_ids,
         Value overrides, bool) -> VocabularyPtr {
        QT_CHECK(overrides.is_none(),
                 "SentencePieceVocabulary: normalizer_spec_overrides is not supported; train the "
                 "model with the normalizer you want");
        return std::make_shared<SentencePieceVocabulary>(std::move(file), extra_ids.value_or(0),
                                                         reverse_extra_ids);
      },
      {"sentencepiece_model_file",
       {"extra_ids", 0},
       {"reverse_extra_ids", true},
       {"normalizer_spec_overrides", nullptr},
       {"use_fast_tokenizer", false}});
  r.add_function("seqio.vocabularies.PassThroughVocabulary",
                 [](int32_t size, std::optional<int32_t> eos_id) -> VocabularyPtr {
                   return std::make_shared<PassThroughVocabulary>(size, eos_id);
                 },
                 {"size", {"eos_id", nullptr}});
  for (const char* name : {"ByteVocabulary", "SentencePieceVocabulary", "PassThroughVocabulary"})
    r.add_alias(std::string("seqio.") + name, std::string("seqio.vocabularies.") + name);

  r.add_struct<Feature>("seqio.dataset_providers.Feature")
      .required("vocabulary", &Feature::vocabulary)
      .arg("add_eos", &Feature::add_eos)
      .arg("required", &Feature::required)
      .accepted("dtype")
      .accepted("rank", 1);
  r.add_alias("seqio.Feature", "seqio.dataset_providers.Feature");
}

/// t5.data.preprocessors re-exports two of seqio.preprocessors.
void register_text_preprocessors(Registry& r) {
  r.add_struct<Rekey>("seqio.preprocessors.rekey")
      .arg_with("key_map", nullptr, [](Rekey& rekey, const Value& value, const Where& where) {
        rekey.key_map.clear();
        if (value.is_none()) return;
        using Map = std::vector<std::pair<std::string, std::optional<std::string>>>;
        for (auto& [name, old_name] : gin::as<Map>(value, where))
          rekey.key_map.emplace_back(name, old_name.value_or(""));
      });
  r.add_struct<Tokenize>("seqio.preprocessors.tokenize")
      .arg("copy_pretokenized", &Tokenize::copy_pretokenized)
      .arg("with_eos", &Tokenize::with_eos);
  r.add_function("seqio.preprocessors.tokenize_and_append_eos",
                 [](bool copy_pretokenized) -> PreprocessorPtr {
                   Tokenize tokenize;
                   tokenize.copy_pretokenized = copy_pretokenized;
                   tokenize.with_eos = true;
                   return std::make_shared<Tokenize>(tokenize);
                 },
                 {{"copy_pretokenized", true}});
  r.add_alias("t5.data.preprocessors.rekey", "seqio.preprocessors.rekey");
  r.add_alias("t5.data.preprocessors.tokenize", "seqio.preprocessors.tokenize");

  const auto names_or_none = [](auto member) {
    return [member](auto& object, const Value& value, const Where& where) {
      using List = std::remove_reference_t<decltype(object.*member)>;
      if (!value.is_none()) object.*member = gin::as<List>(value, where);
    };
  };
  r.add_struct<ParseTsv>("t5.data.preprocessors.parse_tsv")
      .arg_with("field_names", nullptr, names_or_none(&ParseTsv::field_names))
      .arg("field_delim", &ParseTsv::field_delim)
      .arg_with("field_columns", nullptr, names_or_none(&ParseTsv::field_columns));
  r.add_struct<PreprocessTsv>("t5.data.preprocessors.preprocess_tsv")
      .arg("field_delim", &PreprocessTsv::field_delim)
      .arg("num_fields", &PreprocessTsv::num_fields)
      .arg("inputs_format", &PreprocessTsv::inputs_format)
      .arg("targets_format", &PreprocessTsv::targets_format)
      .arg_with("field_names", nullptr, names_or_none(&PreprocessTsv::field_names))
      .arg("use_quote_delim", &PreprocessTsv::use_quote_delim);
  r.add_struct<AddPrefix>("quintet.data.add_prefix")
      .required("prefix", &AddPrefix::prefix)
      .arg("feature_key", &AddPrefix::feature_key);
}

/// A list of features, or None.
template <typename T, typename Params>
void add_keys(Params params, const char* name, std::vector<std::string> T::*member) {
  params.arg_with(name, nullptr, [member](T& object, const Value& value, const Where& where) {
    object.*member = value.is_none() ? std::vector<std::string>{}
                                     : gin::as<std::vector<std::string>>(value, where);
  });
}

void add_split_to_length(Registry& r, const char* name, const char* length_of,
                         std::optional<int64_t> least) {
  r.add_function(name,
                 [=](std::string key, std::optional<std::vector<std::string>> additional,
                     std::optional<std::vector<std::string>> passthrough) -> PreprocessorPtr {
                   SplitTokensToLength split;
                   split.length_of = length_of;
                   split.min_tokens_per_segment = least;
                   split.feature_key = std::move(key);
                   split.additional_feature_keys = additional.value_or(std::vector<std::string>{});
                   split.passthrough_feature_keys =
                       passthrough.value_or(std::vector<std::string>{});
                   return std::make_shared<SplitTokensToLength>(split);
                 },
                 {{"feature_key", "targets"},
                  {"additional_feature_keys", nullptr},
                  {"passthrough_feature_keys", nullptr}});
}

void register_token_preprocessors(Registry& r) {
  r.add_struct<AppendEos>("seqio.preprocessors.append_eos");
  r.add_struct<AppendEosAfterTrim>("seqio.preprocessors.append_eos_after_trim");
  r.add_struct<TruncateInputsLeft>("seqio.preprocessors.truncate_inputs_left");
  auto front = r.add_struct<TrimTokensAtFront>("t5.data.preprocessors.trim_tokens_at_front");
  add_keys(front, "keys_to_trim", &TrimTokensAtFront::keys_to_trim);

  auto chunk = r.add_struct<SelectRandomChunk>("t5.data.preprocessors.select_random_chunk");
  chunk.arg("max_length", &SelectRandomChunk::max_length)
      .arg("feature_key", &SelectRandomChunk::feature_key)
      .arg("uniform_random_start", &SelectRandomChunk::uniform_random_start)
      .arg("min_length", &SelectRandomChunk::min_length);
  add_keys(chunk, "additional_feature_keys", &SelectRandomChunk::additional_feature_keys);
  add_keys(chunk, "passthrough_feature_keys", &SelectRandomChunk::passthrough_feature_keys);

  r.add_struct<ReduceConcatTokens>("t5.data.preprocessors.reduce_concat_tokens")
      .arg("feature_key", &ReduceConcatTokens::feature_key)
      .arg("batch_size", &ReduceConcatTokens::batch_size);

  auto split = r.add_struct<SplitTokens>("t5.data.preprocessors.split_tokens");
  split.arg("min_tokens_per_segment", &SplitTokens::min_tokens_per_segment)
      .required("max_tokens_per_segment", &SplitTokens::max_tokens_per_segment)
      .arg("feature_key", &SplitTokens::feature_key);
  add_keys(split, "additional_feature_keys", &SplitTokens::additional_feature_keys);
  add_keys(split, "passthrough_feature_keys", &SplitTokens::passthrough_feature_keys);

  constexpr int64_t kShortestRandomPiece = 8;
  add_split_to_length(r, "t5.data.preprocessors.split_tokens_to_inputs_length", "inputs", {});
  add_split_to_length(r, "t5.data.preprocessors.split_tokens_to_targets_length", "targets", {});
  add_split_to_length(r, "t5.data.preprocessors.split_tokens_to_random_length", "inputs",
                      kShortestRandomPiece);
  r.add_struct<ConcatenateAndSplitToFixedLength>(
       "t5.data.preprocessors.concatenate_and_split_to_fixed_length")
      .arg("feature_key", &ConcatenateAndSplitToFixedLength::feature_key);
  r.add_struct<FullLm>("t5.data.preprocessors.full_lm");

  r.add_struct<CacheDatasetPlaceholder>("seqio.dataset_providers.CacheDatasetPlaceholder")
      .arg("required", &CacheDatasetPlaceholder::required)
      .accepted("file_shuffle_buffer_size");
  r.add_alias("seqio.CacheDatasetPlaceholder", "seqio.dataset_providers.CacheDatasetPlaceholder");
}

void register_denoising(Registry& r) {
  const std::string t5 = "t5.data.preprocessors.";
  for (const std::string& name : noise_fn_names())
    r.add_function(t5 + name, [name] { return noise_fn(name); }, {});
  r.add_struct<IidNoiseMask>(t5 + "iid_noise_mask");
  r.add_struct<RegularNoiseMask>(t5 + "regular_noise_mask")
      .arg("min_span_length", &RegularNoiseMask::min_span_length)
      .arg("max_span_length", &RegularNoiseMask::max_span_length);
  r.add_struct<RandomSpansNoiseMask>(t5 + "random_spans_noise_mask")
      .arg("mean_noise_span_length", &RandomSpansNoiseMask::mean_noise_span_length)
      .arg("random_roll", &RandomSpansNoiseMask::random_roll);
  r.add_struct<RandomPrefixNoiseMask>(t5 + "random_prefix_noise_mask");

  auto denoise = r.add_struct<Denoise>(t5 + "denoise");
  denoise.required("noise_density", &Denoise::noise_density)
      .required("noise_mask_fn", &Denoise::noise_mask_fn)
      .required("inputs_fn", &Denoise::inputs_fn)
      .arg("targets_fn", &Denoise::targets_fn)
      .arg("input_feature_key", &Denoise::input_feature_key);
  add_keys(denoise, "passthrough_feature_keys", &Denoise::passthrough_feature_keys);

  auto spans = r.add_struct<SpanCorruption>(t5 + "span_corruption");
  spans.arg("mean_noise_span_length", &SpanCorruption::mean_noise_span_length)
      .arg("noise_density", &SpanCorruption::noise_density)
      .arg("input_feature_key", &SpanCorruption::input_feature_key)
      .arg("merge_examples_to_reduce_padding", &SpanCorruption::merge_examples_to_reduce_padding)
      .arg("reserved_for_packing", &SpanCorruption::reserved_for_packing);
  add_keys(spans, "passthrough_feature_keys", &SpanCorruption::passthrough_feature_keys);
  r.add_struct<IidDenoising>(t5 + "iid_denoising");
  r.add_struct<PrefixLm>(t5 + "prefix_lm").arg("noise_density", &PrefixLm::noise_density);
}

/// None, a postprocessor, or a list of them.
PostprocessFn postprocess_fn(const Arguments& a) {
  const Value value = a.value("postprocess_fn");
  if (value.is_none()) return {};
  if (gin::sequence(value) == nullptr) return a.get<PostprocessFn>("postprocess_fn");
  return postprocessors::chain(a.get<std::vector<PostprocessFn>>("postprocess_fn"));
}

Value make_task(const Arguments& a) {
  const auto metrics = a.value("metric_fns");
  return gin::to_value(std::make_shared<const Task>(Task::Config{
      .name = a.get<std::string>("name"),
      .source = a.get<DataSourcePtr>("source"),
      .preprocessors = a.get<std::vector<PreprocessorPtr>>("preprocessors"),
      .output_features = a.get<Features>("output_features"),
      .metric_fns =
          metrics.is_none() ? std::vector<MetricFn>{} : a.get<std::vector<MetricFn>>("metric_fns"),
      .postprocess_fn = postprocess_fn(a),
  }));
}

void register_tasks(Registry& r) {
  r.add("seqio.dataset_providers.Task",
        {"name",
         "source",
         {"preprocessors", gin::list_of({})},
         "output_features",
         {"postprocess_fn", nullptr},
         {"metric_fns", nullptr},
         {"shuffle_buffer_size", nullptr}},
        make_task);
  r.add_struct<MixtureSpec>("seqio.dataset_providers.Mixture")
      .required("name", &MixtureSpec::name)
      .required("tasks", &MixtureSpec::tasks)
      .arg("default_rate", &MixtureSpec::default_rate);
  r.add_function("seqio.dataset_providers.TaskRegistry",
                 [](std::vector<Value> tasks) { return tasks; }, {{"tasks", gin::list_of({})}});
  r.add_function("seqio.dataset_providers.MixtureRegistry",
                 [](std::vector<Value> mixtures) { return mixtures; },
                 {{"mixtures", gin::list_of({})}});
  for (const char* name : {"Task", "Mixture", "TaskRegistry", "MixtureRegistry"})
    r.add_alias(std::string("seqio.") + name, std::string("seqio.dataset_providers.") + name);

  r.add_struct<DatasetConfig>("t5x.utils.DatasetConfig")
      .arg_with("mixture_or_task_name", nullptr,
                [](DatasetConfig& config, const Value& value, const Where& where) {
                  if (const auto provider = value.object_as<const Provider>()) {
                    config.mixture_or_task = provider;
                    config.mixture_or_task_name = provider->name();
                  } else {
                    config.mixture_or_task_name = gin::as<std::string>(value, where);
                  }
                })
      .arg_with("task_feature_lengths", nullptr,
                [](DatasetConfig& config, const Value& value, const Where& where) {
                  if (!value.is_none())
                    config.task_feature_lengths = gin::as<Lengths>(value, where);
                })
      .required("split", &DatasetConfig::split)
      .required("batch_size", &DatasetConfig::batch_size)
      .required("shuffle", &DatasetConfig::shuffle)
      .required("seed", &DatasetConfig::seed)
      .arg("use_cached", &DatasetConfig::use_cached)
      .arg("cache_dirs", &DatasetConfig::cache_dirs)
      .arg("on_bad_example", &DatasetConfig::on_bad_example)
      .arg("pack", &DatasetConfig::pack)
      .arg("use_custom_packing_ops", &DatasetConfig::use_custom_packing_ops)
      .arg("use_memory_cache", &DatasetConfig::use_memory_cache)
      .arg("trim_output_features", &DatasetConfig::trim_output_features)
      .arg_with("skip_batches", nullptr,
                [](DatasetConfig& config, const Value& value, const Where& where) {
                  if (!value.is_none())
                    config.skip_batches = parse_batch_ranges(gin::as<std::string>(value, where));
                })
      .arg("start_batch", &DatasetConfig::start_batch)
      .arg("strict_data", &DatasetConfig::strict_data)
      .accepted("module");
}

ProviderPtr resolve(const gin::Value& value, const TaskRegistry& registry, const Where& where) {
  if (const auto provider = value.object_as<const Provider>()) return provider;
  return registry.get(gin::as<std::string>(value, where));
}

ProviderPtr make_mixture(const MixtureSpec& spec, const TaskRegistry& registry) {
  std::vector<Mixture::Part> parts;
  for (size_t i = 0; i < spec.tasks.size(); ++i) {
    const Where where = Where{"mixture '" + spec.name + "': tasks"}.item(i);
    const Value& item = spec.tasks[i];
    if (gin::sequence(item) == nullptr) {
      parts.emplace_back(resolve(item, registry, where), spec.default_rate);
    } else {
      const auto [task, rate] = gin::as<std::pair<Value, double>>(item, where);
      parts.emplace_back(resolve(task, registry, where), rate);
    }
  }
  return std::make_shared<Mixture>(spec.name, std::move(parts));
}

}  // namespace

void register_data(gin::Registry& registry) {
  register_vocabularies(registry);
  register_sources(registry);
  register_text_preprocessors(registry);
  register_token_preprocessors(registry);
  register_denoising(registry);
  register_metrics(registry);
  register_tasks(registry);
}

TaskRegistry make_task_registry(const gin::Config& config) {
  TaskRegistry registry;
  register_builtin_tasks(registry);
  const Where where{"seqio.TaskRegistry.tasks"};
  for (const gin::Value& task : config.call_as<std::vector<gin::Value>>("seqio.TaskRegistry"))
    registry.add(gin::as<std::shared_ptr<const Task>>(task, where));
  for (const gin::Value& mixture : config.call_as<std::vector<gin::Value>>("seqio.MixtureRegistry"))
    registry.add(
        make_mixture(gin::as<MixtureSpec>(mixture, {"seqio.MixtureRegistry.mixtures"}), registry));
  return registry;
}

}  // namespace quintet::data
