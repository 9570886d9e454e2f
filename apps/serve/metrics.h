#pragma once
// What the server counts, as Prometheus reads it (text format 0.0.4).

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "models/serving/engine.h"

namespace quintet::serve {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value, int64_t times = 1);
  std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

/// One sample, `{name}{{label="value",...}} {number}`, the values escaped.
std::string sample(const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& labels,
                   const std::string& number);

/// All functions may be called from any thread.
class ServerMetrics {
 public:
  /// A target that is none of the server's counts as "other": clients invent no labels.
  void answered(const std::string& target, int status, double seconds);
  /// One request's tokens: how long the first one took, and each of the others on average.
  void generated(int64_t prompt_tokens, int64_t tokens, double first_seconds, double token_seconds);
  void cancelled();

  std::string text(const serving::EngineState& engine, int64_t connections) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string_view, int>, int64_t> requests_;
  int64_t cancelled_ = 0, prompt_tokens_ = 0, tokens_ = 0;
  Histogram request_seconds_{{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}};
  Histogram first_token_seconds_{{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}};
  Histogram token_seconds_{{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}};
};

}  // namespace quintet::serve
