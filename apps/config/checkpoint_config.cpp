#include "apps/config/checkpoint_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/write/formats.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/nearest.h"
#include "runtime/gin/config.h"

namespace quintet {
namespace {

/// A path, or a list of them, on this machine.
std::vector<std::string> paths_from(const gin::Value& value, const gin::Where& where) {
  std::vector<std::string> paths = value.get_if<std::string>() != nullptr
                                       ? std::vector{gin::as<std::string>(value, where)}
                                       : gin::as<std::vector<std::string>>(value, where);
  for (std::string& path : paths) path = local_path(path);
  return paths;
}

constexpr const char* kAssignmentMap = "t5x.state_utils.apply_assignment_map";

std::vector<AssignmentRule> rules_from(const gin::Value& value, const gin::Where& where) {
  std::vector<AssignmentRule> rules;
  if (value.is_none()) return rules;
  using Pairs = std::vector<std::pair<std::string, std::optional<std::string>>>;
  for (auto& [pattern, replacement] : gin::as<Pairs>(value, where))
    rules.push_back({pattern, replacement});
  return rules;
}

constexpr const char* kCheckpointer = "t5x.checkpoints.Checkpointer";
constexpr const char* kSaveBestMetric = "train/accuracy";
constexpr const char* kSaveBest = "t5x.checkpoints.SaveBestCheckpointer";
constexpr const char* kManager = "t5x.checkpoints.OrbaxCheckpointManagerInterface";

/// The class of T5X's that a value names: one of `known`.
gin::Callable class_from(const gin::Value& value, const gin::Where& where,
                         const std::vector<std::string>& known) {
  auto named = gin::as<gin::Callable>(value, where);
  QT_CHECK(std::find(known.begin(), known.end(), named.name()) != known.end(),
           "{}: expected @{}, found @{}{}: Python is not run", where.text,
           fmt::join(known, " or @"), named.name(), did_you_mean(named.name(), known));
  return named;
}

void take_manager(SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
  if (!value.is_none())
    config.best = gin::as<BestCheckpoints>(class_from(value, where, {kManager})(), where);
}

void add_copies(SaveCheckpointConfig& config, const std::string& format) {
  if (std::find(config.copies.begin(), config.copies.end(), format) == config.copies.end())
    config.copies.push_back(format);
}

/// Checkpoints in T5X's format, or which of ours are kept; our own are always written.
void take_saver(SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
  if (value.is_none()) return;
  const gin::Callable named = class_from(value, where, {kCheckpointer, kSaveBest});
  if (named.name() == kCheckpointer) return add_copies(config, "t5x");
  config.best = gin::as<BestCheckpoints>(named(), where);
  if (config.best.metric.empty()) config.best.metric = kSaveBestMetric;
}

void take_copies(SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
  if (value.is_none()) return;
  std::vector<std::string> known;
  for (const WriteFormat& format : write_formats())
    if (format.name != "native") known.emplace_back(format.name);
  for (const auto& name : gin::as<std::vector<std::string>>(value, where)) {
    QT_CHECK(std::find(known.begin(), known.end(), name) != known.end(),
             "{}: expected formats of '{}', found '{}'{}", where.text, fmt::join(known, "', '"),
             name, did_you_mean(name, known));
    add_copies(config, name);
  }
}

/// Both classes; T5X's defaults differ in the metric.
void register_best(gin::Registry& registry, const std::string& name, const gin::Value& metric) {
  auto params = registry.add_struct<BestCheckpoints>(name);
  params
      .arg_with("metric_name_to_monitor", metric,
                [](BestCheckpoints& best, const gin::Value& value, const gin::Where& where) {
                  best.metric = gin::as<std::optional<std::string>>(value, where).value_or("");
                })
      .arg_with("metric_mode", "max",
                [](BestCheckpoints& best, const gin::Value& value, const gin::Where& where) {
                  best.mode = gin::as<std::string>(value, where);
                  QT_CHECK(best.mode == "max" || best.mode == "min",
                           "{}: expected 'max' or 'min', found '{}'", where.text, best.mode);
                })
      .arg("keep_checkpoints_without_metrics", &BestCheckpoints::keep_checkpoints_without_metrics)
      .arg_with("force_keep_period", {},
                [](BestCheckpoints& best, const gin::Value& value, const gin::Where& where) {
                  const auto period = gin::as<std::optional<int64_t>>(value, where);
                  QT_CHECK(!period || *period > 0, "{}: {} must be above 0, or None", where.text,
                           period.value_or(0));
                  best.force_keep_period = period.value_or(0);
                })
      // What T5X gives them itself: apps/config/ineffective.cpp.
      .accepted("keep")
      .accepted("save_dtype")
      .accepted("restore_dtype")
      .accepted("keep_dataset_checkpoints");
}

/// Functions of T5X's: one of them can be named in gin.
std::vector<AssignmentMap> transformations_from(const gin::Value& value, const gin::Where& where) {
  std::vector<AssignmentMap> transformations;
  if (value.is_none()) return transformations;
  for (const auto& function : gin::as<std::vector<gin::Callable>>(value, where)) {
    QT_CHECK(function.name() == kAssignmentMap,
             "{}: expected @state_utils.apply_assignment_map, found @{}: Python is not run",
             where.text, function.name());
    transformations.push_back(gin::as<AssignmentMap>(function(), where));
  }
  return transformations;
}

std::optional<DType> dtype_from(const gin::Value& value, const gin::Where& where) {
  if (value.is_none()) return std::nullopt;
  const auto name = gin::as<std::string>(value, where);
  QT_CHECK(name == "float32" || name == "bfloat16" || name == "float16",
           "{}: expected 'float32', 'bfloat16', 'float16' or None, found '{}'", where.text, name);
  return dtype_from_name(name);
}

constexpr const char* kUpcycle = "t5x.contrib.moe.checkpoints.UpcycleCheckpointer";

struct Upcycling {
  int64_t num_experts = 0;
};

/// Of checkpointer classes the one that makes experts of dense MLPs changes what is read.
void take_checkpointer(RestoreCheckpointConfig& config, const gin::Value& value,
                       const gin::Where& where) {
  if (value.is_none()) return;
  const gin::Callable named = class_from(value, where, {kCheckpointer, kUpcycle});
  if (named.name() == kCheckpointer) return;
  config.upcycled_experts = gin::as<Upcycling>(named(), where).num_experts;
  QT_CHECK(config.upcycled_experts > 0, "{}.num_experts: expected 1 or more, found {}", kUpcycle,
           config.upcycled_experts);
}

void register_save_config(gin::Registry& registry) {
  registry.add_struct<SaveCheckpointConfig>("t5x.utils.SaveCheckpointConfig")
      .arg_with(
          "dtype", "float32",
          [](SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
            config.dtype = gin::as<std::optional<std::string>>(value, where).value_or("float32");
            QT_CHECK(config.dtype == "float32" || config.dtype == "bfloat16",
                     "{}: expected 'float32' or 'bfloat16', found '{}'", where.text, config.dtype);
          })
      .arg_with("period", {},
                [](SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
                  config.period = gin::as<std::optional<int64_t>>(value, where);
                  QT_CHECK(!config.period || *config.period > 0, "{}: {} must be above 0, or None",
                           where.text, config.period.value_or(0));
                })
      .arg_with("checkpoint_steps", {},
                [](SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
                  if (!value.is_none())
                    config.checkpoint_steps = gin::as<std::vector<int64_t>>(value, where);
                  for (const int64_t step : config.checkpoint_steps)
                    QT_CHECK(step >= 0, "{}: there is no step {}", where.text, step);
                })
      .arg_with("keep", {},
                [](SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
                  config.keep = gin::as<std::optional<int64_t>>(value, where);
                  QT_CHECK(!config.keep || *config.keep > 0, "{}: {} must be above 0, or None",
                           where.text, config.keep.value_or(0));
                })
      // SaveBestCheckpointer's word counts if both are named.
      .arg_with("checkpoint_manager_cls", {}, take_manager)
      .arg_with("checkpointer_cls", {}, take_saver)
      .arg_with("copies", {}, take_copies)
      .accepted("keep_dataset_checkpoints")  // apps/config/ineffective.cpp says why
      .accepted("save_dataset", false)
      .accepted("state_transformation_fns");
}

void register_restore_config(gin::Registry& registry) {
  registry.add_struct<RestoreCheckpointConfig>("t5x.utils.RestoreCheckpointConfig")
      .arg_with(
          "path", {},
          [](RestoreCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
            config.path = paths_from(value, where);
            config.has_path = true;
          })
      .arg_with(
          "mode", "latest",
          [](RestoreCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
            config.mode = gin::as<std::string>(value, where);
            QT_CHECK(config.mode == "latest" || config.mode == "specific" || config.mode == "all",
                     "{}: expected 'latest', 'specific' or 'all', found '{}'", where.text,
                     config.mode);
          })
      .arg_with(
          "assignment_map", {},
          [](RestoreCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
            if (!value.is_none())
              config.transformations.push_back({where.text, rules_from(value, where)});
          })
      .arg_with(
          "state_transformation_fns", gin::Value(gin::Tuple{}),
          [](RestoreCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
            for (AssignmentMap& map : transformations_from(value, where))
              config.transformations.push_back(std::move(map));
          })
      .arg("strict", &RestoreCheckpointConfig::strict)
      .arg("fallback_to_scratch", &RestoreCheckpointConfig::fallback_to_scratch)
      .arg_with("checkpointer_cls", {}, take_checkpointer)
      .arg_with("dtype", {},
                [](RestoreCheckpointConfig& config, const gin::Value& value,
                   const gin::Where& where) { config.dtype = dtype_from(value, where); })
      .arg("restore_dataset", &RestoreCheckpointConfig::restore_dataset)
      .accepted("use_gda")  // apps/config/ineffective.cpp says why
      .accepted("checkpoint_manager_cls");
}

}  // namespace

void check_fallback(const RestoreCheckpointConfig& config) {
  QT_CHECK(!config.fallback_to_scratch || !config.transformations.empty(),
           "utils.RestoreCheckpointConfig.fallback_to_scratch: wants an assignment_map (or "
           "state_transformation_fns) that says which arrays are not read");
}

RestoreCheckpointConfig restore_config_from(const gin::Arguments& args) {
  auto config = args.get<RestoreCheckpointConfig>("restore_checkpoint_cfg");
  QT_CHECK(!config.path.empty(),
           "{}: utils.RestoreCheckpointConfig.path: expected a checkpoint or a folder of them, "
           "found none",
           args.where("restore_checkpoint_cfg").text);
  check_fallback(config);
  if (!config.fallback_to_scratch) return config;
  config.fallback_seed = args.get<std::optional<int64_t>>("fallback_init_rng");
  QT_CHECK(config.fallback_seed,
           "{}.fallback_init_rng: fallback_to_scratch wants a number, from which arrays that the "
           "checkpoint lacks are initialised",
           args.target().name);
  return config;
}

void apply_manager_bindings(SaveCheckpointConfig& config, const gin::Config& bound) {
  if (config.best.metric.empty() && config.best.force_keep_period == 0)
    config.best = bound.call_as<BestCheckpoints>(kManager);
}

void register_checkpoint_configs(gin::Registry& registry) {
  registry.add_function(kUpcycle, [](int64_t num_experts) { return Upcycling{num_experts}; },
                        {{"num_experts"}});
  registry.add(kCheckpointer, {}, [](const gin::Arguments& args) -> gin::Value {
    fail(ExitCode::kUsage, "{} is used as @ without ()", args.target().name);
  });
  register_best(registry, kSaveBest, kSaveBestMetric);
  register_best(registry, kManager, {});
  registry.add_struct<AssignmentMap>(kAssignmentMap)
      .arg_with("assignment_map", {},
                [](AssignmentMap& map, const gin::Value& value, const gin::Where& where) {
                  map.where = where.text;
                  map.rules = rules_from(value, where);
                })
      .arg("require_all_rules_match", &AssignmentMap::require_all_rules_match);
  register_save_config(registry);
  register_restore_config(registry);
  registry.add_struct<CheckpointConfig>("t5x.utils.CheckpointConfig")
      .arg_with("save", {},
                [](CheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
                  config.save = gin::as<std::optional<SaveCheckpointConfig>>(value, where);
                })
      .arg_with("restore", {},
                [](CheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
                  config.restore = gin::as<std::optional<RestoreCheckpointConfig>>(value, where);
                  QT_CHECK(!config.restore || config.restore->has_path,
                           "{}: utils.RestoreCheckpointConfig.path is required; [] starts from "
                           "scratch",
                           where.text);
                });
}

}  // namespace quintet
