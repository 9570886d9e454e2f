// Tasks, mixtures and DatasetConfig in gin.

// g++ 12 takes the inlined comparison in gin::Param's constructor for a use of uninitialised
// memory.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "data/configurables/configurables.h"
#include "data/configurables/derived_configurables.h"
#include "data/metrics/postprocessors.h"
#include "data/t5/t5_tasks.h"
#include "data/tasks/gin_types.h"
#include "data/tasks/mixing_rates.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

using gin::Arguments;
using gin::Registry;
using gin::Value;
using gin::Where;

/// None, a postprocessor, or a list of them.
PostprocessFn postprocess_fn(const Arguments& a) {
  const Value value = a.value("postprocess_fn");
  if (value.is_none()) return {};
  if (gin::sequence(value) == nullptr) return a.get<PostprocessFn>("postprocess_fn");
  return postprocessors::chain(a.get<std::vector<PostprocessFn>>("postprocess_fn"));
}

constexpr const char* kSampleFn = "tensorflow.data.Dataset.sample_from_datasets";

/// "my.gin:12", where the task or mixture has its name.
std::string place_of(const Arguments& a) {
  const std::string where = a.where("name").text;
  return where.substr(0, where.rfind(": "));
}

template <typename T>
std::vector<T> list_or_none(const Arguments& a, const char* name) {
  return a.value(name).is_none() ? std::vector<T>{} : a.get<std::vector<T>>(name);
}

Value make_task(const Arguments& a) {
  return gin::to_value(std::make_shared<const Task>(Task::Config{
      .name = a.get<std::string>("name"),
      .source = a.get<DataSourcePtr>("source"),
      .preprocessors = a.get<std::vector<PreprocessorPtr>>("preprocessors"),
      .output_features = a.get<Features>("output_features"),
      .metric_fns = list_or_none<MetricFn>(a, "metric_fns"),
      .metric_objs = list_or_none<MetricObject>(a, "metric_objs"),
      .postprocess_fn = postprocess_fn(a),
      .shuffle_buffer_size = a.get<std::optional<int64_t>>("shuffle_buffer_size"),
      .defined_at = place_of(a),
  }));
}

void register_mixtures(Registry& r) {
  const MixtureSpec mixture;
  r.add("seqio.dataset_providers.Mixture",
        {"name", "tasks", {"default_rate", mixture.default_rate}, {"sample_fn", mixture.sample_fn}},
        [](const Arguments& a) {
          return gin::to_value(MixtureSpec{.name = a.get<std::string>("name"),
                                           .tasks = a.get<std::vector<Value>>("tasks"),
                                           .default_rate = a.value("default_rate"),
                                           .sample_fn = a.value("sample_fn"),
                                           .defined_at = place_of(a)});
        });
  // seqio's default is this with stop_on_empty_dataset = True.
  r.add(kSampleFn, {{"stop_on_empty_dataset", false}}, [](const Arguments& a) -> gin::Value {
    fail(ExitCode::kUsage, "{} is used as @{} without ()", a.target().name, a.target().name);
  });
  r.add_alias("tf.data.Dataset.sample_from_datasets", kSampleFn);
}

void register_dataset_config(Registry& r) {
  r.add_struct<DatasetConfig>("t5x.utils.DatasetConfig")
      .arg_with("mixture_or_task_name", nullptr,
                [](DatasetConfig& config, const gin::Value& value, const Where& where) {
                  if (const auto provider = value.object_as<const Provider>()) {
                    config.mixture_or_task = provider;
                    config.mixture_or_task_name = provider->name();
                  } else {
                    config.mixture_or_task_name = gin::as<std::string>(value, where);
                  }
                })
      .arg_with("task_feature_lengths", nullptr,
                [](DatasetConfig& config, const gin::Value& value, const Where& where) {
                  config.lengths_where = where.text;
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
      .arg("trim_output_features", &DatasetConfig::trim_output_features)
      .arg_with("skip_batches", nullptr,
                [](DatasetConfig& config, const gin::Value& value, const Where& where) {
                  if (!value.is_none())
                    config.skip_batches = parse_batch_ranges(gin::as<std::string>(value, where));
                })
      .arg("start_batch", &DatasetConfig::start_batch)
      .arg("virtual_shards", &DatasetConfig::virtual_shards)
      .arg("strict_data", &DatasetConfig::strict_data)
      .accepted("module")
      .accepted("use_memory_cache", true)
      .accepted("runtime_preprocessors")
      .accepted("num_prefetch_threads")
      .accepted("num_workers", int64_t{0});
}

}  // namespace

void register_tasks(Registry& r) {
  r.add("seqio.dataset_providers.Task",
        {"name",
         "source",
         {"preprocessors", gin::list_of({})},
         "output_features",
         {"postprocess_fn", nullptr},
         {"metric_fns", nullptr},
         {"metric_objs", nullptr},
         {"shuffle_buffer_size", Task::kShuffleBufferSize}},
        make_task);
  register_mixtures(r);
  register_mixing_rates(r);
  register_t5_defaults(r);
  r.add_function("seqio.dataset_providers.TaskRegistry",
                 [](std::vector<gin::Value> tasks) { return tasks; },
                 {{"tasks", gin::list_of({})}});
  r.add_function("seqio.dataset_providers.MixtureRegistry",
                 [](std::vector<gin::Value> mixtures) { return mixtures; },
                 {{"mixtures", gin::list_of({})}});
  for (const char* name : {"Task", "Mixture", "TaskRegistry", "MixtureRegistry"})
    r.add_alias(std::string("seqio.") + name, std::string("seqio.dataset_providers.") + name);
  register_dataset_config(r);
}

namespace {

ProviderPtr resolve(const gin::Value& value, const TaskRegistry& registry, const Where& where) {
  if (const auto provider = value.object_as<const Provider>()) return provider;
  return registry.get(gin::as<std::string>(value, where));
}

/// Whether a mixture ends with the first of its tasks that does.
bool stops_on_empty(const MixtureSpec& spec, const gin::Config& config) {
  if (spec.sample_fn.is_none()) return true;
  const auto* function = spec.sample_fn.get_if<gin::Callable>();
  QT_CHECK(function != nullptr && function->name() == kSampleFn,
           "mixture '{}': sample_fn is {}; Python is not run: bind @{} and its "
           "stop_on_empty_dataset, or leave it out",
           spec.name, spec.sample_fn.repr(), kSampleFn);
  return config.arguments(kSampleFn).get<bool>("stop_on_empty_dataset");
}

ProviderPtr make_mixture(const MixtureSpec& spec, const TaskRegistry& registry,
                         const gin::Config& config) {
  std::vector<Mixture::Part> parts;
  for (size_t i = 0; i < spec.tasks.size(); ++i) {
    const Where where = Where{"mixture '" + spec.name + "': tasks"}.item(i);
    const Value& item = spec.tasks[i];
    if (gin::sequence(item) == nullptr) {
      parts.emplace_back(
          resolve(item, registry, where),
          rate_from(spec.default_rate, {"mixture '" + spec.name + "': default_rate"}));
    } else {
      const auto [task, rate] = gin::as<std::pair<Value, Value>>(item, where);
      parts.emplace_back(resolve(task, registry, where), rate_from(rate, where));
    }
  }
  return std::make_shared<Mixture>(spec.name, std::move(parts), stops_on_empty(spec, config));
}

}  // namespace

TaskRegistry make_task_registry(const gin::Config& config) {
  TaskRegistry registry;
  register_builtin_tasks(registry);
  registry.set_place("built in, as t5.data.tasks has it");
  register_t5_tasks(registry, config);
  registry.set_place("built in, as t5.data.mixtures has it");
  register_t5_mixtures(registry, config);
  registry.begin_configured();
  const auto add = [&](const std::string& list, const auto& add_item) {
    for (const gin::Value& item : config.call_as<std::vector<gin::Value>>("seqio." + list)) {
      if (const auto derived = item.object_as<const AddProviders>())
        (*derived)(registry);
      else
        add_item(item);
    }
  };
  add("TaskRegistry", [&](const gin::Value& task) {
    const auto made = gin::as<std::shared_ptr<const Task>>(task, {"seqio.TaskRegistry.tasks"});
    if (made != nullptr) registry.set_place(made->config().defined_at);
    registry.add(made);
  });
  add("MixtureRegistry", [&](const gin::Value& mixture) {
    const auto spec = gin::as<MixtureSpec>(mixture, {"seqio.MixtureRegistry.mixtures"});
    registry.set_place(spec.defined_at);
    registry.add(make_mixture(spec, registry, config));
  });
  return registry;
}

}  // namespace quintet::data
