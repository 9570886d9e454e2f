#pragma once
// What the engine needs of a network, wherever it computes: what caches take, inputs read into
// them, and a step of many jobs' rows.
//
//   std::unique_ptr<ServedNetwork> network = cpu_network(packed, options);  // or gpu_network
//   auto inputs = network->read({{&tokens}});
//   auto rows = network->rows(inputs[0].get(), {.rows = 4, .max_length = 64});
//   auto answers = network->step({{{rows.get(), search.rows(), search.sampling_request()}}});
//
// Used by one thread. What it does for a row does not depend on the other rows there are.

#include <memory>
#include <span>
#include <vector>

#include "models/decoding/cpu/packed_network.h"
#include "models/decoding/network/quantized_parameters.h"
#include "models/decoding/request.h"
#include "models/serving/options.h"

namespace quintet {
class BaseModel;
}

namespace quintet::serving {

using Tokens = std::vector<int32_t>;

/// What rows read of a job's inputs: cross-attention's keys and values, or the cache of a
/// decoder-only network's prefix.
class InputCache {
 public:
  virtual ~InputCache() = default;
};

struct RowLimits {
  int64_t rows = 1, max_length = 0;  // max_length: tokens of a row, without the prefix
};

/// Self-attention's caches of a job's rows.
class RowCaches {
 public:
  virtual ~RowCaches() = default;
  /// Taken, and what may be taken at most, later steps included.
  virtual int64_t bytes() const = 0;
  virtual int64_t reserved_bytes() const = 0;
};

/// A job's share of a step; rows() and sampling_request() of its search.
struct StepJob {
  RowCaches* rows = nullptr;
  std::span<const decoding::RowStep> steps;
  const decoding::SamplingRequest* sampling_request = nullptr;
};
/// What it gets, there until the next step: logits [steps, vocab], which the caller may change, or
/// where they are empty what its sampling request gets.
struct JobAnswer {
  std::span<float> logits = {};
  decoding::TopKResult top_k = {};
};

class ServedNetwork {
 public:
  virtual ~ServedNetwork() = default;
  virtual int64_t vocab_size() const = 0;
  virtual bool decoder_only() const = 0;

  /// Bytes that inputs take, and rows at most.
  virtual int64_t input_bytes(const Tokens& inputs) const = 0;
  virtual int64_t row_bytes(const RowLimits& limits) const = 0;

  /// One pass over inputs, without padding. Tokens must be in the vocabulary.
  virtual std::vector<std::unique_ptr<InputCache>> read(std::span<const Tokens* const> inputs) = 0;
  /// The encoder's output after its final norm, [tokens, embed] each.
  virtual std::vector<std::vector<float>> encode(std::span<const Tokens* const> inputs) = 0;

  /// `input` must outlive the rows.
  virtual std::unique_ptr<RowCaches> rows(const InputCache& input, const RowLimits& limits) = 0;
  /// Reads one token of each row; answers each job.
  virtual std::vector<JobAnswer> step(std::span<const StepJob> jobs) = 0;
};

/// The network must outlive what is returned.
std::unique_ptr<ServedNetwork> cpu_network(const decoding::PackedNetwork& network,
                                           const EngineOptions& options);
/// On the current device: models/serving/gpu_network.cpp says how. Encoder-decoder or
/// decoder-only. The model must outlive what is returned (gpu_decoder.h says what of it is read).
std::unique_ptr<ServedNetwork> gpu_network(const BaseModel& model, const EngineOptions& options,
                                           const decoding::InferenceWeights& weights = {});

}  // namespace quintet::serving
