#include "apps/serve/metrics.h"

#include <algorithm>

#include "apps/process/memory_limit.h"

namespace quintet::serve {
namespace {

std::string metric(const std::string& name, const char* type, const std::string& help,
                   const std::string& samples) {
  return fmt::format("# HELP quintet_{0} {2}\n# TYPE quintet_{0} {1}\n{3}", name, type, help,
                     samples);
}
template <class Number>
std::string single(const std::string& name, const char* type, const std::string& help,
                   Number value) {
  return metric(name, type, help, sample(name, {}, fmt::format("{}", value)));
}

constexpr std::string_view kEndpoints[] = {"/v1/completions",
                                           "/v1/chat/completions",
                                           "/v1/score",
                                           "/v1/embeddings",
                                           "/v1/batch",
                                           "/v1/models",
                                           "/tokenize",
                                           "/detokenize",
                                           "/version",
                                           "/openapi.json",
                                           "/",
                                           "/health",
                                           "/ready",
                                           "/metrics"};

std::string_view endpoint_of(std::string_view target) {
  if (target.starts_with("/v1/models/")) return "/v1/models";
  const auto* known = std::find(std::begin(kEndpoints), std::end(kEndpoints), target);
  return known == std::end(kEndpoints) ? "other" : *known;
}

}  // namespace

std::string sample(const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& labels,
                   const std::string& number) {
  std::string text = "quintet_" + name;
  const char* separator = "{";
  for (const auto& [label, value] : labels) {
    text += fmt::format("{}{}=\"", std::exchange(separator, ","), label);
    for (const char c : value)
      if (c == '\n')
        text += "\\n";
      else if (c == '"' || c == '\\')
        (text += '\\') += c;
      else
        text += c;
    text += '"';
  }
  return fmt::format("{}{} {}\n", text, labels.empty() ? "" : "}", number);
}

void Histogram::add(double value, int64_t times) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(at - bounds_.begin())] += times;
  sum_ += value * static_cast<double>(times);
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string samples;
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    samples += sample(name + "_bucket", {{"le", bound}}, fmt::format("{}", total));
  }
  samples += fmt::format("quintet_{0}_sum {1}\nquintet_{0}_count {2}\n", name, sum_, total);
  return metric(name, "histogram", help, samples);
}

void ServerMetrics::answered(const std::string& target, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{endpoint_of(target), status}];
  request_seconds_.add(seconds);
}

void ServerMetrics::generated(int64_t prompt_tokens, int64_t tokens, double first_seconds,
                              double token_seconds) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += prompt_tokens;
  tokens_ += tokens;
  if (tokens == 0) return;
  first_token_seconds_.add(first_seconds);
  if (tokens > 1) token_seconds_.add(token_seconds, tokens - 1);
}

void ServerMetrics::cancelled() {
  const std::lock_guard lock(mutex_);
  ++cancelled_;
}

std::string ServerMetrics::text(const serving::EngineState& engine, int64_t connections) const {
  const std::lock_guard lock(mutex_);
  std::string requests;
  for (const auto& [key, count] : requests_)
    requests +=
        sample("requests_total",
               {{"endpoint", std::string(key.first)}, {"status", fmt::format("{}", key.second)}},
               fmt::format("{}", count));
  std::string out = metric("requests_total", "counter", "Requests answered.", requests);
  out += single("requests_cancelled_total", "counter", "Requests whose client left.", cancelled_);
  out +=
      request_seconds_.text("request_seconds", "From a request's last byte to its answer's end.");
  out += first_token_seconds_.text("time_to_first_token_seconds", "Waiting and encoding included.");
  out += token_seconds_.text("time_per_output_token_seconds", "Of the tokens after the first.");
  out += single("prompt_tokens_total", "counter", "Tokens of inputs.", prompt_tokens_);
  out += single("generated_tokens_total", "counter", "Tokens of answers.", tokens_);
  out += single("queue_requests", "gauge", "Sequences' requests that wait.", engine.waiting);
  out += single("running_requests", "gauge", "Requests in the batch.", engine.running);
  out += single("batch_rows", "gauge", "Rows of the last step.", engine.rows);
  out += single("steps_total", "counter", "Steps of the batch.", engine.steps);
  out += single("row_steps_total", "counter", "Rows of all steps.", engine.row_steps);
  out += single("whole_rows_total", "counter",
                "Of these, those whose logits were read on the host.", engine.whole_rows);
  out += single("encoder_tokens_total", "counter", "Input tokens that went through the network.",
                engine.encoder_tokens);
  out += single("shared_inputs_total", "counter", "Inputs found encoded already.",
                engine.shared_inputs);
  out += single("draft_tokens_total", "counter", "Guessed tokens that steps read.",
                engine.draft_tokens);
  out += single("accepted_draft_tokens_total", "counter", "Of these, those that were right.",
                engine.accepted_drafts);
  out += single("computing_seconds_total", "counter", "Time in passes of the network.",
                engine.seconds_computing);
  const auto bytes = [](const char* kind, int64_t count) {
    return sample("cache_bytes", {{"kind", kind}}, fmt::format("{}", count));
  };
  out += metric("cache_bytes", "gauge", "Memory of keys and values.",
                bytes("limit", engine.memory_limit) + bytes("reserved", engine.memory_reserved) +
                    bytes("used", engine.memory_used) + bytes("assistant", engine.draft_memory));
  out += single("connections", "gauge", "Open connections.", connections);
  out += single("resident_bytes", "gauge", "Memory of the process.", resident_bytes());
  return out;
}

}  // namespace quintet::serve
