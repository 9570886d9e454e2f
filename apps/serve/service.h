#pragma once
// The server's insides, without sockets: requests to jobs of the engine, their results to answers.
//
//   Service service(model, serving::cpu_network(packed, options.engine), options);
//   HttpServer server(options, [&](auto request, auto exchange) { service.handle(...); });
//   service.engine().run();

#include "apps/serve/api_keys.h"
#include "apps/serve/completion_request.h"
#include "apps/serve/http_server.h"
#include "apps/serve/metrics.h"
#include "apps/serve/worker.h"
#include "models/serving/engine.h"

namespace quintet::serve {

struct ServiceOptions {
  ServeLimits limits;
  serving::EngineOptions engine;
  ApiKeys keys;
  bool log_prompts = false;
};

class Service {
 public:
  /// The model must outlive the service.
  Service(const TextModel& model, std::unique_ptr<serving::ServedNetwork> network,
          ServiceOptions options);

  /// Answers a request, now or later. Called in the sockets' thread.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  serving::Engine& engine() { return engine_; }
  /// No more jobs are taken, and /ready says so.
  void drain();
  void set_connections(std::function<int64_t()> connections) {
    connections_ = std::move(connections);
  }

  // For those that answer:
  const TextModel& model() const { return model_; }
  const ServiceOptions& options() const { return options_; }
  Metrics& metrics() { return metrics_; }
  Worker& worker() { return worker_; }
  /// Ids of a prompt; throws ApiError 400 for one that is too long.
  std::vector<int32_t> encode(const Text& prompt, const std::string& field) const;
  /// A search over these inputs, with the positions this kind of model counts.
  serving::Job job(std::vector<int32_t> ids, const Client& client, int priority) const;

 private:
  void route(const HttpRequest& request, const Client& client, std::shared_ptr<Exchange> exchange);
  HttpResponse ready() const;
  HttpResponse models(const std::string& target) const;

  const TextModel& model_;
  const ServiceOptions options_;
  serving::Engine engine_;
  Metrics metrics_;
  std::function<int64_t()> connections_ = [] { return 0; };
  std::atomic<bool> draining_ = false;
  Worker worker_;  // the last: ends before what its tasks use
};

HttpResponse error_response(const ApiError& error);

// One each for the three kinds of work; they throw ApiError before anything is queued.
void answer_completion(Service& service, const HttpRequest& request, const Client& client,
                       std::shared_ptr<Exchange> exchange);
void answer_score(Service& service, const HttpRequest& request, const Client& client,
                  std::shared_ptr<Exchange> exchange);
void answer_embeddings(Service& service, const HttpRequest& request, const Client& client,
                       std::shared_ptr<Exchange> exchange);

}  // namespace quintet::serve
