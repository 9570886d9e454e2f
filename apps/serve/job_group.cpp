#include "apps/serve/job_group.h"

#include <nlohmann/json.hpp>

#include "apps/serve/log.h"

namespace quintet::serve {

using serving::Clock;
using serving::Job;
using serving::Outcome;

std::string dumped(const JsonText& json) {
  return json.dump(-1, ' ', false, JsonText::error_handler_t::replace);
}

JobGroup::JobGroup(Service& service, std::string endpoint, std::shared_ptr<Exchange> exchange)
    : service_(service), endpoint_(std::move(endpoint)), exchange_(std::move(exchange)) {}

double JobGroup::seconds() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

void JobGroup::start(std::vector<Job> jobs, Finish finish) {
  finish_ = std::move(finish);
  left_ = jobs.size();
  results_.resize(jobs.size());
  first_seconds_.assign(jobs.size(), 0);
  for (const Job& job : jobs) prompt_tokens_.push_back(std::ssize(job.inputs));
  const auto self = shared_from_this();
  const auto deadline = began_ + std::chrono::milliseconds(static_cast<int64_t>(
                                     1000 * service_.options().limits.request_seconds));
  try {
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].deadline = deadline;
      jobs[i].on_step = [self, i](const decoding::Generation& search) {
        if (self->first_seconds_[i] == 0) self->first_seconds_[i] = self->seconds();
        if (self->on_step_) self->on_step_(i, search);
      };
      jobs[i].done = [self, i](const Outcome& outcome) { self->over(i, outcome); };
      ids_.push_back(service_.engine().submit(std::move(jobs[i])));
    }
  } catch (...) {  // the caller answers
    bool none = false;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      left_ -= jobs.size() - ids_.size();
      none = left_ == 0;
    }
    for (uint64_t id : ids_) service_.engine().cancel(id);
    if (none) forget();
    throw;
  }
  exchange_->on_gone([self] { self->cancel(); });
}

/// The client has left: nobody waits for what is still computed.
void JobGroup::cancel() {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || left_ == 0) return;
    gone_ = true;
  }
  service_.metrics().cancelled();
  for (uint64_t id : ids_) service_.engine().cancel(id);
}

/// What is called back holds this group: without them it ends.
void JobGroup::forget() {
  finish_ = nullptr;
  on_step_ = nullptr;
}

void JobGroup::over(size_t index, const Outcome& outcome) {
  {
    const std::lock_guard lock(mutex_);
    JobResult& result = results_[index];
    if (outcome.search != nullptr) result.hypotheses = outcome.search->results();
    result.encoded.assign(outcome.encoded.begin(), outcome.encoded.end());
    if (outcome.error != nullptr && error_ == nullptr) error_ = outcome.error;
    if (--left_ > 0) return;
  }
  service_.worker().post([self = shared_from_this()] { self->answer(); });
}

void JobGroup::send(const std::string& data) {
  std::call_once(begun_once_, [this] {
    begun_ = true;
    exchange_->begin_stream("text/event-stream");
  });
  exchange_->send("data: " + data + "\n\n");
}

void JobGroup::answer() {
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return forget();
  }
  int status = 200;
  try {
    respond();
  } catch (...) {
    const ApiError error = as_api_error(std::current_exception());
    status = error.status();
    if (begun_) {
      send(error.body());
      exchange_->end_stream();
    } else {
      exchange_->respond(error_response(error));
    }
  }
  forget();
  service_.metrics().answered(endpoint_, status, seconds());
  // Nothing of what was asked or answered: error messages quote it.
  log_line("{} {} {:.0f} ms, {} prompts\n", endpoint_, status, 1000 * seconds(), results_.size());
}

void JobGroup::respond() {
  if (error_ != nullptr) std::rethrow_exception(error_);
  HttpResponse response = finish_(results_);
  if (streams_)
    exchange_->end_stream();
  else
    exchange_->respond(std::move(response));
  for (size_t i = 0; i < results_.size(); ++i) {
    size_t longest = 0, all = 0;
    for (const auto& one : results_[i].hypotheses) {
      longest = std::max(longest, one.tokens.size());
      all += one.tokens.size();
    }
    const double rest = seconds() - first_seconds_[i];
    service_.metrics().generated(prompt_tokens_[i], static_cast<int64_t>(all), first_seconds_[i],
                                 longest > 1 ? rest / static_cast<double>(longest - 1) : 0);
  }
}

}  // namespace quintet::serve
