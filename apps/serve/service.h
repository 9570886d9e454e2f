#pragma once
// The server's insides, without sockets: requests to jobs of the engine, their results to answers.
//
//   Service service(model, serving::cpu_network(packed, options.engine), options);
//   HttpServer server(options, [&](auto request, auto exchange) { service.handle(...); });
//   service.run();

#include <ctime>
#include <nlohmann/json_fwd.hpp>

#include "apps/serve/answer_memory.h"
#include "apps/serve/api/api_keys.h"
#include "apps/serve/api/completion_request.h"
#include "apps/serve/http/host_names.h"
#include "apps/serve/http/http_server.h"
#include "apps/serve/http/log.h"
#include "apps/serve/metrics.h"
#include "models/serving/engine.h"
#include "runtime/base/thread_pool.h"

namespace quintet::serve {

struct ServiceOptions {
  ServeLimits limits;
  serving::EngineOptions engine;
  int64_t answer_bytes = int64_t{512} << 20;  // of all answers at a time
  ApiKeys keys;
  HostNames hosts;
  bool log_requests = true, log_prompts = false;
};

/// What the log and the metrics say of a request: nothing of its body.
struct Asked {
  explicit Asked(const HttpRequest& request)
      : method(request.method),
        target(request.target),
        client(request.client),
        arrived(request.arrived) {}
  std::string method, target, client;
  std::chrono::steady_clock::time_point arrived;
};

class Service {
 public:
  /// The model must outlive the service.
  Service(const TextModel& model, std::unique_ptr<serving::ServedNetwork> network,
          ServiceOptions options, std::unique_ptr<serving::Drafter> drafter = nullptr);
  /// Requests that name `other`'s model are answered by it, and counted here; it has an engine of its own with this one's
  /// signal, and must outlive what this one is asked.
  void add(Service& other);

  /// Its engine and those of the others on this thread, whose team and device compute; until all are drained or aborted,
  /// or one is broken.
  void run();

  /// Answers a request, now or later. Called in the sockets' thread.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  /// Answers a POST in the thread that reads requests. Throws ApiError 404 for any other target, and
  /// 503 while the server ends.
  void dispatch(HttpRequest request, const Client& client, std::shared_ptr<Exchange> exchange);
  serving::Engine& engine() { return engine_; }
  bool draining() const { return draining_; }
  /// Of its engine or one of those added.
  bool broken() const;
  /// No more jobs are taken, by those added neither, and /ready says so.
  void drain();
  /// Ends all jobs.
  void abort();
  void set_connections(std::function<int64_t()> connections) {
    connections_ = std::move(connections);
  }

  // For those that answer:
  const TextModel& model() const { return model_; }
  const ServiceOptions& options() const { return options_; }
  ServerMetrics& metrics() { return *metrics_; }
  ThreadPool& worker() { return worker_; }
  AnswerMemory& answer_memory() { return answer_memory_; }
  /// Responds with what needs no work.
  void answer(const HttpRequest& request, Exchange& exchange, HttpResponse response);
  static constexpr int kClientLeft = 499;  // a status for the log
  /// Counts a request that is over, and writes its line to the log; `prompts`: 0 if it has none.
  void answered(const Asked& asked, int status, size_t prompts = 0);
  /// Ids of a prompt; throws ApiError 400 for one that is too long.
  std::vector<int32_t> encode(const Text& prompt, const std::string& field) const;
  /// A search over these inputs, with the positions this kind of model counts.
  serving::Job job(std::vector<int32_t> ids, const Client& client, int priority) const;

 private:
  /// Throws ApiError 403 for a page of another site, or one that may be.
  void check_host(const HttpRequest& request) const;
  void route(HttpRequest request, const Client& client, std::shared_ptr<Exchange> exchange);
  /// Nothing: there is no such address.
  std::optional<HttpResponse> get(const std::string& target) const;
  HttpResponse ready() const;
  serving::EngineState state() const;  // of all engines together
  HttpResponse models(const std::string& target) const;
  nlohmann::ordered_json model_json() const;
  /// This service, or the one added whose model a request names. Throws ApiError 404 for another name.
  Service& named_in(const HttpRequest& request);

  const TextModel& model_;
  const std::time_t started_ = std::time(nullptr);
  const ServiceOptions options_;
  serving::Engine engine_;
  AnswerMemory answer_memory_;
  std::shared_ptr<ServerMetrics> metrics_ = std::make_shared<ServerMetrics>();
  std::vector<Service*> others_;  // by their models' names
  std::function<int64_t()> connections_ = [] { return 0; };
  std::atomic<bool> draining_ = false;
  // A thread each for reading requests and for writing answers: as JSON that takes milliseconds,
  // which neither the sockets nor the batch should wait for. What is read waits for nobody's answer,
  // and no answer for what is read: a body may take a while. The last members: they end before what
  // their tasks use.
  ThreadPool worker_{"to answer requests", 1, {.failed = log_failure}};
  ThreadPool reader_{"to answer requests", 1, {.failed = log_failure}};
};

HttpResponse error_response(const ApiError& error);

// One for each target of POST; they throw ApiError before anything is queued.
using Answer = void(Service& service, const HttpRequest& request, const Client& client,
                    std::shared_ptr<Exchange> exchange);
Answer answer_completion, answer_chat, answer_score, answer_embeddings, answer_batch,
    answer_tokenize, answer_detokenize;

}  // namespace quintet::serve
