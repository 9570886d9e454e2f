// `quintet serve --pipe`: the requests of one program, which started this one, without a port. It is what libquintet.so
// (apps/library) talks to.
//
//   to us     {request 7}          "/v1/completions\n" and a body as over HTTP; {request 7, status -1}: it is not wanted
//   from us   {request 0}          once, when requests may come: {"version": .., "model": .., ..}
//             {request 7, status 0}     a piece of a stream;   {request 7, status 200}: the whole answer, or its end

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/process/version.h"
#include "apps/serve/job_group.h"
#include "apps/serve/server.h"
#include "runtime/base/process/frames.h"
#include "runtime/base/thread.h"

namespace quintet::serve {
namespace {

/// The way back, of all threads.
class Answers {
 public:
  void write(uint64_t request, int32_t status, std::string_view body) {
    const std::lock_guard lock(mutex_);
    open_ = open_ && write_frame(STDOUT_FILENO, {.request = request, .status = status}, {body});
  }

 private:
  std::mutex mutex_;
  bool open_ = true;
};

class PipeExchange final : public Exchange {
 public:
  PipeExchange(std::shared_ptr<Answers> answers, uint64_t request)
      : answers_(std::move(answers)), request_(request) {}

  void respond(HttpResponse response) override { end(response.status, response.body); }
  void begin_stream(std::string) override {}
  void send(std::string piece) override { answers_->write(request_, 0, piece); }
  void end_stream() override { end(200, ""); }
  void on_gone(std::function<void()> gone) override {
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      if (!gone_) return void(on_gone_ = std::move(gone));
    }
    gone();
  }
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void leave() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      call.swap(on_gone_);
    }
    if (call) call();
  }

 private:
  /// What is called back holds the request's jobs, and these hold this: nobody leaves any more.
  void end(int32_t status, std::string_view body) {
    std::function<void()> forgotten;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      forgotten.swap(on_gone_);
    }
    answers_->write(request_, status, body);
  }

  const std::shared_ptr<Answers> answers_;
  const uint64_t request_;
  mutable std::mutex mutex_;
  std::function<void()> on_gone_;
  bool gone_ = false, over_ = false;
};

void dispatch_frame(Service& service, std::string frame,
                    const std::shared_ptr<PipeExchange>& exchange) {
  const size_t line = std::min(frame.find('\n'), frame.size());
  HttpRequest request;
  request.method = "POST";
  request.target = frame.substr(0, line);
  request.body = frame.substr(std::min(line + 1, frame.size()));
  try {
    service.dispatch(std::move(request), Client{}, exchange);
  } catch (...) {
    exchange->respond(error_response(as_api_error(std::current_exception())));
  }
}

void read_requests(Service& service, const std::shared_ptr<Answers>& answers) {
  std::map<uint64_t, std::weak_ptr<PipeExchange>> open;
  for (FrameHead head; read_head(STDIN_FILENO, head);) {
    std::string frame(head.bytes, '\0');
    read_body(STDIN_FILENO, frame.data(), frame.size());
    std::erase_if(open, [](const auto& entry) { return entry.second.expired(); });
    if (head.status == 0) {
      const auto exchange = std::make_shared<PipeExchange>(answers, head.request);
      open[head.request] = exchange;
      dispatch_frame(service, std::move(frame), exchange);
    } else if (const auto left = open.find(head.request); left != open.end()) {
      if (const auto exchange = left->second.lock()) exchange->leave();
    }
  }
}

std::string greeting(const TextModel& model) {
  const ModelSpec& spec = model.configured().model->spec();
  return dumped({{"version", kVersion},
                 {"model", model.name()},
                 {"model_dir", model.trained().model_dir.string()},
                 {"step", model.trained().step},
                 {"vocab_size", spec.vocab_size},
                 {"emb_dim", spec.emb_dim()}});
}

}  // namespace

void serve_pipe(Service& service) {
  const auto answers = std::make_shared<Answers>();
  answers->write(0, 0, greeting(service.model()));
  std::thread requests = start_thread("for requests", [&] {
    try {
      read_requests(service, answers);
    } catch (const std::exception& error) {
      log_failure(error);
    }
    service.drain();
    service.abort();
  });
  service.run();
  const bool broken = service.broken();
  if (broken) ::shutdown(STDIN_FILENO, SHUT_RD);  // no more of them
  requests.join();
  QT_CHECK_AS(ExitCode::kEnvironment, !broken,
              "the device fails again and again; load the model anew");
}

}  // namespace quintet::serve
