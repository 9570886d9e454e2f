#include "models/decoding/teacher_forced.h"

#include <omp.h>

#include <algorithm>

#include "models/decoding/cpu/cross_keys.h"
#include "models/decoding/cpu/layer_parts.h"
#include "models/decoding/cpu/team_barrier.h"
#include "models/decoding/gpu/gpu_sequences.h"
#include "models/features.h"

namespace quintet::decoding {
namespace {

/// A feature's row.
struct Tokens {
  std::span<const int32_t> all;
  int64_t length;
  explicit Tokens(const HostArray& array) : all(array.as<int32_t>()), length(array.shape[1]) {}
  Tokens(const HostArrays& batch, const std::string& name) : Tokens(feature(batch, name)) {}
  int32_t at(int64_t row, int64_t t) const { return all[static_cast<size_t>(row * length + t)]; }
};

/// The rows of a batch that have a weighted target, as sequences; all rows and their padding where experts serve a
/// batch.
class TargetRows {
 public:
  TargetRows(const PackedNetwork& network, const HostArrays& batch, std::span<const float> weights)
      : network_(network),
        inputs_(batch, "decoder_input_tokens"),
        targets_(batch, "decoder_target_tokens"),
        unmasked_(decoder_token_mask(batch)),
        weights_(weights) {
    QT_ASSERT(!batch.contains("decoder_segment_ids"));
    encoder.whole_batch = decoder.whole_batch = network.spec().has_experts();
    if (!network.spec().decoder_only()) encoder_inputs_.emplace(batch, "encoder_input_tokens");
    if (network.spec().inputs_bidirectional_attention && batch.contains("decoder_causal_attention"))
      prefix_.emplace(batch, "decoder_causal_attention");
    for (int64_t row = 0; row < std::ssize(targets_.all) / targets_.length; ++row) add(row);
  }

  Sequences encoder, decoder;
  std::vector<int64_t> encoded_limits;  // EncodedKeys
  std::vector<int64_t> scored;          // [n] in decoder: tokens that have a target
  std::vector<int64_t> places;          // [n] in [batch, length]
  std::vector<int32_t> targets;         // [n]

 private:
  void add(int64_t row) {
    const auto weight = [&](int64_t t) {
      return weights_[static_cast<size_t>(row * targets_.length + t)];
    };
    bool any = false, padding = false;  // padding: a target that is padding has a weight
    for (int64_t t = 0; t < targets_.length; ++t) {
      any = any || weight(t) != 0;
      padding = padding || (weight(t) != 0 && targets_.at(row, t) <= 0);
    }
    if (!any && !decoder.whole_batch) return;
    padding = padding || decoder.whole_batch;
    if (encoder_inputs_) {
      const auto length = std::span(encoder_inputs_->all)
                              .subspan(static_cast<size_t>(row * encoder_inputs_->length),
                                       static_cast<size_t>(encoder_inputs_->length));
      const int64_t tokens = std::ranges::count_if(length, [](int32_t id) { return id > 0; });
      append(encoder, row, *encoder_inputs_, *encoder_inputs_, *encoder_inputs_,
             padding || tokens == 0);
      for (int64_t i = 0; i < tokens; ++i) encoder.limits.push_back(tokens);
      fill_limits(encoder);
      encoded_limits.push_back(tokens);
    }
    const int64_t first = decoder.size();
    append(decoder, row, inputs_, targets_, Tokens(unmasked_), padding);
    limit_decoder(row, first);
    for (int64_t i = first; i < decoder.size(); ++i) {
      const int64_t t = decoder.positions[static_cast<size_t>(i)];
      if (weight(t) == 0) continue;
      scored.push_back(i);
      places.push_back(row * targets_.length + t);
      targets.push_back(targets_.at(row, t));
    }
  }
  /// An item of the tokens of a row that a mask is above 0 for, and behind them, if asked for, of the others.
  /// `unmasked`: above 0 for tokens that blocks of a network see that masks others.
  void append(Sequences& to, int64_t row, const Tokens& tokens, const Tokens& mask,
              const Tokens& unmasked, bool padding) const {
    for (const bool others : {false, true})
      for (int64_t t = 0; t < tokens.length && (padding || !others); ++t) {
        if ((mask.at(row, t) <= 0) != others) continue;
        to.tokens.push_back(tokens.at(row, t));
        to.positions.push_back(static_cast<int32_t>(t));
        to.uniform.push_back(others ? 1 : 0);
        if (network_.spec().decoder.layer.masks_padding)
          to.masked.push_back(unmasked.at(row, t) <= 0 ? 1 : 0);
      }
    to.begin.push_back(std::ssize(to.tokens));
  }
  /// Of padding, which sees all.
  static void fill_limits(Sequences& s) {
    s.limits.resize(s.tokens.size(), s.length(s.items() - 1));
  }
  /// Causal, but for a prefix whose tokens see one another.
  void limit_decoder(int64_t row, int64_t first) {
    int64_t marked = 0, last = -1;
    for (int64_t i = first; i < decoder.size() && !decoder.is_uniform(i); ++i)
      if (prefix_ && prefix_->at(row, decoder.positions[static_cast<size_t>(i)]) != 0) {
        ++marked;
        last = i;
      }
    QT_CHECK_AS(ExitCode::kData, last < first + marked,
                "decoder_causal_attention of row {} of a batch marks tokens behind others that it "
                "does not: a prefix begins a row",
                row);
    for (int64_t i = 0; i < decoder.size() - first && !decoder.is_uniform(first + i); ++i)
      decoder.limits.push_back(std::max(i + 1, i < marked ? marked : 0));
    fill_limits(decoder);
  }

  const PackedNetwork& network_;
  const Tokens inputs_, targets_;
  const HostArray unmasked_;  // [batch, length]: 0 for padding that blocks may see as zeros
  std::optional<Tokens> encoder_inputs_, prefix_;
  const std::span<const float> weights_;
};

/// Of the rows of x [decoder tokens, embed], the decoder's output before its last norm, that have targets: each
/// rank makes its columns of the logits, and of whole rows of them its share of the results.
std::vector<TokenLoss> losses_of(const PackedNetwork& network, const std::vector<float>& x,
                                 const TargetRows& rows, const LossFactors& factors) {
  constexpr int64_t kLogits = 4 << 20;  // at a time: 16 MB
  SharedMemoryGroup* ranks = network.ranks();
  const int64_t e = network.spec().emb_dim(), vocab = network.spec().vocab_size,
                count = std::ssize(rows.targets);
  const cross_entropy::LossRule rule(factors, vocab);
  const int64_t most = std::clamp<int64_t>(kLogits / vocab, 1, prefill_block_rows(count, 1));
  constexpr int64_t kFloats = sizeof(TokenLoss) / sizeof(float);
  SharedActivations shared(ranks, count * kFloats + most * vocab);
  auto* losses = reinterpret_cast<TokenLoss*>(shared.take(count * kFloats));
  float* logits = shared.take(most * vocab);
  const PackedMatrix& w = network.logits();
  std::optional<TeamBarrier> barrier;
#pragma omp parallel
  {
#pragma omp single
    barrier.emplace(omp_get_num_threads(), ranks);
    const Part thread{omp_get_thread_num(), omp_get_num_threads()};
    const Part of_all = ranks == nullptr ? thread
                                         : Part{ranks->rank() * thread.count + thread.index,
                                                ranks->size() * thread.count};
    PackedRows packed;
    std::vector<float> block;
    for (int64_t first = 0; first < count; first += most) {
      const int64_t now = std::min(most, count - first);
      block.clear();
      for (int64_t i = first; i < first + now; ++i)
        block.insert(block.end(), x.begin() + rows.scored[static_cast<size_t>(i)] * e,
                     x.begin() + (rows.scored[static_cast<size_t>(i)] + 1) * e);
      packed.pack_normalized(block.data(), now, e, network.decoder().norm.data(), kNormEpsilon);
      multiply(packed, w, w.share(thread.index, thread.count),
               [&, to = logits + network.columns(vocab).begin](const Tile& tile) {
                 scale_tile(tile, to, vocab, network.logit_scale());
               });
      barrier->wait_for_ranks();
      for (int64_t i = of_all.begin(now); i < of_all.end(now); ++i)
        losses[first + i] = rule.of(cross_entropy::statistics_of(
            logits + i * vocab, vocab, rows.targets[static_cast<size_t>(first + i)]));
      barrier->wait_for_ranks();
    }
  }
  std::vector<TokenLoss> result(losses, losses + count);
  if (ranks != nullptr) ranks->wait();  // before another pass writes there
  return result;
}

}  // namespace

std::vector<TargetLoss> target_losses(const PackedNetwork& network, const HostArrays& batch,
                                      std::span<const float> weights, const LossFactors& factors,
                                      std::vector<LayerRouting>* routings) {
  const TargetRows rows(network, batch, weights);
  if (rows.targets.empty() && routings == nullptr) return {};
  for (const int32_t target : rows.targets)
    QT_CHECK_AS(ExitCode::kData, target >= 0 && target < network.spec().vocab_size,
                "scores: target {} lies outside the vocabulary of {}", target,
                network.spec().vocab_size);
  std::shared_ptr<float> memory;
  std::vector<SharedKeys> keys;
  if (network.spec().encoder) {
    std::vector<float> encoded =
        run_stack(network, network.encoder(), rows.encoder, nullptr, {}, routings);
    keys = lay_out_cross(network.spec().decoder, rows.encoder, CacheType::native, memory);
    finish_encoding(network, rows.encoder, encoded, keys);
  }
  const std::vector<float> decoded =
      run_stack(network, network.decoder(), rows.decoder, nullptr,
                {.keys = keys, .limits = rows.encoded_limits}, routings);
  if (rows.targets.empty()) return {};
  const std::vector<TokenLoss> losses = losses_of(network, decoded, rows, factors);
  std::vector<TargetLoss> result;
  for (size_t i = 0; i < losses.size(); ++i) result.push_back({rows.places[i], losses[i]});
  return result;
}

HostArray target_log_probs(const PackedNetwork& network, const HostArrays& batch,
                           std::span<const float> weights) {
  HostArray result(DType::f32, feature(batch, "decoder_target_tokens").shape);
  std::ranges::fill(result.as<float>(), -0.0F);
  for (const auto& [place, loss] : target_losses(network, batch, weights, {}))
    result.as<float>()[static_cast<size_t>(place)] = static_cast<float>(loss.log_probability);
  return result;
}

Metrics eval_metrics(const BaseModel& model, const PackedNetwork& network,
                     const HostArrays& batch) {
  const LossOptions& options = model.loss_options();
  return model.eval_fn(batch, [&](std::span<const float> weights) {
    BaseModel::LossSums sums;
    for (const auto& [place, loss] :
         target_losses(network, batch, weights, {options.label_smoothing, options.z_loss},
                       model.spec().has_experts() ? &sums.routings : nullptr)) {
      const auto weight = static_cast<double>(weights[static_cast<size_t>(place)]);
      sums.loss += weight * loss.loss;
      sums.z_loss += weight * loss.z_loss;
      sums.correct += loss.correct;
    }
    return sums;
  });
}

Metrics eval_metrics(const BaseModel& model, const GpuWeights& network, const HostArrays& batch) {
  const Alone alone;
  return model.eval_fn(batch, run_targets(network, batch));
}

BaseModel::TokenScores score_tokens(const PackedNetwork& network, const HostArrays& batch) {
  HostArray weights = unscaled_loss_weights(batch, {});
  const auto w = std::as_const(weights).as<float>();
  BaseModel::TokenScores tokens{target_log_probs(network, batch, w), {}};
  const auto scores = tokens.scores.as<float>();
  for (size_t i = 0; i < w.size(); ++i) scores[i] *= w[i];
  tokens.weights = std::move(weights);
  return tokens;
}

BaseModel::TokenScores score_tokens(const GpuWeights& network, const HostArrays& batch) {
  const Alone alone;
  return BaseModel::score_tokens(batch, run_targets(network, batch));
}

}  // namespace quintet::decoding
