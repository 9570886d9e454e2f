#pragma once
// Engines over the tiny networks of fixtures/decode, and jobs of every kind for them.

#include <thread>

#include "models/decoding/scoring.h"
#include "models/serving/engine.h"
#include "tests/decode/decode_fixture.h"

namespace quintet::testing {

using decoding::GenerationRequest;
using decoding::Hypothesis;
using decoding::PackedNetwork;
using decoding::TokenList;
using serving::Engine;
using serving::EngineOptions;
using serving::Job;
using serving::Outcome;

inline std::unique_ptr<PackedNetwork> tiny_network(const std::string& kind) {
  const Json cases = Json::read(decode_file("cases.json"));
  const HostArrays parameters = read_safetensors(decode_file(kind + ".params.safetensors"));
  return std::make_unique<PackedNetwork>(shape_from(parameters, cases["config"]),
                                         source_of(parameters));
}

/// What is known of a job that is over.
struct Ended {
  std::vector<Hypothesis> results;
  std::vector<float> encoded;
  std::exception_ptr error;
  bool over = false;
};

/// Keeps what becomes of the job in `ended`, which must outlive it.
inline void watch(Job& job, Ended& ended) {
  job.done = [&ended](const Outcome& outcome) {
    if (outcome.search != nullptr) ended.results = outcome.search->results();
    ended.encoded.assign(outcome.encoded.begin(), outcome.encoded.end());
    ended.error = outcome.error;
    ended.over = true;
  };
}

inline Job generation_job(TokenList inputs, GenerationRequest request, int64_t vocab) {
  Job job;
  if (request.prompt == TokenList{0} && inputs.front() == 0) request.prompt = {inputs.back()};
  job.rows = decoding::rows_of(request);
  job.max_length = std::ssize(request.prompt) - 1 + request.rules.max_new_tokens;
  job.inputs = std::move(inputs);
  job.search = start_generation(std::move(request), vocab);
  return job;
}

/// Runs an engine in a thread until it goes out of scope.
class RunningEngine {
 public:
  RunningEngine(const PackedNetwork& network, const EngineOptions& options)
      : engine(network, options), thread_([this] { engine.run(); }) {}
  ~RunningEngine() { wait(); }
  void wait() {
    engine.close();
    if (thread_.joinable()) thread_.join();
  }
  Engine engine;

 private:
  std::thread thread_;
};

}  // namespace quintet::testing
