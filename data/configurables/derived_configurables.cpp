#include "data/configurables/derived_configurables.h"

#include "data/sources/fewshot_source.h"
#include "data/t5/sentinels.h"
#include "data/tasks/derived_tasks.h"
#include "data/tasks/gin_types.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

using gin::Arguments;
using gin::Registry;
using gin::Value;
using Find = std::function<ProviderPtr(const TaskRegistry&)>;

/// The task or mixture that a parameter is or names.
Find found(const Arguments& a, const char* parameter) {
  const Value value = a.value(parameter);
  if (const auto provider = value.object_as<const Provider>())
    return [provider](const TaskRegistry&) { return provider; };
  if (value.get_if<std::string>() == nullptr)
    gin::conversion_error(a.where(parameter), "the name of a task or mixture, or a task", value);
  return
      [name = a.get<std::string>(parameter)](const TaskRegistry& tasks) { return tasks.get(name); };
}

/// What `add` registers is defined where the first bound argument is.
Value object_of(const Arguments& a, AddProviders add) {
  const std::string where = a.where(a.names().front()).text;
  return Value::object(std::make_shared<const AddProviders>(
      [place = where.substr(0, where.rfind(": ")), add = std::move(add)](TaskRegistry& tasks) {
        tasks.set_place(place);
        add(tasks);
      }));
}

/// What `change` makes of a task or mixture. Parts of a mixture are registered, too, if asked for.
Value derived(const Arguments& a, ChangeTask change) {
  return object_of(a, [find = found(a, "mixture_or_task"), change = std::move(change),
                       name = a.get<std::string>("new_mixture_or_task_name"),
                       with_parts = a.get<bool>("add_to_seqio_registry")](TaskRegistry& tasks) {
    const Derived all = derive(find(tasks), name, change);
    if (with_parts)
      for (const ProviderPtr& part : all.parts) tasks.add(part);
    tasks.add(all.made);
  });
}

Value with_new_vocabulary(const Arguments& a) {
  NewVocabulary options{.vocabulary = a.get<VocabularyPtr>("new_vocab"),
                        .output_features = {},
                        .add_cache_placeholder = a.get<bool>("add_cache_placeholder"),
                        .validate_features = a.get<bool>("validate_features")};
  if (!a.value("new_output_features").is_none())
    options.output_features = a.get<Features>("new_output_features");
  QT_CHECK((options.vocabulary != nullptr) == options.output_features.empty(),
           "{}: bind one of new_vocab and new_output_features", a.where("new_vocab").text);
  return derived(a, new_vocabulary(std::move(options)));
}

TruncatedDataSource::Sizes split_sizes(const Arguments& a) {
  const auto sizes = a.get<TruncatedDataSource::Sizes>("split_sizes");
  for (const auto& [split, size] : sizes)
    QT_CHECK(size > 0, "{}: split '{}' is to keep {} examples, expected at least 1",
             a.where("split_sizes").text, split, size);
  return sizes;
}

void register_helpers(Registry& r) {
  const std::string helpers = "seqio.helpers.";
  r.add(helpers + "mixture_or_task_with_new_vocab",
        {"mixture_or_task",
         "new_mixture_or_task_name",
         {"new_vocab", nullptr},
         {"new_output_features", nullptr},
         {"add_to_seqio_registry", true},
         {"add_cache_placeholder", false},
         {"validate_features", true}},
        with_new_vocabulary);
  r.add(helpers + "mixture_or_task_with_truncated_data",
        {"mixture_or_task",
         "new_mixture_or_task_name",
         "split_sizes",
         {"add_to_seqio_registry", true}},
        [](const Arguments& a) { return derived(a, truncated_data(split_sizes(a))); });
  r.add(helpers + "mixture_with_missing_task_splits_removed",
        {"mixture_name", "split", "new_mixture_name", {"add_to_seqio_registry", true}},
        [](const Arguments& a) {
          return object_of(a, [find = found(a, "mixture_name"), split = a.get<std::string>("split"),
                               name = a.get<std::string>("new_mixture_name")](TaskRegistry& tasks) {
            tasks.add(without_parts_missing(find(tasks), split, name));
          });
        });
  r.add(helpers + "TruncatedDatasetProvider",
        {"child", "split_sizes", {"shuffle_buffer_size", nullptr}}, [](const Arguments& a) {
          return gin::to_value(DataSourcePtr(std::make_shared<TruncatedDataSource>(
              a.get<DataSourcePtr>("child"), split_sizes(a))));
        });
}

/// add_fully_cached_task and add_fully_cached_mixture.
Value fully_cached_provider(const Arguments& a, const char* name) {
  return object_of(a, [find = found(a, name), lengths = a.get<Lengths>("sequence_length"),
                       keep_order = a.get<bool>("disallow_shuffling")](TaskRegistry& tasks) {
    const ProviderPtr original = find(tasks);
    const auto name_of = [&](const std::string& part) { return fully_cached_name(part, lengths); };
    const Derived all =
        derive(original, name_of(original->name()), fully_cached(lengths, keep_order), name_of);
    for (const ProviderPtr& part : all.parts)
      if (!tasks.has(part->name())) tasks.add(part);
    tasks.add(all.made);
  });
}

void register_experimental(Registry& r) {
  const std::string experimental = "seqio.experimental.";
  for (const char* kind : {"task", "mixture"}) {
    const std::string name = std::string(kind) + "_name";
    r.add(experimental + "add_fully_cached_" + kind,
          {name, "sequence_length", {"disallow_shuffling", false}},
          [name](const Arguments& a) { return fully_cached_provider(a, name.c_str()); });
  }
  r.add(experimental + "add_task_with_sentinels", {"task_name", {"num_sentinels", 1}},
        [](const Arguments& a) {
          const auto count = a.get<int32_t>("num_sentinels");
          QT_CHECK(count > 0, "{}: {} sentinels, expected at least 1",
                   a.where("num_sentinels").text, count);
          return object_of(a, [find = found(a, "task_name"), count](TaskRegistry& tasks) {
            const ProviderPtr original = find(tasks);
            const Derived all = derive(original, sentinel_task_name(original->name(), count),
                                       [count](Task::Config& task) {
                                         add_sentinels(task, count);
                                         task.shuffle_buffer_size = Task::kShuffleBufferSize;
                                       });
            QT_CHECK(all.parts.empty(), "add_task_with_sentinels: '{}' is a mixture, not a task",
                     original->name());
            tasks.add(all.made);
          });
        });
}

void register_fewshot(Registry& r) {
  const std::string experimental = "seqio.experimental.";
  r.add(experimental + "FewshotDataSource",
        {"original_source",
         "num_shots",
         {"train_preprocessors", gin::list_of({})},
         {"eval_preprocessors", gin::list_of({})},
         {"train_split", "train"},
         {"train_feature_keys", gin::list_of({"inputs", "targets"})},
         {"shuffle_buffer_size", Task::kShuffleBufferSize},
         {"eval_on_fixed_exemplars", false}},
        [](const Arguments& a) {
          const auto num_shots = a.get<int64_t>("num_shots");
          QT_CHECK(num_shots >= 0, "{}: {} shots, expected 0 or more", a.where("num_shots").text,
                   num_shots);
          using Steps = std::vector<PreprocessorPtr>;
          return gin::to_value(
              DataSourcePtr(std::make_shared<FewshotDataSource>(FewshotDataSource::Options{
                  .original_source = a.get<DataSourcePtr>("original_source"),
                  .num_shots = num_shots,
                  .train_preprocessors = a.get<Steps>("train_preprocessors"),
                  .eval_preprocessors = a.get<Steps>("eval_preprocessors"),
                  .train_split = a.get<std::string>("train_split"),
                  .train_feature_keys = a.get<std::vector<std::string>>("train_feature_keys"),
                  .eval_on_fixed_exemplars = a.get<bool>("eval_on_fixed_exemplars")})));
        });
  r.add_struct<FewshotPreprocessor>(experimental + "fewshot_preprocessor")
      .arg("inputs_prefix", &FewshotPreprocessor::inputs_prefix)
      .arg("targets_prefix", &FewshotPreprocessor::targets_prefix)
      .arg("example_separator", &FewshotPreprocessor::example_separator)
      .arg("prompt", &FewshotPreprocessor::prompt)
      .arg("reverse", &FewshotPreprocessor::reverse);
}

}  // namespace

void register_derived_tasks(Registry& r) {
  register_fewshot(r);
  register_helpers(r);
  register_experimental(r);
}

}  // namespace quintet::data
