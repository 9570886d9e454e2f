#include "models/decoding/encoding.h"

#include <algorithm>

#include "models/decoding/cpu/cross_keys.h"
#include "models/decoding/gpu/gpu_sequences.h"
#include "runtime/execution/tape.h"

namespace quintet::decoding {

Sequences joined(EncoderInputs inputs, bool causal) {
  Sequences s;
  for (const std::vector<int32_t>* tokens : inputs) {
    const auto n = static_cast<int64_t>(tokens->size());
    s.tokens.insert(s.tokens.end(), tokens->begin(), tokens->end());
    for (int64_t t = 0; t < n; ++t) {
      s.positions.push_back(static_cast<int32_t>(t));
      s.limits.push_back(causal ? t + 1 : n);
    }
    s.begin.push_back(s.size() + n);
  }
  return s;
}

std::vector<float> run_encoder(const PackedNetwork& network, EncoderInputs inputs) {
  if (!network.spec().encoder->sparse.routes_batches())
    return run_stack(network, network.encoder(), joined(inputs, false));
  std::vector<float> encoded;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto one = run_stack(network, network.encoder(), joined(inputs.subspan(i, 1), false));
    encoded.insert(encoded.end(), one.begin(), one.end());
  }
  return encoded;
}

/// A 0 among the tokens is one like any other.
Tensor run_encoder(const GpuWeights& weights, const std::vector<int32_t>& tokens) {
  return encode(weights, padded_for_gpu(tokens),
                padded_for_gpu(std::vector<int32_t>(tokens.size(), 1)));
}

std::vector<std::vector<float>> encode_each(const PackedNetwork& network, EncoderInputs inputs) {
  const Sequences sequences = joined(inputs, false);
  std::vector<float> encoded = run_encoder(network, inputs);
  finish_encoding(network, sequences, encoded, {});
  std::vector<std::vector<float>> all;
  auto next = encoded.begin();
  for (const std::vector<int32_t>* tokens : inputs) {
    const auto first = next;
    next += std::ssize(*tokens) * network.spec().emb_dim();
    all.emplace_back(first, next);
  }
  return all;
}

std::vector<std::vector<float>> encode_each(const GpuWeights& weights, EncoderInputs inputs) {
  const Tape::Recording paused(nullptr);
  std::vector<std::vector<float>> all;
  for (const std::vector<int32_t>* tokens : inputs) {
    const Tensor x = run_encoder(weights, *tokens);
    const HostArray array = x.to_host();
    const auto n = static_cast<size_t>(std::ssize(*tokens) * x.size(2));
    std::vector<float>& one = all.emplace_back();
    if (array.dtype == DType::f32)
      one.assign(array.as<float>().begin(), array.as<float>().begin() + n);
    else
      for (const bfloat16 v : array.as<bfloat16>().first(n)) one.push_back(static_cast<float>(v));
  }
  return all;
}

std::vector<float> mean_of_rows(std::span<const float> rows, int64_t width) {
  std::vector<double> sums(static_cast<size_t>(width), 0);
  for (size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += static_cast<double>(rows[i]);
  const auto count = static_cast<double>(std::ssize(rows) / width);
  std::vector<float> mean;
  for (const double sum : sums) mean.push_back(static_cast<float>(sum / count));
  return mean;
}

HostArray padded_for_gpu(const std::vector<int32_t>& tokens) {
  constexpr int64_t kUnit = 64;
  HostArray array(DType::i32, {1, (std::ssize(tokens) + kUnit - 1) / kUnit * kUnit});
  std::copy(tokens.begin(), tokens.end(), array.as<int32_t>().begin());
  return array;
}

}  // namespace quintet::decoding
