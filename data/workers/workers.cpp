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
  QT_CHECK(options.format == "json" || options.format == "tf_example",
           "format: expected 'json' or 'tf_example', found '{}'", options.format);
  if (options.processes == 0)
    options.processes = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return options;
}

Json answer_in(const std::string& line) {
  const auto shown = [&] { return line.size() > 200 ? line.substr(0, 200) + "..." : line; };
  try {
    Json answer = Json::parse(line, "answer");
    if (answer.is_object()) return answer;
  } catch (const Error& error) {
    fail(ExitCode::kData, "{}: found '{}'", error.what(), shown());
  }
  fail(ExitCode::kData, "answer: expected a JSON object, found '{}'", shown());
}

/// Gives `next` an answer; returns what its "error" says, or sets the next request. Throws kData by way of the
/// process, which ends with it: what it writes after a wrong answer would be taken for the next one.
std::string take_answer(WorkerProcess& worker, const std::string& line, const Workers::Next& next,
                        std::optional<Workers::Request>& request) {
  std::string error_text;
  request.reset();
  try {
    const Json answer = answer_in(line);
    if (answer.has("error"))
      error_text = answer["error"].is_string() ? answer["error"].as_string() : line;
    else
      request = next(answer, [&](int64_t size) { return worker.read_bytes(size); });
  } catch (const Error& error) {
    if (worker.ended()) throw;
    worker.fail_with(fmt::format("gave a wrong answer: {}", error.what()));
  }
  worker.check_all_read();
  return error_text;
}

}  // namespace

Workers::Workers(WorkerOptions options) : options_(checked(std::move(options))) {}

std::unique_ptr<WorkerProcess> Workers::idle_one() const {
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

void Workers::ask(const std::string& line, const std::string& following, const Take& take) const {
  converse({line, following}, [&](const Json& answer, const ReadBytes& read) {
    take(answer, read);
    return std::optional<Request>();
  });
}

void Workers::converse(Request first, const Next& next) const {
  QT_CHECK(options_.refusal.empty(), "{}", options_.refusal);
  std::unique_ptr<WorkerProcess> worker = idle_one();
  std::string failure;
  try {
    if (worker == nullptr) worker = std::make_unique<WorkerProcess>(options_.command);
    for (std::optional<Request> request = std::move(first); request && failure.empty();) {
      const std::string line =
          worker->ask(request->line, request->following, options_.timeout_seconds);
      failure = take_answer(*worker, line, next, request);
    }
    if (!failure.empty()) failure = fmt::format("{}; {}", failure, worker->last_errors());
  } catch (...) {
    worker = nullptr;
    give_back(nullptr);
    throw;
  }
  give_back(std::move(worker));
  QT_CHECK_AS(ExitCode::kData, failure.empty(), "{}: {}", name_, failure);
}

}  // namespace quintet::data
