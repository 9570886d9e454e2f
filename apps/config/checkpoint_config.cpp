#include "apps/config/checkpoint_config.h"

#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"

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

std::vector<AssignmentRule> rules_from(const gin::Value& value, const gin::Where& where) {
  std::vector<AssignmentRule> rules;
  if (value.is_none()) return rules;
  using Pairs = std::vector<std::pair<std::string, std::optional<std::string>>>;
  for (auto& [pattern, replacement] : gin::as<Pairs>(value, where))
    rules.push_back({pattern, replacement});
  return rules;
}

constexpr const char* kUpcycle = "t5x.contrib.moe.checkpoints.UpcycleCheckpointer";
constexpr const char* kCheckpointer = "t5x.checkpoints.Checkpointer";

struct Upcycling {
  int64_t num_experts = 0;
};

/// Of checkpointer classes the one that makes experts of dense MLPs changes what is read.
void take_checkpointer(RestoreCheckpointConfig& config, const gin::Value& value,
                       const gin::Where& where) {
  if (value.is_none()) return;
  const auto named = gin::as<gin::Callable>(value, where);
  if (named.name() == kCheckpointer) return;
  QT_CHECK(named.name() == kUpcycle, "{}: expected @checkpoints.Checkpointer or @{}, found @{}",
           where.text, kUpcycle, named.name());
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
                })
      .arg_with("keep", {},
                [](SaveCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
                  config.keep = gin::as<std::optional<int64_t>>(value, where);
                  QT_CHECK(!config.keep || *config.keep > 0, "{}: {} must be above 0, or None",
                           where.text, config.keep.value_or(0));
                })
      .accepted("keep_dataset_checkpoints")  // apps/config/ineffective.cpp says why
      .accepted("save_dataset", false)
      .accepted("checkpointer_cls")
      .accepted("checkpoint_manager_cls")
      .accepted("state_transformation_fns");
}

void register_restore_config(gin::Registry& registry) {
  registry.add_struct<RestoreCheckpointConfig>("t5x.utils.RestoreCheckpointConfig")
      .arg_with("path", {},
                [](RestoreCheckpointConfig& config, const gin::Value& value,
                   const gin::Where& where) { config.path = paths_from(value, where); })
      .arg_with(
          "mode", "latest",
          [](RestoreCheckpointConfig& config, const gin::Value& value, const gin::Where& where) {
            config.mode = gin::as<std::string>(value, where);
            QT_CHECK(config.mode == "latest" || config.mode == "specific" || config.mode == "all",
                     "{}: expected 'latest', 'specific' or 'all', found '{}'", where.text,
                     config.mode);
          })
      .arg_with("assignment_map", {},
                [](RestoreCheckpointConfig& config, const gin::Value& value,
                   const gin::Where& where) { config.assignment_map = rules_from(value, where); })
      .arg("strict", &RestoreCheckpointConfig::strict)
      .arg("fallback_to_scratch", &RestoreCheckpointConfig::fallback_to_scratch)
      .arg_with("checkpointer_cls", {}, take_checkpointer)
      .accepted("dtype")  // apps/config/ineffective.cpp says why
      .accepted("restore_dataset", false)
      .accepted("use_gda")
      .accepted("checkpoint_manager_cls")
      .accepted("state_transformation_fns");
}

}  // namespace

void register_checkpoint_configs(gin::Registry& registry) {
  registry.add_function(kUpcycle, [](int64_t num_experts) { return Upcycling{num_experts}; },
                        {{"num_experts"}});
  for (const char* name : {kCheckpointer, "t5x.checkpoints.OrbaxCheckpointManagerInterface"})
    registry.add(name, {}, [](const gin::Arguments& args) -> gin::Value {
      fail(ExitCode::kUsage, "{} is used as @ without ()", args.target().name);
    });
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
                });
}

}  // namespace quintet
