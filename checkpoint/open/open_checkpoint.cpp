#include "checkpoint/open/open_checkpoint.h"

#include <fmt/ranges.h>

#include "checkpoint/lora/peft.h"
#include "checkpoint/open/formats.h"
#include "checkpoint/open/recognize.h"
#include "checkpoint/region_reader.h"
#include "runtime/base/check.h"

namespace quintet {

std::filesystem::path find_checkpoint(const std::filesystem::path& path) {
  if (format_at(path) != nullptr) return path;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    const std::vector<int64_t> steps = list_checkpoints(path);
    if (!steps.empty()) return checkpoint_path(path, steps.back());
  }
  std::vector<std::string_view> names;
  for (const CheckpointFormat& format : checkpoint_formats()) names.push_back(format.name);
  fail(ExitCode::kData, "{}: this is {}; expected one of: {}, or a folder of checkpoint_<step>",
       path.string(), what_lies_at(path), fmt::join(names, ", "));
}

bool awaits_checkpoints(const std::filesystem::path& path) {
  return format_at(path) == nullptr && list_checkpoints(path).empty() &&
         is_folder_of_nothing_known(path);
}

std::shared_ptr<const CheckpointReader> open_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path found = find_checkpoint(path);
  const CheckpointFormat* format = format_at(found);
  QT_CHECK_AS(ExitCode::kData, format != nullptr,
              "{}: this is {}, expected a checkpoint; was it written completely?", found.string(),
              what_lies_at(found));
  QT_CHECK_AS(ExitCode::kData, format->open != nullptr, "{}: this is {}, which cannot be read yet",
              found.string(), format->name);
  return format->open(found);
}

std::shared_ptr<const CheckpointReader> adapted(std::shared_ptr<const CheckpointReader> base,
                                                const std::filesystem::path& adapter) {
  const std::filesystem::path folder = has_peft(adapter) ? adapter : find_checkpoint(adapter);
  if (has_peft(folder)) {
    Adapter matrices = read_peft(folder, *base);
    return with_adapter(std::move(base), std::move(matrices));
  }
  std::optional<Adapter> matrices;
  std::string state;
  int64_t step = 0;
  if (is_native(folder)) {
    const NativeCheckpointReader run(folder);
    matrices = adapter_of(run);
    state = run.state_json();
    step = run.step();
  }
  QT_CHECK_AS(ExitCode::kData, matrices.has_value(),
              "{}: this is no adapter: expected a PEFT directory, or a run of quintet finetune "
              "--lora_rank",
              folder.string());
  return with_adapter(std::move(base), std::move(*matrices), without_adapter(state), step);
}

}  // namespace quintet
