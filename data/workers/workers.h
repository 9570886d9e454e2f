#pragma once
// The user's own functions in processes of their own: as many as threads ask at a time, at most
// `processes`.

#include <condition_variable>
#include <mutex>
#include <optional>

#include "data/workers/worker_process.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {

struct WorkerOptions {
  std::vector<std::string> command;
  int64_t processes = 0;        // 0: one for each core
  double timeout_seconds = 60;  // for an answer
  std::string format = "json";  // of examples in requests and answers: json or tf_example
  std::string refusal;          // why this command may not be run; empty: it may
};

class Workers {
 public:
  /// Starts nothing yet. Throws a usage error for a command of no words or limits that are none.
  explicit Workers(WorkerOptions options);
  using ReadBytes = std::function<std::string(int64_t)>;
  using Take = std::function<void(const Json&, const ReadBytes&)>;
  /// Sends a process a line and the bytes that follow it, and gives `take` its answer, an object, and
  /// what reads the bytes that follow that. Throws kData with the last lines of its stderr if the
  /// process dies, is late, answers with what is no JSON object or holds "error", or `take` throws;
  /// after all but "error" another is started for the next request. Throws a usage error if the
  /// command is refused. May be called from several threads.
  void ask(const std::string& line, const std::string& following, const Take& take) const;
  /// A line and the bytes that follow it.
  struct Request {
    std::string line, following;
  };
  using Next = std::function<std::optional<Request>(const Json&, const ReadBytes&)>;
  /// The same of one process for as long as `next` has another request for it.
  void converse(Request request, const Next& next) const;
  bool tf_examples() const { return options_.format == "tf_example"; }

 private:
  std::unique_ptr<WorkerProcess> idle_one() const;
  void give_back(std::unique_ptr<WorkerProcess> worker) const;

  const WorkerOptions options_;
  const std::string name_ = worker_name(options_.command);
  mutable std::mutex mutex_;
  mutable std::condition_variable freed_;
  mutable std::vector<std::unique_ptr<WorkerProcess>> idle_;
  mutable int64_t running_ = 0;  // those that are idle are not
};

}  // namespace quintet::data
