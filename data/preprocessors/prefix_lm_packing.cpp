#include "data/preprocessors/prefix_lm_packing.h"

#include <algorithm>
#include <numeric>

#include "data/converters/feature_converter.h"
#include "data/converters/packing.h"
#include "data/examples/random.h"
#include "data/preprocessors/token_preprocessors.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// The length that all features share.
int64_t packed_length(const PreprocessContext& context, std::string_view who) {
  QT_CHECK(context.sequence_length && !context.sequence_length->empty(), "{}: needs lengths", who);
  const int64_t length = context.sequence_length->front().second;
  for (const auto& [name, other] : *context.sequence_length)
    QT_CHECK(other == length && length % 2 == 0,
             "{}: task_feature_lengths must be one even number; '{}' is {}, '{}' {}", who,
             context.sequence_length->front().first, length, name, other);
  return length;
}

const Tokens& sequence(const Example& example, int64_t length) {
  const Tokens& tokens = example.tokens("targets");
  QT_CHECK_AS(ExitCode::kData, static_cast<int64_t>(tokens.size()) == length,
              "targets have {} ids, expected {}: use targets_for_prefix_lm_objective before",
              tokens.size(), length);
  return tokens;
}

Tokens not_padding(const Tokens& tokens, int32_t pad_id) {
  Tokens weights(tokens.size());
  std::transform(tokens.begin(), tokens.end(), weights.begin(),
                 [pad_id](int32_t id) { return id != pad_id; });
  return weights;
}

/// first[begin_a, end_a) and then second[begin_b, end_b), with segment ids and positions.
struct Joined {
  Tokens tokens, segments, positions;
  void add(const Tokens& from, int64_t begin, int64_t end, int32_t segment) {
    tokens.insert(tokens.end(), from.begin() + begin, from.begin() + end);
    segments.resize(tokens.size(), segment);
    const size_t start = positions.size();
    positions.resize(tokens.size());
    std::iota(positions.begin() + static_cast<std::ptrdiff_t>(start), positions.end(), 0);
  }
};

}  // namespace

StreamPtr TargetsForPrefixLmObjective::apply(StreamPtr input,
                                             const PreprocessContext& context) const {
  input = FullLm{}.apply(std::move(input), context);
  return trim_and_pad(std::move(input),
                      {{"targets", context.length("targets", "targets_for_prefix_lm_objective")}});
}

StreamPtr PackPrefixLmEncoderDecoder::apply(StreamPtr input,
                                            const PreprocessContext& context) const {
  const int64_t length = packed_length(context, "pack_prefix_lm_encoder_decoder");
  return group_stream(std::move(input), 2,
                      [length, pad = pad_id](std::vector<Example>& in, std::vector<Example>& out) {
                        if (in.size() < 2) return;
                        const Tokens &first = sequence(in[0], length),
                                     &second = sequence(in[1], length);
                        const int64_t split = 1 + Random(take_key(in[0])).below(length - 1);
                        Joined encoder, decoder;
                        encoder.add(first, 0, split, 1);
                        encoder.add(second, 0, length - split, 2);
                        decoder.add(first, split, length, 1);
                        decoder.add(second, length - split, length, 2);
                        Example& row = out.emplace_back();
                        row.set("decoder_input_tokens",
                                make_autoregressive_inputs(decoder.tokens, decoder.segments, 0));
                        row.set("decoder_loss_weights", not_padding(decoder.tokens, pad));
                        row.set("encoder_input_tokens", std::move(encoder.tokens));
                        row.set("encoder_segment_ids", std::move(encoder.segments));
                        row.set("encoder_positions", std::move(encoder.positions));
                        row.set("decoder_target_tokens", std::move(decoder.tokens));
                        row.set("decoder_segment_ids", std::move(decoder.segments));
                        row.set("decoder_positions", std::move(decoder.positions));
                      });
}

StreamPtr PackPrefixLmDecoderOnly::apply(StreamPtr input, const PreprocessContext& context) const {
  const int64_t length = packed_length(context, "pack_prefix_lm_decoder_only");
  return map_stream(std::move(input), [*this, length](Example& example) {
    Tokens targets = sequence(example, length);
    const int64_t split = 1 + Random(take_key(example)).below(length - 1);
    Tokens weights = not_padding(targets, pad_id), visible(targets.size());
    for (int64_t i = 0; i < length; ++i) {
      if (loss_on_targets_only && i < split) weights[static_cast<size_t>(i)] = 0;
      visible[static_cast<size_t>(i)] = i <= split;
    }
    example.clear();
    example.set("decoder_input_tokens", make_autoregressive_inputs(targets, {}, 0));
    example.set("decoder_target_tokens", std::move(targets));
    example.set("decoder_loss_weights", std::move(weights));
    example.set("decoder_causal_attention", std::move(visible));
    return true;
  });
}

}  // namespace quintet::data
