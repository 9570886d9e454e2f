#include "data/workers/workers.h"

#include <thread>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

WorkerOptions checked(WorkerOptions options) {
  QT_CHECK(!options.command.empty() && !options.command.front().empty(),
           "command: expected a program and its arguments, such as ['python3', 'functions.py']");
  QT_CHECK(options.processes >= 0, "processes: expected 0 or more, found {}", options.processes);
  QT_CHECK(options.timeout_seconds > 0, "timeout_seconds: expected more than 0, found {}",
           options.timeout_seconds);
  if (options.processes == 0)
    options.processes = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return options;
}

Json answer_in(const std::string& line, const std::string& who) {
  const auto shown = [&] { return line.size() > 200 ? line.substr(0, 200) + "..." : line; };
  try {
    Json answer = Json::parse(line, who + ": answer");
    if (answer.is_object()) return answer;
  } catch (const Error& error) {
    fail(ExitCode::kData, "{}: found '{}'", error.what(), shown());
  }
  fail(ExitCode::kData, "{}: answer: expected a JSON object, found '{}'", who, shown());
}

}  // namespace

Workers::Workers(WorkerOptions options) : options_(checked(std::move(options))) {}

std::unique_ptr<WorkerProcess> Workers::take() const {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return !idle_.empty() || running_ < options_.processes; });
  ++running_;
  if (idle_.empty()) return nullptr;
  std::unique_ptr<WorkerProcess> worker = std::move(idle_.back());
  idle_.pop_back();
  return worker;
}

void Workers::give_back(std::unique_ptr<WorkerProcess> worker) const {
  const std::lock_guard lock(mutex_);
  --running_;
  if (worker != nullptr) idle_.push_back(std::move(worker));
  freed_.notify_one();
}

Json Workers::ask(const std::string& request) const {
  QT_CHECK(options_.refusal.empty(), "{}", options_.refusal);
  std::unique_ptr<WorkerProcess> worker = take();
  std::string line;
  try {
    if (worker == nullptr) worker = std::make_unique<WorkerProcess>(options_.command);
    line = worker->ask(request, options_.timeout_seconds);
  } catch (...) {
    worker = nullptr;
    give_back(nullptr);
    throw;
  }
  give_back(std::move(worker));
  Json answer = answer_in(line, name_);
  if (answer.has("error"))
    fail(ExitCode::kData, "{}: {}", name_,
         answer["error"].is_string() ? answer["error"].as_string() : line);
  return answer;
}

}  // namespace quintet::data
