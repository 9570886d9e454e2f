#include "apps/serve/server.h"

#include <csignal>
#include <thread>

#include "apps/model/predictor.h"
#include "apps/model/text_model.h"
#include "apps/process/inference_ranks.h"
#include "apps/serve/http/log.h"
#include "models/serving/led_network.h"
#include "runtime/base/memory/out_of_memory.h"
#include "runtime/base/thread.h"

namespace quintet::serve {
namespace {

// After the device is lost: as long as probes need to see it, before the port closes.
constexpr std::chrono::seconds kBrokenSeconds{2};

/// Where the model is computed, and what is made of it for that.
struct Computed {
  std::unique_ptr<decoding::PackedNetwork> packed;  // null on a GPU
  std::unique_ptr<serving::ServedNetwork> network;
};

Computed computed(const TextModel& model, const ServeFlags& flags, SharedMemoryGroup* ranks) {
  BaseModel& trained = *model.configured().model;
  const Weights weights = weights_to_generate(flags.quantize.type(), model.trained().reader, ranks);
  std::unique_ptr<decoding::PackedNetwork> packed;
  std::unique_ptr<serving::ServedNetwork> network;
  if (Device::current().is_cpu()) {
    packed = pack(trained, weights);
    network = serving::cpu_network(*packed, flags.service.engine);
  } else {
    network =
        serving::gpu_network(trained, flags.service.engine, inference_weights(trained, weights));
  }
  drop_packed(trained, weights);  // what serves is a copy: files may change now
  if (ranks != nullptr && ranks->leads())
    network = serving::led_network(std::move(network), *ranks);
  return {std::move(packed), std::move(network)};
}

bool is_local(const std::string& host) {
  return host.starts_with("127.") || host == "localhost" || host == "::1";
}

void serve_sockets(Service& service, ServeFlags& flags) {
  flags.http.error_body = [](int status, const std::string& message) {
    return ApiError(status, message).body();
  };
  flags.http.refused = [&](const HttpRequest& request, int status) {
    service.answered(Asked(request), status);
  };
  flags.http.always_answered = {"/health", "/ready", "/metrics"};
  HttpServer* sockets = nullptr;
  flags.http.on_signal = [&] {
    log_line("serve: finishing what is running; again to quit at once\n");
    service.drain();
    sockets->drain(flags.drain_seconds, [&] { service.engine().abort(); });
  };
  HttpServer server(flags.http, [&](auto request, auto exchange) {
    service.handle(std::move(request), std::move(exchange));
  });
  sockets = &server;
  service.set_connections([&] { return server.connections(); });
  log_line("{} at step {}: http://{}:{}/\n", service.model().trained().model_dir.string(),
           service.model().trained().step, flags.http.host, server.port());
  if (!is_local(flags.http.host) && flags.keys_file.empty())
    log_line("serve: anyone who reaches {} may use this: give --api_keys\n", flags.http.host);

  std::thread io = start_thread("for connections", [&] { server.run(); });
  service.engine().run();  // on this thread, whose team computes
  if (service.engine().broken()) {
    log_line("serve: the device fails again and again; /ready says so for {} s\n",
             kBrokenSeconds.count());
    std::this_thread::sleep_for(kBrokenSeconds);
    server.drain(5);
  }
  io.join();
  QT_CHECK_AS(ExitCode::kEnvironment, !service.engine().broken(),
              "serve: the device fails again and again; start the server anew");
}

}  // namespace

void run_server(ServeFlags flags, const Ranks& ranks, const gin::CommandLine& line) {
  flags.service.hosts = HostNames(flags.allowed_hosts);
  if (!flags.keys_file.empty()) flags.service.keys = ApiKeys(flags.keys_file);

  const TextModel model(flags.model_dir, line, false,
                        ranks.size() == 1 ? Load::to_generate : Load::part);
  serving::EngineOptions& engine = flags.service.engine;
  engine.memory_bytes = flags.cache_mib << 20;
  flags.service.answer_bytes = flags.answers_mib << 20;
  engine.max_length = flags.service.limits.prompt_tokens + flags.service.limits.answer_tokens + 1;
  engine.bidirectional_prefix = model.configured().model->spec().inputs_bidirectional_attention;
  QT_CHECK(flags.service.limits.sequences <= engine.max_rows,
           "--max_n={} exceeds --max_batch={}: such a request could never run",
           flags.service.limits.sequences, engine.max_rows);

  const InferenceRanks division(ranks, ranks.size());
  Computed network = computed(model, flags, division.group());
  if (!ranks.leads()) {
    // The first rank finishes what is running, then says so.
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, SIG_IGN);
    return serving::follow(*network.network, *division.group());
  }
  Service service(model, std::move(network.network), std::move(flags.service));
  refused_memory_ends_program = false;
  flags.pipe ? serve_pipe(service) : serve_sockets(service, flags);
}

}  // namespace quintet::serve
