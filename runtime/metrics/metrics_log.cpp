#include "runtime/metrics/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

/// Length of the whole lines within the first `bytes` of a file.
int64_t whole_lines(int descriptor, int64_t bytes, const std::filesystem::path& file) {
  while (bytes > 0) {
    char last = 0;
    const ssize_t got = pread(descriptor, &last, 1, bytes - 1);
    if (got < 0) fail_disk(file, "read", errno);
    if (got == 1 && last == '\n') break;
    --bytes;
  }
  return bytes;
}

/// Calls `take` with each whole line until it gives false or a line is not valid; the bytes before that one.
int64_t for_lines(const std::filesystem::path& file, const std::function<bool(const Json&)>& take) {
  if (!std::filesystem::exists(file)) return 0;
  const std::string text = read_file(file);
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    try {
      if (!take(Json::parse(std::string_view(text).substr(at, end - at), file.string()))) break;
    } catch (const Error&) {
      break;
    }
  }
  return static_cast<int64_t>(at);
}

/// The finite numbers of a line, by "<run>/<name>".
std::map<std::string, double> numbers_of(const Json& line) {
  std::map<std::string, double> found;
  const std::string run = line.has("run") ? line["run"].as_string() + "/" : "";
  for (const auto& [name, value] : line.raw().items())
    if (name != "step" && value.is_number()) found[run + name] = value.get<double>();
  return found;
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path file, int64_t keep_bytes) : file_(std::move(file)) {
  if (file_.has_parent_path()) make_folders(file_.parent_path());
  descriptor_ = open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_disk(file_, "open", errno);
  const off_t size = lseek(descriptor_, 0, SEEK_END);
  if (size < 0) fail_disk(file_, "read", errno);
  written_ = whole_lines(descriptor_, std::min<int64_t>(size, keep_bytes), file_);
  if (written_ < size && ftruncate(descriptor_, written_) != 0) fail_disk(file_, "cut", errno);
}

MetricsLog::~MetricsLog() {
  try {
    close();
  } catch (const Error&) {  // NOLINT: destructors must not throw; close() before reports it
  }
}

void MetricsLog::write(std::string_view run, int64_t step,
                       const std::map<std::string, double>& scalars) {
  nlohmann::ordered_json line;
  line["step"] = step;
  if (!run.empty()) line["run"] = run;
  for (const auto& [name, value] : scalars) line[name] = json_number(value);
  pending_ += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void MetricsLog::flush() {
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t put = pwrite(descriptor_, pending_.data() + done, pending_.size() - done,
                               written_ + static_cast<int64_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_disk(file_, "write", errno, static_cast<int64_t>(pending_.size()));
    done += static_cast<size_t>(put);
  }
  written_ += static_cast<int64_t>(done);
  pending_.clear();
}

void MetricsLog::close() {
  if (descriptor_ < 0) return;
  flush();
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_disk(file_, "close", errno);
}

int64_t MetricsLog::bytes_before_step(const std::filesystem::path& file, int64_t step) {
  return for_lines(file, [&](const Json& line) { return line["step"].as_int() < step; });
}

std::map<int64_t, double> MetricsLog::values(const std::filesystem::path& file,
                                             std::string_view metric) {
  std::map<int64_t, double> found;
  for_lines(file, [&](const Json& line) {
    for (const auto& [name, value] : numbers_of(line))
      if (name == metric) found[line["step"].as_int()] = value;
    return true;
  });
  return found;
}

std::map<std::string, std::map<std::string, double>> MetricsLog::last_lines(
    const std::filesystem::path& file) {
  std::map<std::string, std::map<std::string, double>> found;
  for_lines(file, [&](const Json& line) {
    auto& numbers = found[line.has("run") ? line["run"].as_string() : ""];
    numbers.clear();
    for (const auto& [name, value] : line.raw().items())
      if (value.is_number()) numbers[name] = value.get<double>();
    return true;
  });
  return found;
}

std::set<std::string> MetricsLog::metrics(const std::filesystem::path& file) {
  std::set<std::string> found;
  for_lines(file, [&](const Json& line) {
    for (const auto& [name, value] : numbers_of(line)) found.insert(name);
    return true;
  });
  return found;
}

}  // namespace quintet
