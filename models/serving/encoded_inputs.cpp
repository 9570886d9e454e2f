#include "models/serving/encoded_inputs.h"

#include <cstdlib>
#include <new>
#include <numeric>

namespace quintet::serving {

using decoding::Sequences;

namespace {

Sequences joined(std::span<const EncodedInputs::Tokens* const> inputs, bool causal) {
  Sequences s;
  for (const EncodedInputs::Tokens* tokens : inputs) {
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

}  // namespace

int64_t EncodedInputs::bytes(const Tokens& inputs) const {
  const auto n = static_cast<int64_t>(inputs.size());
  if (network_.shape().decoder_only()) return pages_.pages_for(n) * pages_.bytes();
  return 4 * decoding::cross_floats(network_.shape(), n);
}

bool EncodedInputs::has(const Tokens& inputs) const {
  const auto found = known_.find(inputs);
  return found != known_.end() && !found->second.expired();
}

std::shared_ptr<EncodedInput> EncodedInputs::make(const Tokens& inputs) const {
  const decoding::NetworkShape& shape = network_.shape();
  auto made = std::make_shared<EncodedInput>(budget_, bytes(inputs));
  const auto n = static_cast<int64_t>(inputs.size());
  if (shape.decoder_only()) {
    for (int64_t t = 0; t < n; ++t) {
      if (t % pages_.tokens() == 0) made->pages.push_back(pages_.take());
      made->prefix.push_back(pages_.place(made->pages.back().get(), t));
    }
    return made;
  }
  constexpr size_t kAlign = 256;
  const auto wanted = static_cast<size_t>(bytes(inputs));
  made->cross_memory.reset(
      static_cast<float*>(std::aligned_alloc(kAlign, (wanted + kAlign - 1) / kAlign * kAlign)));
  if (made->cross_memory == nullptr) throw std::bad_alloc();
  float* next = made->cross_memory.get();
  for (int64_t i = 0; i < shape.num_decoder_layers * shape.num_heads; ++i) {
    made->cross.push_back(SharedKeys::at(next, n, shape.head_dim));
    // The kernels read whole vectors of keys: what lies behind the last token must be numbers.
    std::fill_n(next, shape.head_dim * made->cross.back().stride, 0.0f);
    next += SharedKeys::floats(n, shape.head_dim);
  }
  return made;
}

/// Encoders that are no packed network may let neighbours change a row's bits: each input by itself.
std::vector<float> EncodedInputs::encoder_output(std::span<const Tokens* const> inputs,
                                                 const Sequences& all) const {
  if (!network_.encoder_function()) return decoding::encode(network_, all);
  std::vector<float> encoded;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<float> one = decoding::encode(network_, joined(inputs.subspan(i, 1), false));
    encoded.insert(encoded.end(), one.begin(), one.end());
  }
  return encoded;
}

void EncodedInputs::fill(std::span<const Tokens* const> inputs,
                         std::span<const std::shared_ptr<EncodedInput>> made) const {
  const decoding::NetworkShape& shape = network_.shape();
  if (shape.decoder_only()) {
    run_stack(
        network_, network_.decoder(), joined(inputs, !bidirectional_),
        [&](int64_t layer, int64_t item, int64_t index, const float* key, const float* value) {
          float* place = made[static_cast<size_t>(item)]->prefix[static_cast<size_t>(index)];
          for (int64_t h = 0; h < shape.num_heads; ++h)
            append_to_cache(pages_.layout().at(layer, h), place, key + h * shape.head_dim,
                            value + h * shape.head_dim, shape.head_dim);
        });
    return;
  }
  const Sequences sequences = joined(inputs, false);
  std::vector<float> encoded = encoder_output(inputs, sequences);
  std::vector<SharedKeys> keys;
  for (int64_t layer = 0; layer < shape.num_decoder_layers; ++layer)
    for (const auto& input : made) {
      const auto first = input->cross.begin() + layer * shape.num_heads;
      keys.insert(keys.end(), first, first + shape.num_heads);
    }
  finish_encoding(network_, sequences, encoded, keys);
}

std::vector<std::shared_ptr<const EncodedInput>> EncodedInputs::get(
    std::span<const Tokens* const> inputs) {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  std::vector<std::shared_ptr<const EncodedInput>> all;
  std::vector<const Tokens*> missing;
  std::vector<std::shared_ptr<EncodedInput>> made;
  for (const Tokens* tokens : inputs) {
    auto& known = known_[*tokens];
    if (auto shared = known.lock()) {
      all.push_back(std::move(shared));
      ++shared_;
      continue;
    }
    missing.push_back(tokens);
    tokens_read_ += std::ssize(*tokens);
    made.push_back(make(*tokens));
    known = made.back();
    all.push_back(made.back());
  }
  if (!made.empty()) fill(missing, made);
  // The last token of a prefix is read again by the first step, which writes it at a row's own
  // place.
  for (const auto& input : made)
    if (!input->prefix.empty()) input->prefix.pop_back();
  return all;
}

std::vector<std::vector<float>> EncodedInputs::encode(std::span<const Tokens* const> inputs) {
  const Sequences sequences = joined(inputs, false);
  tokens_read_ += sequences.size();
  std::vector<float> encoded = encoder_output(inputs, sequences);
  finish_encoding(network_, sequences, encoded, {});
  std::vector<std::vector<float>> all;
  for (int64_t i = 0; i < sequences.items(); ++i)
    all.emplace_back(
        encoded.begin() + sequences.begin[static_cast<size_t>(i)] * network_.shape().emb_dim,
        encoded.begin() + sequences.begin[static_cast<size_t>(i + 1)] * network_.shape().emb_dim);
  return all;
}

}  // namespace quintet::serving
