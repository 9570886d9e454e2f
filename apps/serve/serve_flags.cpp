#include "apps/serve/serve_flags.h"

#include "apps/flags/command_line.h"

namespace quintet::serve {

void ServeFlags::add_to(CLI::App& app) {
  app.option_defaults()->always_capture_default();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  const auto seconds = CLI::Range(0.01, 1e6);
  ServeLimits& limits = service.limits;
  HttpLimits& sockets = http.limits;
  serving::EngineOptions& engine = service.engine;
  app.add_option("--model,--model_dir", model_dir,
                 "the directory of a training run, or a checkpoint")
      ->required();
  app.add_option("--host", http.host,
                 "address to listen on; 0.0.0.0 is all networks: give --api_keys then");
  app.add_option("--port", http.port, "0: any that is free")->check(CLI::Range(0, 65535));
  app.add_option("--api_keys", keys_file, "file with a key a line: KEY [NAME [PRIORITY]]");
  app.add_option("--allowed_hosts", allowed_hosts,
                 "names besides localhost by which it may be asked: name, *.name or *, by commas")
      ->delimiter(',');
  app.add_option("--cache_mib", cache_mib, "memory for keys and values")->check(positive);
  app.add_option("--answers_mib", answers_mib,
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
  app.add_option("--max_connections", sockets.connections)->check(positive);
  app.add_option("--max_connections_per_address", sockets.connections_per_address,
                 "0: half of --max_connections, and any number of this machine's own")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--max_body_bytes", sockets.body_bytes)->check(positive);
  app.add_option("--header_seconds", sockets.header_seconds)->check(seconds);
  app.add_option("--body_seconds", sockets.body_seconds)->check(seconds);
  app.add_option("--write_seconds", sockets.write_seconds)->check(seconds);
  app.add_option("--idle_seconds", sockets.idle_seconds)->check(seconds);
  app.add_option("--drain_seconds", drain_seconds, "for running requests after SIGTERM")
      ->check(seconds);
  app.add_flag("--log_prompts", service.log_prompts, "write requests to stderr");
  quantize.add_to(app);
  compute.add_to(app);
}

}  // namespace quintet::serve
