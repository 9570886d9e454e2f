#include "apps/serve/serve_flags.h"

#include <unistd.h>

#include "apps/flags/command_line.h"
#include "apps/flags/help_format.h"
#include "apps/flags/refused_flags.h"
#include "runtime/base/check.h"

namespace quintet::serve {

namespace {

const auto kPositive = CLI::Range(int64_t{1}, int64_t{1} << 40);

void add_limit_flags(CLI::App& app, ServeFlags& flags) {
  const HelpGroup group(app, "Limits");
  ServeLimits& limits = flags.service.limits;
  serving::EngineOptions& engine = flags.service.engine;
  app.add_option("--cache_mib", flags.cache_mib, "memory for the key-value cache, in MiB")
      ->check(kPositive);
  app.add_option(
         "--answers_mib", flags.answers_mib,
         "memory for answers being generated and sent, in MiB; one request may take half of it")
      ->check(kPositive);
  app.add_option("--max_batch", engine.max_rows, "largest number of sequences per step")
      ->check(kPositive);
  app.add_option("--max_queue", engine.max_waiting, "largest number of waiting prompts")
      ->check(kPositive);
  app.add_option("--max_prompts", limits.prompts, "largest number of prompts per request")
      ->check(kPositive);
  app.add_option("--max_prompt_tokens", limits.prompt_tokens, "largest number of tokens per prompt")
      ->check(kPositive);
  app.add_option("--max_tokens,--max_decode_len", limits.answer_tokens,
                 "largest number of tokens per answer")
      ->check(kPositive);
  app.add_option("--max_n", limits.sequences, "largest n, best_of and num_beams")->check(kPositive);
}

void add_connection_flags(CLI::App& app, ServeLimits& limits, HttpLimits& sockets,
                          double& drain_seconds) {
  const HelpGroup group(app, "Connections");
  const auto seconds = CLI::Range(0.01, 1e6);
  app.add_option("--request_seconds", limits.request_seconds,
                 "time limit from a request to its answer")
      ->check(seconds);
  app.add_option("--max_connections", sockets.connections, "open connections")->check(kPositive);
  app.add_option("--max_connections_per_address", sockets.connections_per_address,
                 "open connections per client address; 0: half of --max_connections, unlimited "
                 "from this machine")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--max_body_bytes", sockets.body_bytes, "size of a request's body")
      ->check(kPositive);
  app.add_option("--header_seconds", sockets.header_seconds, "time limit to receive the headers")
      ->check(seconds);
  app.add_option("--body_seconds", sockets.body_seconds, "time limit to receive the body")
      ->check(seconds);
  app.add_option("--write_seconds", sockets.write_seconds, "time limit for a client to accept data")
      ->check(seconds);
  app.add_option("--idle_seconds", sockets.idle_seconds,
                 "closes connections without a request after this time")
      ->check(seconds);
  app.add_option("--drain_seconds", drain_seconds,
                 "time for running requests to complete after SIGTERM")
      ->check(seconds);
}

}  // namespace

void ServeFlags::add_to(CLI::App& app) {
  app.add_option("MODEL,--model_dir,--model", model_dir,
                 "the directory of a training run, a checkpoint, or a Hugging Face directory")
      ->required();
  app.add_option(
         "--adapter", adapters,
         "NAME=DIR or DIR, may be repeated: a LoRA adapter of this model, a PEFT directory or "
         "a run of quintet finetune --lora_rank, that requests choose by \"model\": NAME; "
         "each takes the memory of the model again, and an equal part of --cache_mib and "
         "--answers_mib")
      ->allow_extra_args(false);
  app.add_option("--host", http.host,
                 "address to listen on; 0.0.0.0: all networks (set --api_keys then)");
  app.add_option("--port", http.port, "0: any free port")->check(CLI::Range(0, 65535));
  app.add_option("--api_keys", keys_file, "file with one key per line: KEY [NAME [PRIORITY]]");
  app.add_option("--allowed_hosts", allowed_hosts,
                 "host names accepted besides localhost: name, *.name or *, comma-separated")
      ->delimiter(',');
  add_limit_flags(app, *this);
  add_connection_flags(app, service.limits, http.limits, drain_seconds);
  app.add_flag("--log_prompts", service.log_prompts, "write the texts of requests to stderr");
  decode.add_search_to(app, "1; these four are for requests that do not say");
  drafts.add_to(app);
  quantize.add_to(app);
  cache.add_to(app);
  compute.add_to(app);
  ranks.add_to(app);
}

void ServeFlags::set_defaults() {
  decode.check("serve");
  drafts.check("serve");
  QT_CHECK(
      drafts.assistant_model.empty() || adapters.empty(),
      "quintet serve: --assistant_model guesses for the model alone, not for its --adapter; give "
      "--prompt_lookup_num_tokens, or leave one out");
  SearchDefaults& defaults = service.limits.defaults;
  defaults = {.beams = decode.beams.value_or(1),
              .top_k = decode.top_k.value_or(0),
              .temperature = decode.temperature.value_or(1),
              .top_p = decode.top_p.value_or(1)};
  QT_CHECK(defaults.beams <= service.limits.sequences,
           "quintet serve: --beams={} is more than --max_n, {}", defaults.beams,
           service.limits.sequences);
  QT_CHECK(
      defaults.temperature <= 2 && defaults.top_p > 0,
      "quintet serve: --temperature={} --top_p={}: requests may say a temperature of 0 to 2 and a "
      "top_p above 0",
      defaults.temperature, defaults.top_p);
}

void ServeFlags::trust_client(const CLI::App& app) {
  QT_CHECK(isatty(STDIN_FILENO) == 0 && isatty(STDOUT_FILENO) == 0,
           "quintet serve --pipe: standard input or output is a terminal; a program, such as "
           "libquintet.so, speaks there");
  refuse_flags(app,
               {"--host", "--port", "--api_keys", "--allowed_hosts", "--max_connections",
                "--max_connections_per_address", "--max_body_bytes", "--header_seconds",
                "--body_seconds", "--write_seconds", "--idle_seconds", "--drain_seconds"},
               "is for a port, and with --pipe there is none");
  constexpr int64_t kAny = int64_t{1} << 30;
  if (app.count("--max_prompts") == 0) service.limits.prompts = kAny;
  if (app.count("--max_queue") == 0) service.engine.max_waiting = kAny;
  if (app.count("--answers_mib") == 0) answers_mib = kAny;
  if (app.count("--request_seconds") == 0) service.limits.request_seconds = kAny;
  service.log_requests = false;
}

}  // namespace quintet::serve
