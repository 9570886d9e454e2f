#pragma once
// The jobs of one request: queued together, cancelled together when the client leaves, answered
// together.

#include <nlohmann/json_fwd.hpp>

#include "apps/serve/service.h"

namespace quintet::serve {

using JsonText = nlohmann::ordered_json;

/// Without a byte that is not UTF-8.
std::string dumped(const JsonText& json);

/// What is left of a job that is over.
struct JobResult {
  std::vector<decoding::Hypothesis> hypotheses;
  std::vector<float> encoded;
};

class JobGroup : public std::enable_shared_from_this<JobGroup> {
 public:
  /// `finish` makes the answer of all results, in the worker's thread.
  using Finish = std::function<HttpResponse(const std::vector<JobResult>&)>;
  JobGroup(Service& service, std::string endpoint, std::shared_ptr<Exchange> exchange);

  /// Queues all jobs or none; throws what Engine::submit throws.
  void start(std::vector<serving::Job> jobs, Finish finish);
  /// Answers in pieces, for which `on_step` is called after each step of job i with i and its
  /// search. An error after the first piece becomes the last one.
  void stream(std::function<void(size_t, const decoding::Generation&)> on_step) {
    on_step_ = std::move(on_step);
    streams_ = true;
  }
  /// One server-sent event of a stream.
  void send(const std::string& data);
  double seconds() const;

 private:
  void over(size_t index, const serving::Outcome& outcome);
  void answer();
  void respond();
  void cancel();
  void forget();

  Service& service_;
  const std::string endpoint_;
  const std::shared_ptr<Exchange> exchange_;
  const serving::Clock::time_point began_ = serving::Clock::now();
  std::function<void(size_t, const decoding::Generation&)> on_step_;
  Finish finish_;
  bool streams_ = false;
  std::once_flag begun_once_;
  std::atomic<bool> begun_ = false;
  std::vector<uint64_t> ids_;
  std::vector<int64_t> prompt_tokens_;
  std::vector<double> first_seconds_;  // until the first token of each job
  std::mutex mutex_;
  std::vector<JobResult> results_;
  std::exception_ptr error_;
  size_t left_ = 0;
  bool gone_ = false;
};

}  // namespace quintet::serve
