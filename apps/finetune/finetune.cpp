#include "apps/finetune/finetune.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/finetune/finetune_gin.h"
#include "apps/finetune/finetune_memory.h"
#include "apps/process/output.h"
#include "checkpoint/checkpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// The flags as comments, by which a resumed run knows its own file.
std::string header_of(const FinetuneFlags& flags) {
  std::istringstream lines(flags.given());
  std::string text = "# quintet finetune\n";
  for (std::string line; std::getline(lines, line);) text += "#   " + line + "\n";
  return text + "\n";
}

/// Metrics judge the targets themselves now: what they cannot judge would end the run at its first evaluation.
void check_metrics(const data::Provider& provider, const FinetuneSplit& validation) {
  constexpr size_t kMost = 1000;
  data::Answers targets;
  for (const auto& [target, uses] : validation.targets)
    targets.insert(targets.end(), static_cast<size_t>(uses.count), target);
  targets.resize(std::min(targets.size(), kMost));
  for (const data::Task* task : provider.tasks())
    for (const data::MetricFn& metric : task->metric_fns()) metric(targets, targets);
}

std::string new_gin(FinetuneFlags& flags, const gin::CommandLine& gin_line) {
  const FinetuneModel model = open_finetune_model(flags.model_dir, gin_line);
  if (const auto lora = flags.lora.lora()) add_adapters(*model.trained.model->model, *lora);
  gin::CommandLine draft;
  draft.search_paths = gin_line.search_paths;
  draft.bindings = gin_line.bindings;
  GinSession session(draft, {}, {.text = finetune_gin(flags, model, {})});
  const auto task = gin::as<std::string>(*session.config().query("MIXTURE_OR_TASK_NAME"),
                                         {"MIXTURE_OR_TASK_NAME"});
  const FinetuneData data = read_finetune_data(*session.task(task));
  FinetunePlan plan = finetune_plan(flags, data, model.trained.model->model->spec().emb_dim());
  if (!flags.microbatches && !mpi::launched()) {
    flags.training.compute.start();
    flags.training.compute_started = true;
    plan.microbatches =
        microbatches_that_fit(finetune_gin(flags, model, plan), draft, plan.batch_size);
  }
  if (flags.training.launch.leads()) warn_of_data(data, plan);
  const std::string text = finetune_gin(flags, model, plan);
  GinSession complete(draft, {}, {.text = text});
  check_metrics(*complete.task(task), data.validation);
  return header_of(flags) + text;
}

/// Of a run that is over: the checkpoints that it keeps, of which the best is the older one.
void tell_kept(const fs::path& folder, const ResultFormat& format) {
  const std::vector<int64_t> steps = list_checkpoints(folder);
  if (steps.empty()) return;
  const std::string best = checkpoint_path(folder, steps.front()).string();
  const std::string newest = checkpoint_path(folder, steps.back()).string();
  if (format.is_json())
    return format.print_object(nlohmann::ordered_json{{"best", best}, {"newest", newest}}.dump());
  fmt::print(stderr, "best: {}\n", best);
  if (steps.size() > 1)
    fmt::print(stderr, "newest: {}, which verbs take of {}\n", newest, folder.string());
}

}  // namespace

int run_finetuning(FinetuneFlags flags, const gin::CommandLine& gin_line,
                   const std::string& arguments) {
  flags.check();
  const bool leads = flags.training.launch.leads();
  const fs::path file = fs::path(flags.output_dir) / "finetune.gin";
  std::string text;
  if (is_there(file)) {
    text = read_file(file);
    QT_CHECK(text.starts_with(header_of(flags)),
             "{}: written by other flags, which its first lines say; name another --output_dir, or "
             "go on with 'quintet train --gin_file={}'",
             file.string(), file.string());
  } else {
    text = new_gin(flags, gin_line);
    if (leads && !flags.training.launch.dry_run) {
      make_folders(file.parent_path());
      atomic_write_file(file, text);
    }
  }
  if (leads) {
    flags.results.print_object(
        nlohmann::ordered_json{{"gin_file", file.string()}, {"gin", text}}.dump());
    flags.results.print_text(text);
  }
  flush_output();  // before what training says on stderr
  if (flags.training.launch.dry_run) return 0;
  gin::CommandLine run = gin_line;
  run.files = {file.string()};
  const int code = run_training(flags.training, run, arguments);
  if (code == 0 && leads) tell_kept(flags.output_dir, flags.results);
  return code;
}

}  // namespace quintet
