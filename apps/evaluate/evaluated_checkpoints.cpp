#include "apps/evaluate/evaluated_checkpoints.h"

#include <chrono>
#include <sstream>
#include <thread>

#include "apps/model/checkpoint_parameters.h"
#include "checkpoint/checkpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/files/folder_lock.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

void wait_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }

}  // namespace

EvaluatedCheckpoints::EvaluatedCheckpoints(const EvaluationConfig& config, const Ranks& ranks)
    : ranks_(ranks) {
  if (!config.follow) {
    for (const auto& folder : checkpoint_folders(config.restore, ranks)) folders_.push_back(folder);
    return;
  }
  QT_CHECK(config.restore.mode != "specific" && config.restore.path.size() == 1,
           "--follow: expected the directory of one run, all of whose checkpoints are evaluated; "
           "name one checkpoint without --follow");
  followed_ = config.restore.path.front();
}

void EvaluatedCheckpoints::wait_for_configuration(const std::filesystem::path& model_dir) {
  const auto waits = [&] {
    return !is_there(model_dir / "config.gin") &&
           (!is_there(model_dir) || FolderLock::is_there(model_dir) ||
            std::filesystem::is_empty(model_dir));
  };
  for (bool told = false; waits(); told = true) {
    if (!told) fmt::print(stderr, "waits for a run in {} to begin\n", model_dir.string());
    wait_a_moment();
  }
}

std::vector<std::filesystem::path> EvaluatedCheckpoints::folders() const {
  if (followed_) return {*followed_};
  return {folders_.begin(), folders_.end()};
}

bool EvaluatedCheckpoints::look() {
  std::string text;
  if (ranks_.leads()) {
    // The lock first: what the run saves before it gives that back is listed then.
    text = FolderLock::is_there(*followed_) ? "trains" : "ended";
    for (const int64_t step : list_checkpoints(*followed_)) text += fmt::format(" {}", step);
  }
  std::istringstream words(ranks_.of_leader(text));
  std::string state;
  words >> state;
  for (int64_t step = 0; words >> step;)
    if (seen_.insert(step).second) folders_.push_back(checkpoint_path(*followed_, step));
  return state == "trains";
}

std::optional<std::filesystem::path> EvaluatedCheckpoints::next(
    const std::function<bool()>& asked) {
  for (bool told = false; followed_ && !asked() && look() && folders_.empty(); told = true) {
    if (!told && ranks_.leads())
      fmt::print(stderr, "waits for a checkpoint of {}\n", followed_->string());
    wait_a_moment();
  }
  QT_CHECK_AS(ExitCode::kData, !followed_ || !seen_.empty() || asked(),
              "{}: no run trains here, and there is no checkpoint", followed_->string());
  if (folders_.empty()) return std::nullopt;
  const std::filesystem::path folder = folders_.front();
  folders_.pop_front();
  return folder;
}

}  // namespace quintet
