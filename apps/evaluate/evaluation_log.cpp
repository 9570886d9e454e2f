#include "apps/evaluate/evaluation_log.h"

#include <algorithm>
#include <sstream>

#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

/// The number a path ends with; paths without one come first.
int64_t step_of(const std::string& path) {
  const size_t digits = path.find_last_not_of("0123456789") + 1;
  const bool some = digits < path.size() && path.size() - digits < 19;
  return some ? std::stoll(path.substr(digits)) : -1;
}

}  // namespace

EvaluationLog::EvaluationLog(const std::filesystem::path& output_dir, std::string task) {
  if (output_dir.empty()) return;
  std::replace(task.begin(), task.end(), '/', '_');
  file_ = output_dir / ("eval." + task + ".ckpt");
  if (!std::filesystem::exists(file_)) return;
  std::istringstream paths(read_file(file_));
  for (std::string path; paths >> path;) done_.push_back(path);
}

bool EvaluationLog::has(const std::filesystem::path& checkpoint) const {
  return std::find(done_.begin(), done_.end(), checkpoint.string()) != done_.end();
}

void EvaluationLog::add(const std::filesystem::path& checkpoint) {
  if (file_.empty() || has(checkpoint)) return;
  done_.push_back(checkpoint.string());
  std::stable_sort(done_.begin(), done_.end(), [](const std::string& a, const std::string& b) {
    return step_of(a) < step_of(b);
  });
  std::string text;
  for (const std::string& path : done_) text += path + "\n";
  atomic_write_file(file_, text);
}

}  // namespace quintet
