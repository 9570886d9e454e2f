#include "apps/serve/server.h"

#include <csignal>
#include <deque>
#include <set>
#include <thread>

#include "apps/drafts/served_model.h"
#include "apps/flags/command_line.h"
#include "apps/process/inference_ranks.h"
#include "apps/serve/http/log.h"
#include "models/serving/led_network.h"
#include "runtime/base/memory/out_of_memory.h"
#include "runtime/base/thread.h"

namespace quintet::serve {
namespace {

// After the device is lost: as long as probes need to see it, before the port closes.
constexpr std::chrono::seconds kBrokenSeconds{2};

/// An adapter that is served beside its base: merged into a network of its own.
struct ServedAdapter {
  ServedAdapter(const std::string& name, const std::string& folder, const ServeFlags& flags,
                const gin::CommandLine& line)
      : model(flags.model_dir, line, false, Load::to_generate, folder, name),
        options(flags.service),
        drafting(drafting_of(flags.drafts, model, flags.quantize.type(), options.engine)),
        served(served_model(model, flags.quantize.type(), options.engine, nullptr)),
        service(model, std::move(served.network), options, std::move(drafting.drafter)) {}

  const TextModel model;
  ServiceOptions options;
  Drafting drafting;
  ServedModel served;
  Service service;
};

std::deque<ServedAdapter> served_adapters(const ServeFlags& flags, const std::string& base,
                                          const gin::CommandLine& line) {
  std::deque<ServedAdapter> served;
  std::set<std::string> names{base};
  for (const std::string& value : flags.adapters) {
    const size_t equals = value.find('=');
    const std::filesystem::path folder =
        mapped_path(equals == std::string::npos ? value : value.substr(equals + 1));
    const std::string name = equals == std::string::npos
                                 ? (folder / "").parent_path().filename().string()
                                 : value.substr(0, equals);
    QT_CHECK(!name.empty() && names.insert(name).second,
             "--adapter={}: the name '{}' is {}; name it otherwise: --adapter=NAME={}", value, name,
             name.empty() ? "empty" : "another's", folder.string());
    served.emplace_back(name, folder.string(), flags, line);
  }
  return served;
}

/// What follows from the model and the flags; throws a usage error for flags that do not go together.
void complete(ServeFlags& flags, const TextModel& model, const Ranks& ranks) {
  serving::EngineOptions& engine = flags.service.engine;
  const int64_t models = 1 + std::ssize(flags.adapters);
  engine.memory_bytes = (flags.cache_mib << 20) / models;
  flags.service.answer_bytes = (flags.answers_mib << 20) / models;
  engine.max_length = flags.service.limits.prompt_tokens + flags.service.limits.answer_tokens + 1;
  engine.bidirectional_prefix = model.configured().model->spec().inputs_bidirectional_attention;
  QT_CHECK(flags.service.limits.sequences <= engine.max_rows,
           "--max_n={} exceeds --max_batch={}: such a request could never run",
           flags.service.limits.sequences, engine.max_rows);
  engine.cache_type = flags.cache.type();
  QT_CHECK(!flags.cache.is_given() || !model.configured().model->spec().encoder_only(),
           "--kv_cache_dtype={}: this model is an encoder alone, which keeps no keys and values; "
           "leave the flag out",
           flags.cache.name);
  engine.draft_tokens = flags.drafts.tokens();
  QT_CHECK(engine.draft_tokens == 0 || engine.max_rows > 1,
           "--max_batch=1 leaves no row of a step for guesses: give a larger one, or leave out "
           "--assistant_model and --prompt_lookup_num_tokens");
  QT_CHECK(engine.draft_tokens == 0 || !model.configured().model->spec().encoder_only(),
           "--assistant_model and --prompt_lookup_num_tokens guess answers, and this model is an "
           "encoder "
           "alone: leave them out");
  engine.signal = std::make_shared<serving::WorkSignal>();  // one of all
  QT_CHECK(
      flags.adapters.empty() || ranks.size() == 1,
      "--adapter: {} ranks hold one model together; serve adapters by one process, or merge one "
      "with quintet convert",
      ranks.size());
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
    sockets->drain(flags.drain_seconds, [&] { service.abort(); });
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
  service.run();
  if (service.broken()) {
    log_line("serve: the device fails again and again; /ready says so for {} s\n",
             kBrokenSeconds.count());
    std::this_thread::sleep_for(kBrokenSeconds);
    server.drain(5);
  }
  io.join();
  QT_CHECK_AS(ExitCode::kEnvironment, !service.broken(),
              "serve: the device fails again and again; start the server anew");
}

}  // namespace

void run_server(ServeFlags flags, const Ranks& ranks, const gin::CommandLine& line) {
  flags.service.hosts = HostNames(flags.allowed_hosts);
  if (!flags.keys_file.empty()) flags.service.keys = ApiKeys(flags.keys_file);

  const TextModel model(flags.model_dir, line, false,
                        ranks.size() == 1 ? Load::to_generate : Load::part);
  complete(flags, model, ranks);
  const InferenceRanks division(ranks, ranks.size());
  serving::EngineOptions& engine = flags.service.engine;
  Drafting drafting;
  if (ranks.leads()) drafting = drafting_of(flags.drafts, model, flags.quantize.type(), engine);
  ServedModel served = served_model(model, flags.quantize.type(), engine, division.group());
  if (!ranks.leads()) {
    // The first rank finishes what is running, then says so.
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, SIG_IGN);
    return serving::follow(*served.network, *division.group());
  }
  if (division.group() != nullptr)
    served.network = serving::led_network(std::move(served.network), *division.group());
  std::deque<ServedAdapter> adapters = served_adapters(flags, model.name(), line);
  Service service(model, std::move(served.network), std::move(flags.service),
                  std::move(drafting.drafter));
  for (ServedAdapter& adapter : adapters) {
    service.add(adapter.service);
    log_line("serve: adapter '{}' of {}\n", adapter.model.name(), model.name());
  }
  refused_memory_ends_program = false;
  flags.pipe ? serve_pipe(service) : serve_sockets(service, flags);
}

}  // namespace quintet::serve
