#include "apps/config/gin_session.h"

#include <sys/auxv.h>

#include <cstdlib>
#include <filesystem>

#include "apps/config/actions.h"
#include "apps/config/checkpoint_config.h"
#include "apps/config/decoding_config.h"
#include "apps/config/evaluation_config.h"
#include "apps/config/evaluator_config.h"
#include "apps/config/export/export_names.h"
#include "apps/config/gin_flags.h"
#include "apps/config/ineffective.h"
#include "apps/config/inference_config.h"
#include "apps/config/train_config.h"
#include "apps/huggingface/gin_text.h"
#include "data/configurables/configurables.h"
#include "models/configurables.h"
#include "models/serving/chat_template.h"
#include "runtime/configurables/configurables.h"
#include "runtime/configurables/optimizer_configurables.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigs = "share/quintet/configs";
constexpr int kFoldersAbove = 4;  // build/tests/apps/apps_test

fs::path path_of_program() {
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error)  // where /proc is not mounted
    program = fs::absolute(reinterpret_cast<const char*>(getauxval(AT_EXECFN)));
  return program;
}

/// In a folder above the program: installed, that is ../share; a build folder has a link to the source
/// tree's. Else of the package that the program was linked from.
fs::path configs_folder() {
  if (const char* folder = std::getenv("QUINTET_CONFIGS")) return folder;
  std::error_code error;
  const fs::path program = path_of_program();
  fs::path above = program.parent_path();
  for (int i = 0; i < kFoldersAbove; ++i, above = above.parent_path())
    if (const fs::path folder = above / kConfigs; fs::is_directory(folder, error)) return folder;
  return additions().configs.empty() ? program.parent_path().parent_path() / kConfigs
                                     : fs::path(additions().configs);
}

}  // namespace

std::vector<gin::ConfigRoot> config_roots() {
  const fs::path folder = configs_folder();
  return {{"t5x", folder / "t5x"},
          {"flaxformer", folder / "flaxformer"},
          {"quintet", folder / "quintet"}};
}

void register_everything(gin::Registry& registry, EntryPoints entry_points, bool allow_commands) {
  register_runtime(registry);
  register_optim(registry);
  register_models(registry);
  data::register_data(registry, allow_commands);
  register_checkpoint_configs(registry);
  register_actions(registry);
  register_decoding(registry);
  register_chat(registry);
  register_evaluator(registry);
  register_train(registry, std::move(entry_points.train));
  register_evaluation(registry, std::move(entry_points.evaluate));
  register_inference(registry, std::move(entry_points.infer));
  register_export(registry, std::move(entry_points.save));
  register_precompile(registry, std::move(entry_points.precompile));
  // Python modules that T5X's gin files import for the tasks they define; ours are built in or written in gin.
  registry.add_module("t5x.contrib.gpu.scripts_gpu.seqio_tasks");
  registry.add_module("dummy_wikipedia_seqio");
  if (additions().configurables) additions().configurables(registry);
}

Additions& additions() {
  static Additions of_program;
  return of_program;
}

GinSession::GinSession(const gin::CommandLine& command_line, EntryPoints entry_points,
                       Options options) {
  register_everything(registry_, std::move(entry_points),
                      options.allow_commands || command_line.allow_commands);
  config_ = std::make_unique<gin::Config>(
      registry_, gin::Config::Options{.search_paths = command_line.search_paths,
                                      .roots = config_roots(),
                                      .main_modules = std::move(options.main_modules),
                                      .skip_unknown = command_line.skip_unknown,
                                      .needs_all = options.needs_all,
                                      .read = read_config_file});
  if (!options.text.empty()) config_->parse_text(options.text, "draft");
  config_->load(command_line);
  print_unknown(*config_);
  if (!command_line.skip_unknown) gin::check_flags_used(*config_, read_by_program(options.macros));
  check_effects(*config_, options.trained);
}

const data::TaskRegistry& GinSession::tasks() {
  if (tasks_ == nullptr)
    tasks_ = std::make_unique<data::TaskRegistry>(data::make_task_registry(*config_));
  return *tasks_;
}

data::ProviderPtr GinSession::task(const std::string& name) { return tasks().get(name); }

data::ProviderPtr GinSession::task(const data::DatasetConfig& dataset) {
  return dataset.mixture_or_task ? dataset.mixture_or_task : task(dataset.mixture_or_task_name);
}

}  // namespace quintet
