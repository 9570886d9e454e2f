// `quintet serve`: a trained model behind HTTP, with a web page.

#include <thread>

#include "apps/cli.h"
#include "apps/compute_flags.h"
#include "apps/predictor.h"
#include "apps/quantize_flag.h"
#include "apps/serve/log.h"
#include "apps/serve/service.h"
#include "apps/text_model.h"
#include "apps/verbs.h"
#include "runtime/base/out_of_memory.h"
#include "runtime/base/thread.h"

namespace quintet {
namespace {

// After the device is lost: as long as probes need to see it, before the port closes.
constexpr std::chrono::seconds kBrokenSeconds{2};

using serve::HttpOptions;
using serve::ServiceOptions;

struct ServeFlags {
  std::string model_dir, keys_file;
  std::vector<std::string> allowed_hosts;
  HttpOptions http;
  ServiceOptions service;
  int64_t cache_mib = 1024, answers_mib = 512;
  double drain_seconds = 90;
  QuantizeFlag quantize;
  ComputeFlags compute;
};

void add_flags(CommandLine& cli, ServeFlags& flags) {
  CLI::App& app = cli.app();
  app.option_defaults()->always_capture_default();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  const auto seconds = CLI::Range(0.01, 1e6);
  serve::ServeLimits& limits = flags.service.limits;
  serve::HttpLimits& http = flags.http.limits;
  serving::EngineOptions& engine = flags.service.engine;
  app.add_option("--model,--model_dir", flags.model_dir,
                 "the directory of a training run, or a checkpoint")
      ->required();
  app.add_option("--host", flags.http.host,
                 "address to listen on; 0.0.0.0 is all networks: give --api_keys then");
  app.add_option("--port", flags.http.port, "0: any that is free")->check(CLI::Range(0, 65535));
  app.add_option("--api_keys", flags.keys_file, "file with a key a line: KEY [NAME [PRIORITY]]");
  app.add_option("--allowed_hosts", flags.allowed_hosts,
                 "names besides localhost by which it may be asked: name, *.name or *, by commas")
      ->delimiter(',');
  app.add_option("--cache_mib", flags.cache_mib, "memory for keys and values")->check(positive);
  app.add_option("--answers_mib", flags.answers_mib,
                 "memory for answers that are made and sent; one request may take half of it")
      ->check(positive);
  app.add_option("--max_batch", engine.max_rows, "sequences in a step")->check(positive);
  app.add_option("--max_queue", engine.max_waiting, "prompts that may wait")->check(positive);
  app.add_option("--max_prompts", limits.prompts, "prompts of a request")->check(positive);
  app.add_option("--max_prompt_tokens", limits.prompt_tokens)->check(positive);
  app.add_option("--max_tokens", limits.answer_tokens, "tokens of an answer")->check(positive);
  app.add_option("--max_n", limits.sequences, "n, best_of and num_beams")->check(positive);
  app.add_option("--request_seconds", limits.request_seconds, "from a request to its answer")
      ->check(seconds);
  app.add_option("--max_connections", http.connections)->check(positive);
  app.add_option("--max_connections_per_address", http.connections_per_address,
                 "0: half of --max_connections, and any number of this machine's own")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--max_body_bytes", http.body_bytes)->check(positive);
  app.add_option("--header_seconds", http.header_seconds)->check(seconds);
  app.add_option("--body_seconds", http.body_seconds)->check(seconds);
  app.add_option("--write_seconds", http.write_seconds)->check(seconds);
  app.add_option("--idle_seconds", http.idle_seconds)->check(seconds);
  app.add_option("--drain_seconds", flags.drain_seconds, "for running requests after SIGTERM")
      ->check(seconds);
  app.add_flag("--log_prompts", flags.service.log_prompts, "write requests to stderr");
  flags.quantize.add_to(app);
  flags.compute.add_to(app);
}

/// Where the model is computed, and what is made of it for that.
struct Computed {
  std::unique_ptr<decoding::PackedNetwork> packed;  // null on a GPU
  std::unique_ptr<serving::ServedNetwork> network;
};

Computed computed(const TextModel& model, const ServeFlags& flags) {
  BaseModel& trained = *model.configured().model;
  const Weights weights = weights_of(flags.quantize.type(), model.trained().reader);
  if (!Device::current().is_cpu()) {
    auto network =
        serving::device_network(trained, flags.service.engine, kept_weights(trained, weights));
    drop_packed(trained, weights);
    return {nullptr, std::move(network)};
  }
  auto packed = pack(trained, weights);
  drop_packed(trained, weights);  // what serves is a copy: files may change now
  auto network = serving::cpu_network(*packed, flags.service.engine);
  return {std::move(packed), std::move(network)};
}

bool is_local(const std::string& host) {
  return host.starts_with("127.") || host == "localhost" || host == "::1";
}

}  // namespace

int run_serve(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  ServeFlags flags;
  CommandLine cli(
      "serve", "A trained model as an HTTP server that OpenAI's clients can talk to.",
      "quintet serve --model /tmp/numbers\n"
      "quintet serve --model /tmp/numbers --host 0.0.0.0 --port 80 --api_keys keys.txt");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  flags.compute.start();
  flags.service.hosts = serve::HostNames(flags.allowed_hosts);
  if (!flags.keys_file.empty()) flags.service.keys = serve::ApiKeys(flags.keys_file);

  const TextModel model(flags.model_dir, gin_line.bindings);
  serving::EngineOptions& engine = flags.service.engine;
  engine.memory_bytes = flags.cache_mib << 20;
  flags.service.answer_bytes = flags.answers_mib << 20;
  engine.max_length = flags.service.limits.prompt_tokens + flags.service.limits.answer_tokens + 1;
  if (const auto* decoder = dynamic_cast<const DecoderOnlyModel*>(model.configured().model.get()))
    engine.bidirectional_prefix = decoder->inputs_bidirectional_attention();
  QT_CHECK(flags.service.limits.sequences <= engine.max_rows,
           "--max_n={} exceeds --max_batch={}: such a request could never run",
           flags.service.limits.sequences, engine.max_rows);

  Computed network = computed(model, flags);
  serve::Service service(model, std::move(network.network), std::move(flags.service));
  flags.http.error_body = [](int status, const std::string& message) {
    return serve::ApiError(status, message).body();
  };
  flags.http.always_answered = {"/health", "/ready", "/metrics"};
  serve::HttpServer* sockets = nullptr;
  flags.http.on_signal = [&] {
    serve::log_line("serve: finishing what is running; again to quit at once\n");
    service.drain();
    sockets->drain(flags.drain_seconds, [&] { service.engine().abort(); });
  };
  serve::HttpServer server(flags.http, [&](auto request, auto exchange) {
    service.handle(std::move(request), std::move(exchange));
  });
  sockets = &server;
  service.set_connections([&] { return server.connections(); });
  serve::log_line("{} at step {}: http://{}:{}/\n", model.trained().model_dir.string(),
                  model.trained().step, flags.http.host, server.port());
  if (!is_local(flags.http.host) && flags.keys_file.empty())
    serve::log_line("serve: anyone who reaches {} may use this: give --api_keys\n",
                    flags.http.host);

  refused_memory_ends_program = false;
  std::thread io = start_thread("for connections", [&] { server.run(); });
  service.engine().run();  // on this thread, whose team computes
  if (service.engine().broken()) {
    serve::log_line("serve: the device fails again and again; /ready says so for {} s\n",
                    kBrokenSeconds.count());
    std::this_thread::sleep_for(kBrokenSeconds);
    server.drain(5);
  }
  io.join();
  QT_CHECK_AS(ExitCode::kEnvironment, !service.engine().broken(),
              "serve: the device fails again and again; start the server anew");
  return 0;
}

}  // namespace quintet
