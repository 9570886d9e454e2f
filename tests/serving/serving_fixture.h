#pragma once
// Engines over the tiny networks of fixtures/decode and ones with experts on the current device, and
// jobs of every kind for them.

#include <thread>

#include "models/decoding/scoring.h"
#include "models/serving/engine.h"
#include "tests/decode/decode_fixture.h"
#include "tests/harness/device.h"
#include "tests/models/sparse_network.h"

namespace quintet::testing {

using decoding::DecodingRequest;
using decoding::Hypothesis;
using decoding::PackedNetwork;
using decoding::TokenList;
using serving::EngineOptions;
using serving::Job;
using serving::Outcome;

inline bool on_cpu() { return Device::current().is_cpu(); }

/// A network on the current device, and packed for the CPU.
struct TinyNetwork {
  std::unique_ptr<PackedNetwork> packed;
  std::unique_ptr<BaseModel> model;  // null on the CPU
  HostArrays parameters = {};        // of one whose weights are in `type`
  WeightType type = WeightType::f32;
  CacheType cache_type = CacheType::native;
  const ModelSpec& spec() const { return packed->spec(); }
};

/// "encdec" or "decoder_only", "sparse_" before it: with experts in the decoder, "umt5_": that and a
/// relative position bias in every layer, "rotary_": rotary embeddings instead,
/// "multi_query_": heads that share keys and values, "parallel_" and "fused_": flaxformer's parallel layers, the first with experts too, "int8_": with weights in 8 bits; before all that "kv_int8_" and "kv_fp8_": with caches in 8
/// bits; on a GPU computed in `dtype`, if it has an encoder.
inline std::unique_ptr<TinyNetwork> tiny_network(const std::string& kind,
                                                 const std::string& dtype = "float32") {
  for (const CacheType type : {CacheType::int8, CacheType::fp8})
    if (const auto prefix = fmt::format("kv_{}_", name_of(type)); kind.starts_with(prefix)) {
      auto tiny = tiny_network(kind.substr(prefix.size()), dtype);
      tiny->cache_type = type;
      return tiny;
    }
  const bool rotary = kind.starts_with("rotary_"), multi_query = kind.starts_with("multi_query_");
  const bool parallel = kind.starts_with("parallel_"), fused = kind.starts_with("fused_");
  if (kind.starts_with("sparse_") || kind.starts_with("umt5_") || rotary || multi_query ||
      parallel || fused) {
    SparseNetwork sparse = sparse_network({.decoder_only = kind.ends_with("decoder_only"),
                                           .chosen = 2,
                                           .encoder = {},
                                           .dtype = dtype,
                                           .shared_bias = !kind.starts_with("umt5_"),
                                           .rotary = rotary,
                                           .multi_query = multi_query,
                                           .parallel = parallel,
                                           .fused = fused});
    auto packed = sparse.packed();
    return std::make_unique<TinyNetwork>(std::move(packed),
                                         on_cpu() ? nullptr : std::move(sparse.model));
  }
  const Json config = Json::read(decode_file("cases.json"))["config"];
  const bool in_bytes = kind.starts_with("int8_");
  auto tiny = std::make_unique<TinyNetwork>();
  if (in_bytes) tiny->type = WeightType::int8;
  const HostArrays& parameters = tiny->parameters = read_safetensors(
      decode_file(kind.substr(in_bytes ? std::string("int8_").size() : 0) + ".params.safetensors"));
  tiny->packed = std::make_unique<PackedNetwork>(spec_from(parameters, config),
                                                 source_of(parameters), tiny->type);
  if (on_cpu()) return tiny;
  if (tiny->spec().decoder_only())
    tiny->model = decoder_only_from(parameters, config, false);
  else
    tiny->model = model_from(parameters, config, dtype);
  return tiny;
}

inline std::unique_ptr<serving::ServedNetwork> served(const PackedNetwork& network,
                                                      const EngineOptions& options) {
  return serving::cpu_network(network, options);
}
inline std::unique_ptr<serving::ServedNetwork> served(const TinyNetwork& network,
                                                      EngineOptions options) {
  options.cache_type = network.cache_type;
  return network.model == nullptr
             ? served(*network.packed, options)
             : serving::gpu_network(*network.model, options,
                                    {network.type, source_of(network.parameters)});
}

/// Bytes of a page of so many tokens.
inline int64_t page_bytes(const TinyNetwork& network, int64_t tokens) {
  return served(network, {.memory_bytes = 1 << 20, .max_rows = 1, .page_tokens = tokens})
      ->row_bytes({.rows = 1, .max_length = 1});
}

/// An engine that owns its caches' network.
class Engine : public serving::Engine {
 public:
  template <class Network>
  Engine(const Network& network, const EngineOptions& options)
      : serving::Engine(served(network, options), options) {}
};

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

inline Job generation_job(TokenList inputs, DecodingRequest request, int64_t vocab) {
  const bool decoder_only = inputs.front() == 0;
  Job job{.inputs = std::move(inputs)};
  set_search(job, std::move(request), vocab, decoder_only);
  return job;
}

/// Runs an engine in a thread until it goes out of scope.
class RunningEngine {
 public:
  template <class Network>
  RunningEngine(const Network& network, const EngineOptions& options)
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
