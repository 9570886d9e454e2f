#include "data/configurables/preprocessor_configurables.h"
#include "data/preprocessors/denoise.h"
#include "data/preprocessors/prefix_lm_packing.h"
#include "data/preprocessors/token_preprocessors.h"
#include "data/tasks/gin_types.h"
#include "runtime/gin/config.h"

namespace quintet::data {
namespace {

using gin::Registry;
using gin::Value;
using gin::Where;

void add_split_to_length(Registry& r, const char* name, const char* length_of,
                         std::optional<int64_t> least) {
  r.add_function(name,
                 [=](std::string key, std::optional<std::vector<std::string>> additional,
                     std::optional<std::vector<std::string>> passthrough) -> PreprocessorPtr {
                   SplitTokensToLength split;
                   split.length_of = length_of;
                   split.min_tokens_per_segment = least;
                   split.feature_key = std::move(key);
                   split.additional_feature_keys = additional.value_or(std::vector<std::string>{});
                   split.passthrough_feature_keys =
                       passthrough.value_or(std::vector<std::string>{});
                   return std::make_shared<SplitTokensToLength>(split);
                 },
                 {{"feature_key", "targets"},
                  {"additional_feature_keys", nullptr},
                  {"passthrough_feature_keys", nullptr}});
}

void register_ids(Registry& r) {
  r.add_struct<AppendEos>("seqio.preprocessors.append_eos");
  r.add_struct<AppendEosAfterTrim>("seqio.preprocessors.append_eos_after_trim");
  r.add_struct<TruncateInputsLeft>("seqio.preprocessors.truncate_inputs_left");
  auto front = r.add_struct<TrimTokensAtFront>("t5.data.preprocessors.trim_tokens_at_front");
  add_names(front, "keys_to_trim", &TrimTokensAtFront::keys_to_trim);

  auto chunk = r.add_struct<SelectRandomChunk>("t5.data.preprocessors.select_random_chunk");
  chunk.arg("max_length", &SelectRandomChunk::max_length)
      .arg("feature_key", &SelectRandomChunk::feature_key)
      .arg("uniform_random_start", &SelectRandomChunk::uniform_random_start)
      .arg("min_length", &SelectRandomChunk::min_length);
  add_names(chunk, "additional_feature_keys", &SelectRandomChunk::additional_feature_keys);
  add_names(chunk, "passthrough_feature_keys", &SelectRandomChunk::passthrough_feature_keys);

  r.add_struct<ReduceConcatTokens>("t5.data.preprocessors.reduce_concat_tokens")
      .arg("feature_key", &ReduceConcatTokens::feature_key)
      .arg("batch_size", &ReduceConcatTokens::batch_size);

  auto split = r.add_struct<SplitTokens>("t5.data.preprocessors.split_tokens");
  split.arg("min_tokens_per_segment", &SplitTokens::min_tokens_per_segment)
      .required("max_tokens_per_segment", &SplitTokens::max_tokens_per_segment)
      .arg("feature_key", &SplitTokens::feature_key);
  add_names(split, "additional_feature_keys", &SplitTokens::additional_feature_keys);
  add_names(split, "passthrough_feature_keys", &SplitTokens::passthrough_feature_keys);

  constexpr int64_t kShortestRandomPiece = 8;
  add_split_to_length(r, "t5.data.preprocessors.split_tokens_to_inputs_length", "inputs", {});
  add_split_to_length(r, "t5.data.preprocessors.split_tokens_to_targets_length", "targets", {});
  add_split_to_length(r, "t5.data.preprocessors.split_tokens_to_random_length", "inputs",
                      kShortestRandomPiece);
  r.add_struct<ConcatenateAndSplitToFixedLength>(
       "t5.data.preprocessors.concatenate_and_split_to_fixed_length")
      .arg("feature_key", &ConcatenateAndSplitToFixedLength::feature_key);
  r.add_struct<FullLm>("t5.data.preprocessors.full_lm");

  r.add_struct<CacheDatasetPlaceholder>("seqio.dataset_providers.CacheDatasetPlaceholder")
      .arg("required", &CacheDatasetPlaceholder::required)
      .accepted("file_shuffle_buffer_size");
  r.add_alias("seqio.CacheDatasetPlaceholder", "seqio.dataset_providers.CacheDatasetPlaceholder");
}

/// sentinel_id.return_value, which the noise functions ask for.
std::optional<int32_t> configured_sentinel(const gin::Arguments& a) {
  return a.config()
      .arguments("t5.data.preprocessors.sentinel_id")
      .get_or<std::optional<int32_t>>("return_value", std::nullopt);
}

void register_noise(Registry& r, const std::string& t5) {
  r.add_method(t5 + "sentinel_id", {{"return_value", nullptr}});
  for (const std::string& name : noise_fn_names())
    r.add(t5 + name, {}, [name](const gin::Arguments& a) {
      return gin::to_value(noise_fn(name, configured_sentinel(a)));
    });
  r.add_struct<NoiseTokenToRandomToken>(t5 + "noise_token_to_random_token")
      .arg("num_reserved_tokens", &NoiseTokenToRandomToken::num_reserved_tokens);
  r.add(t5 + "noise_token_to_random_token_or_sentinel",
        {{"random_prob", NoiseTokenToRandomTokenOrSentinel{}.random_prob}},
        [t5](const gin::Arguments& a) {
          NoiseTokenToRandomTokenOrSentinel fn;
          fn.random_prob = a.get<double>("random_prob");
          fn.random_token =
              a.config().call_as<NoiseTokenToRandomToken>(t5 + "noise_token_to_random_token");
          fn.sentinel = configured_sentinel(a);
          return gin::to_value(NoiseFnPtr(std::make_shared<decltype(fn)>(fn)));
        });
  r.add_struct<IidNoiseMask>(t5 + "iid_noise_mask");
  r.add_struct<RegularNoiseMask>(t5 + "regular_noise_mask")
      .arg("min_span_length", &RegularNoiseMask::min_span_length)
      .arg("max_span_length", &RegularNoiseMask::max_span_length);
  r.add_struct<RandomSpansNoiseMask>(t5 + "random_spans_noise_mask")
      .arg("mean_noise_span_length", &RandomSpansNoiseMask::mean_noise_span_length)
      .arg("random_roll", &RandomSpansNoiseMask::random_roll);
  r.add_struct<RandomPrefixNoiseMask>(t5 + "random_prefix_noise_mask");
}

/// random_spans_helper and the two functions that give one of its numbers.
void register_spans_lengths(Registry& r, const std::string& t5) {
  r.add_function(t5 + "random_spans_helper",
                 [](int64_t inputs_length, double noise_density, double mean_noise_span_length,
                    int64_t extra_inputs, int64_t extra_targets, bool) {
                   const SpansLengths lengths =
                       random_spans_helper(inputs_length, noise_density, mean_noise_span_length,
                                           extra_inputs, extra_targets);
                   return std::pair(lengths.tokens_length, lengths.targets_length);
                 },
                 {"inputs_length",
                  "noise_density",
                  "mean_noise_span_length",
                  "extra_tokens_per_span_inputs",
                  "extra_tokens_per_span_targets",
                  {"verbose", false}});
  const auto lengths_of = [t5](const gin::Arguments& a) {
    return a.config().call_as<std::pair<int64_t, int64_t>>(t5 + "random_spans_helper");
  };
  r.add(t5 + "random_spans_tokens_length", {},
        [lengths_of](const gin::Arguments& a) { return Value(lengths_of(a).first); });
  r.add(t5 + "random_spans_targets_length", {},
        [lengths_of](const gin::Arguments& a) { return Value(lengths_of(a).second); });
}

void register_denoising(Registry& r, const std::string& t5) {
  auto denoise = r.add_struct<Denoise>(t5 + "denoise");
  denoise.required("noise_density", &Denoise::noise_density)
      .required("noise_mask_fn", &Denoise::noise_mask_fn)
      .required("inputs_fn", &Denoise::inputs_fn)
      .arg("targets_fn", &Denoise::targets_fn)
      .arg("input_feature_key", &Denoise::input_feature_key);
  add_names(denoise, "passthrough_feature_keys", &Denoise::passthrough_feature_keys);

  auto spans = r.add_struct<SpanCorruption>(t5 + "span_corruption");
  spans.arg("mean_noise_span_length", &SpanCorruption::mean_noise_span_length)
      .arg("noise_density", &SpanCorruption::noise_density)
      .arg("input_feature_key", &SpanCorruption::input_feature_key)
      .arg("merge_examples_to_reduce_padding", &SpanCorruption::merge_examples_to_reduce_padding)
      .arg("reserved_for_packing", &SpanCorruption::reserved_for_packing);
  add_names(spans, "passthrough_feature_keys", &SpanCorruption::passthrough_feature_keys);
  r.add_struct<IidDenoising>(t5 + "iid_denoising");
  r.add_struct<PrefixLm>(t5 + "prefix_lm").arg("noise_density", &PrefixLm::noise_density);
  r.add_struct<Unsupervised>(t5 + "unsupervised")
      .arg_with("preprocessors", nullptr,
                [](Unsupervised& object, const Value& value, const Where& where) {
                  if (!value.is_none())
                    object.preprocessors = gin::as<std::vector<PreprocessorPtr>>(value, where);
                });
  r.add_struct<TargetsForPrefixLmObjective>(t5 + "targets_for_prefix_lm_objective");
  r.add_struct<PackPrefixLmEncoderDecoder>(t5 + "pack_prefix_lm_encoder_decoder")
      .arg("pad_id", &PackPrefixLmEncoderDecoder::pad_id);
  r.add_struct<PackPrefixLmDecoderOnly>(t5 + "pack_prefix_lm_decoder_only")
      .arg("loss_on_targets_only", &PackPrefixLmDecoderOnly::loss_on_targets_only)
      .arg("pad_id", &PackPrefixLmDecoderOnly::pad_id);
}

}  // namespace

void register_token_preprocessors(Registry& r) {
  const std::string t5 = "t5.data.preprocessors.";
  register_ids(r);
  register_noise(r, t5);
  register_spans_lengths(r, t5);
  register_denoising(r, t5);
}

void register_preprocessors(Registry& r) {
  register_text_preprocessors(r);
  register_token_preprocessors(r);
}

}  // namespace quintet::data
