#include "apps/serve/job_group.h"

#include <malloc.h>

#include <nlohmann/json.hpp>

#include "apps/serve/http/log.h"
#include "apps/serve/insist.h"
#include "models/decoding/encoding.h"
#include "runtime/base/clock.h"

namespace quintet::serve {

using serving::Job;
using serving::Outcome;

std::string dumped(const JsonText& json) {
  return json.dump(-1, ' ', false, JsonText::error_handler_t::replace);
}

std::string listed(const TextModel& model, int64_t prompt_tokens, const std::string& objects) {
  std::string body =
      dumped({{"object", "list"},
              {"data", JsonText::array()},
              {"model", model.name()},
              {"usage", {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}}}});
  body.insert(body.find("[]") + 1, objects);  // the list stands where an empty one would
  return body + "\n";
}

JobGroup::JobGroup(Service& service, const HttpRequest& request, std::shared_ptr<Exchange> exchange)
    : service_(service),
      asked_(request),
      exchange_(std::move(exchange)),
      deadline_(request.arrived + std::chrono::milliseconds(static_cast<int64_t>(
                                      1000 * service.options().limits.request_seconds))) {}

void JobGroup::check_wanted() const {
  if (exchange_->gone()) throw ApiError(499, "the client has left", "", "cancelled");
  if (service_.draining()) throw ApiError(503, "shutting down", "", "shutting_down");
  if (Clock::now() > deadline_)
    throw ApiError(504, "the time of the request was over before it was read", "", "timeout");
}

double JobGroup::seconds() const { return seconds_since(asked_.arrived); }

void JobGroup::start(std::vector<Job> jobs, AnswerMemory::Held held, Finish finish) {
  const auto self = shared_from_this();
  left_ = jobs.size();
  finish_ = std::move(finish);
  held_ = std::move(held);
  try {
    ids_.reserve(jobs.size());
    results_.resize(jobs.size());
    first_seconds_.assign(jobs.size(), 0);
    for (const Job& job : jobs) prompt_tokens_.push_back(std::ssize(job.inputs));
    answer_.push_back([self] { self->answer(); });
    end_others_.push_back([self] { self->end_others(); });
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].deadline = deadline_;
      jobs[i].answer_bytes = held_ == nullptr ? 0 : *held_ / std::ssize(jobs);
      jobs[i].on_step = [self, i](const decoding::RequestDecoder& search) {
        if (self->first_seconds_[i] == 0) self->first_seconds_[i] = self->seconds();
        if (self->on_step_) self->on_step_(i, search);
      };
      jobs[i].done = [self, i](const Outcome& outcome) { self->over(i, outcome); };
      const uint64_t id = service_.engine().submit(std::move(jobs[i]));
      const std::lock_guard lock(mutex_);
      ids_.push_back(id);
    }
    end_others();  // those queued since the first error
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
  service_.answered(asked_, Service::kClientLeft, prompt_tokens_.size());
  for (uint64_t id : ids_) service_.engine().cancel(id);
}

/// What is called back holds this group: without them it ends.
void JobGroup::forget() {
  finish_ = nullptr;
  on_step_ = nullptr;
  results_ = {};
  answer_.clear();
  end_others_.clear();
  held_ = nullptr;
}

/// Called again should it throw, so that it must not. With the first error the other jobs are
/// pointless, and so is what came of those that are over.
void JobGroup::over(size_t index, const Outcome& outcome) noexcept {
  bool last = false;
  ThreadPool::Tasks next;
  {
    const std::lock_guard lock(mutex_);
    std::exception_ptr error = outcome.error;
    try {
      if (outcome.search != nullptr && error == nullptr && error_ == nullptr)
        results_[index].hypotheses = outcome.search->take_results();
      if (!outcome.encoded.empty())
        results_[index].encoded = vectors_of(outcome.encoded, prompt_tokens_[index]);
    } catch (...) {  // no memory
      error = std::current_exception();
    }
    if (error != nullptr && error_ == nullptr) {
      error_ = error;
      for (JobResult& result : results_) result = {};
      next.swap(end_others_);
    }
    last = --left_ == 0;
    if (last) next.swap(answer_);
  }
  service_.worker().post(std::move(next));
}

/// Those that are queued, if there was an error.
void JobGroup::end_others() {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) ids = ids_;
  }
  for (uint64_t id : ids) service_.engine().cancel(id);
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
    status = respond_error(std::current_exception());
  }
  forget();
  service_.answered(asked_, status, prompt_tokens_.size());
}

/// What the request holds is freed first: there may be no memory to say so.
int JobGroup::respond_error(const std::exception_ptr& thrown) {
  results_ = {};
  malloc_trim(0);  // what was freed in pieces may be wanted as a whole
  int status = 0;
  insist([&] {
    const ApiError error = as_api_error(thrown);
    status = error.status();
    if (begun_) {
      send(error.body());
      exchange_->end_stream();
    } else {
      exchange_->respond(error_response(error));
    }
  });
  return status;
}

void JobGroup::respond() {
  if (error_ != nullptr) std::rethrow_exception(error_);
  count();
  HttpResponse response = finish_(results_);
  response.held = held_;
  if (streams_)
    exchange_->end_stream();
  else
    exchange_->respond(std::move(response));
}

void JobGroup::count() const {
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

std::vector<float> JobGroup::vectors_of(std::span<const float> encoded, int64_t tokens) const {
  if (keeps_each_token_) return {encoded.begin(), encoded.end()};
  return decoding::mean_of_rows(encoded, std::ssize(encoded) / tokens);
}

}  // namespace quintet::serve
