#include "apps/finetune/finetune.h"

#include <filesystem>
#include <sstream>

#include "apps/finetune/finetune_gin.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

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

std::string new_gin(const FinetuneFlags& flags, const gin::CommandLine& gin_line) {
  const FinetuneModel model = open_finetune_model(flags.model_dir, gin_line);
  gin::CommandLine draft;
  draft.search_paths = gin_line.search_paths;
  draft.bindings = gin_line.bindings;
  GinSession session(draft, {}, {.text = finetune_gin(flags, model, {})});
  const gin::Value name = *session.config().query("MIXTURE_OR_TASK_NAME");
  const FinetuneData data =
      read_finetune_data(*session.task(gin::as<std::string>(name, {"MIXTURE_OR_TASK_NAME"})));
  const FinetunePlan plan = finetune_plan(flags, data);
  if (flags.training.launch.leads()) warn_of_data(data, plan);
  return header_of(flags) + finetune_gin(flags, model, plan);
}

}  // namespace

int run_finetuning(const FinetuneFlags& flags, const gin::CommandLine& gin_line,
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
      fs::create_directories(file.parent_path());
      atomic_write_file(file, text);
    }
  }
  if (leads) fmt::print("{}", text);
  std::fflush(stdout);  // before what training says on stderr
  if (flags.training.launch.dry_run) return 0;
  gin::CommandLine run = gin_line;
  run.files = {file.string()};
  return run_training(flags.training, run, arguments);
}

}  // namespace quintet
