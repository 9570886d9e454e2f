#include "models/decoding/search/token_choice.h"

#include <algorithm>
#include <limits>

#include "kernels/logits/logits.h"
#include "models/decoding/search/filters.h"
#include "runtime/base/check.h"

namespace quintet::decoding {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Draws from softmax(row); tokens at minus infinity take no noise.
int64_t draw(std::span<const float> row, Key key, bool truncated) {
  if (!truncated) return draw_categorical(row, key, 0);
  std::vector<int32_t> kept;
  indices_at_least(row, std::numeric_limits<float>::lowest(), kept);
  int64_t token = 0;
  float best = kNever;
  for (int32_t candidate : kept) {
    const auto c = static_cast<size_t>(candidate);
    const float score = row[c] + gumbel_noise(key, c);
    if (score > best) {
      best = score;
      token = candidate;
    }
  }
  return token;
}

}  // namespace

void SamplingParameters::check() const {
  QT_CHECK(temperature >= 0 && temperature < std::numeric_limits<float>::infinity(),
           "temperature {} must be 0 or more", temperature);
  QT_CHECK(top_k >= 0, "top_k {} must be 0 or more", top_k);
  QT_CHECK(top_p > 0 && top_p <= 1, "top_p {} must lie above 0 and be at most 1", top_p);
  QT_CHECK(alternatives >= 0, "logprobs {} must be 0 or more", alternatives);
}

std::vector<TokenLogProb> likeliest(std::span<const float> row, int64_t count) {
  if (count == 0) return {};
  const RowSummary summary = summarize(row);
  std::vector<float> scratch;
  std::vector<int32_t> candidates;
  indices_at_least(row, kth_largest(row, count, scratch), candidates);
  std::stable_sort(candidates.begin(), candidates.end(), [&](int32_t a, int32_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  candidates.resize(std::min(candidates.size(), static_cast<size_t>(count)));
  std::vector<TokenLogProb> out;
  for (int32_t token : candidates)
    out.push_back({token, summary.log_softmax(row[static_cast<size_t>(token)])});
  return out;
}

Key draw_key(uint64_t seed, int64_t decode, int64_t position) {
  const Key root{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  return fold_in(fold_in(root, static_cast<uint32_t>(decode)), static_cast<uint32_t>(position));
}

TokenChoice choose_token(std::span<float> row, const SamplingParameters& parameters, int64_t decode,
                         int64_t position) {
  TokenChoice choice;
  choice.top = likeliest(row, parameters.alternatives);
  const RowSummary before = summarize(row);
  if (parameters.greedy()) {
    choice.token = static_cast<int32_t>(before.argmax);
    choice.log_prob = choice.model_log_prob = before.log_softmax(before.max);
    return choice;
  }
  const bool truncated = parameters.top_k > 0 || parameters.top_p < 1;
  std::vector<float> scratch;
  divide(row, parameters.temperature);
  if (parameters.top_k > 0 && parameters.top_k < std::ssize(row))
    topk_mask(row, parameters.top_k, kNever, scratch);
  if (parameters.top_p < 1) topp_mask(row, parameters.top_p, kNever, scratch);
  choice.token =
      static_cast<int32_t>(draw(row, draw_key(parameters.seed, decode, position), truncated));
  const float drawn = row[static_cast<size_t>(choice.token)];
  choice.log_prob = summarize(row).log_softmax(drawn);
  choice.model_log_prob = before.log_softmax(drawn * parameters.temperature);
  return choice;
}

}  // namespace quintet::decoding
