#pragma once
// The jobs of one request: queued together, cancelled together when the client leaves, answered
// together.

#include <nlohmann/json_fwd.hpp>

#include "apps/serve/service.h"
#include "runtime/base/clock.h"

namespace quintet::serve {

using JsonText = nlohmann::ordered_json;

/// Without a byte that is not UTF-8.
std::string dumped(const JsonText& json);

/// OpenAI's answer with a list of objects, given as their JSON: what the model made of so many tokens.
std::string listed(const TextModel& model, int64_t prompt_tokens, const std::string& objects);

/// What is left of a job that is over.
struct JobResult {
  std::vector<decoding::Hypothesis> hypotheses;
  std::vector<float> encoded;  // the mean over the inputs, or [tokens, embed]
};

class JobGroup : public std::enable_shared_from_this<JobGroup> {
 public:
  /// `finish` makes the answer of all results, in the worker's thread; it may use them up.
  using Finish = std::function<HttpResponse(std::vector<JobResult>&)>;
  /// Its time began when the request had come.
  JobGroup(Service& service, const HttpRequest& request, std::shared_ptr<Exchange> exchange);

  /// For what reads the request: throws ApiError once there is no use in it, since the client has
  /// left (499), its time is over (504) or the server ends (503).
  void check_wanted() const;
  std::function<void()> stop_check() const {
    return [self = shared_from_this()] { self->check_wanted(); };
  }
  /// Queues all jobs or none; throws what Engine::submit throws. `held` is kept until the answer is
  /// written.
  void start(std::vector<serving::Job> jobs, AnswerMemory::Held held, Finish finish);
  /// Answers in pieces, for which `on_step` is called after each step of job i with i and its
  /// search. An error after the first piece becomes the last one.
  void stream(std::function<void(size_t, const decoding::RequestDecoder&)> on_step) {
    on_step_ = std::move(on_step);
    streams_ = true;
  }
  /// Of jobs without a search a vector for each token is kept, not their mean.
  void keep_each_token() { keeps_each_token_ = true; }
  /// One server-sent event of a stream.
  void send(const std::string& data);
  double seconds() const;

 private:
  void over(size_t index, const serving::Outcome& outcome) noexcept;
  void end_others();
  void answer();
  void respond();
  int respond_error(const std::exception_ptr& thrown);
  void count() const;
  std::vector<float> vectors_of(std::span<const float> encoded, int64_t tokens) const;
  void cancel();
  void forget();

  Service& service_;
  const Asked asked_;
  const std::shared_ptr<Exchange> exchange_;
  const Clock::time_point deadline_;
  std::function<void(size_t, const decoding::RequestDecoder&)> on_step_;
  Finish finish_;
  AnswerMemory::Held held_;
  ThreadPool::Tasks answer_, end_others_;  // made before the work begins
  bool streams_ = false, keeps_each_token_ = false;
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
