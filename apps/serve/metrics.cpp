#include "apps/serve/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

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
  return metric(name, type, help, fmt::format("quintet_{} {}\n", name, value));
}

int64_t resident_bytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

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
    samples += fmt::format("quintet_{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  samples += fmt::format("quintet_{0}_sum {1}\nquintet_{0}_count {2}\n", name, sum_, total);
  return metric(name, "histogram", help, samples);
}

void Metrics::answered(const std::string& endpoint, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{endpoint, status}];
  request_seconds_.add(seconds);
}

void Metrics::generated(int64_t prompt_tokens, int64_t tokens, double first_seconds,
                        double token_seconds) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += prompt_tokens;
  tokens_ += tokens;
  if (tokens == 0) return;
  first_token_seconds_.add(first_seconds);
  if (tokens > 1) token_seconds_.add(token_seconds, tokens - 1);
}

void Metrics::cancelled() {
  const std::lock_guard lock(mutex_);
  ++cancelled_;
}

std::string Metrics::text(const serving::EngineState& engine, int64_t connections) const {
  const std::lock_guard lock(mutex_);
  std::string requests;
  for (const auto& [key, count] : requests_)
    requests += fmt::format("quintet_requests_total{{endpoint=\"{}\",status=\"{}\"}} {}\n",
                            key.first, key.second, count);
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
  out += single("computing_seconds_total", "counter", "Time in passes of the network.",
                engine.seconds_computing);
  out += metric("cache_bytes", "gauge", "Memory of keys and values.",
                fmt::format("quintet_cache_bytes{{kind=\"limit\"}} {}\n"
                            "quintet_cache_bytes{{kind=\"promised\"}} {}\n"
                            "quintet_cache_bytes{{kind=\"used\"}} {}\n",
                            engine.memory_limit, engine.memory_promised, engine.memory_used));
  out += single("connections", "gauge", "Open connections.", connections);
  out += single("resident_bytes", "gauge", "Memory of the process.", resident_bytes());
  return out;
}

}  // namespace quintet::serve
