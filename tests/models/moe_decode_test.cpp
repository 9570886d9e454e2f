// Generation with experts: step by step as all at once, as long as nobody is turned away; on a GPU
// what the CPU writes.

#include <gtest/gtest.h>

#include <numeric>

#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/predict.h"
#include "models/serving/served_network.h"
#include "tests/decode/random_parameters.h"
#include "tests/models/sparse_network.h"

namespace quintet::testing {
namespace {

using namespace decoding;

constexpr int64_t kRows = 5, kInputs = 6, kTargets = 7;

bool on_cpu() { return Device::current().is_cpu(); }

HostArray tokens(int64_t rows, int64_t length, uint32_t seed) {
  HostArray array(DType::i32, {rows, length});
  for (size_t i = 0; i < array.as<int32_t>().size(); ++i)
    array.as<int32_t>()[i] =
        2 + static_cast<int32_t>(random_bits(key_from_seed(seed), i) % (kSparseVocab - 2));
  return array;
}

/// Inputs that end at different places.
HostArray inputs(int64_t rows) {
  HostArray array = tokens(rows, kInputs, 1);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = kInputs - row % 3; i < kInputs; ++i)
      array.as<int32_t>()[static_cast<size_t>(row * kInputs + i)] = 0;
  return array;
}

/// Logits of every target, fed one after another.
void expect_steps_agree(const SparseNetwork& network) {
  const HostArrays batch{{"encoder_input_tokens", inputs(kRows)},
                         {"decoder_target_tokens", tokens(kRows, kTargets, 2)},
                         {"decoder_input_tokens", tokens(kRows, kTargets, 3)}};
  const HostArray whole = network.model->logits(batch).to_host();
  const CacheOptions cache{.num_decodes = 1, .max_length = kTargets};
  const auto begun = [&](auto decoder) {
    const auto encoded = batch.at("encoder_input_tokens").as<int32_t>();
    const std::vector<int32_t> no_prefix(kRows);
    if (network.decoder_only())
      decoder->begin_prefix(encoded, kRows, kInputs, no_prefix, false, cache);
    else
      decoder->begin(encoded, kRows, kInputs, cache);
    return decoder;
  };
  std::unique_ptr<PackedNetwork> packed;
  std::unique_ptr<TokenModel> decoder;
  if (on_cpu()) {
    packed = network.packed();
    decoder = begun(std::make_unique<TransformerDecoder>(*packed));
  } else {
    decoder = begun(std::make_unique<GpuDecoder>(*network.model));
  }
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  for (int32_t t = 0; t < kTargets; ++t) {
    std::vector<int32_t> next;
    for (int64_t row = 0; row < kRows; ++row)
      next.push_back(
          batch.at("decoder_input_tokens").as<int32_t>()[static_cast<size_t>(row * kTargets + t)]);
    const std::vector<int32_t> positions(kRows, t);
    const auto got =
        decoder->step({.rows = rows, .tokens = next, .positions = positions, .sources = {}});
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t v = 0; v < kSparseVocab; ++v)
        ASSERT_NEAR(got[static_cast<size_t>(row * kSparseVocab + v)],
                    whole.as<float>()[static_cast<size_t>((row * kTargets + t) * kSparseVocab + v)],
                    2e-4)
            << "row " << row << ", step " << t;
  }
}

TEST(MoeDecoding, StepsAgreeWithTheWhole) {
  for (const SparseOptions& options : sparse_kinds()) {
    SCOPED_TRACE(options.name());
    expect_steps_agree(sparse_network(options));
  }
}

/// A search of each kind, over rows that few products take and that many do.
TEST(MoeDecoding, ADeviceWritesWhatTheCpuWrites) {
  if (on_cpu()) GTEST_SKIP() << "needs a GPU, emulated or real";
  BeamOptions beams;
  beams.num_decodes = 2;
  SampleOptions greedy, samples;
  samples.num_decodes = 2;
  samples.topk = 5;
  samples.decode_rng = key_from_seed(4);
  for (const size_t kind : {0, 3, 5, 6, 8, 12, 13, 14}) {
    const SparseOptions options = sparse_kinds()[kind];
    const SparseNetwork network = sparse_network(options);
    const auto packed = network.packed();
    GpuDecoder device(*network.model);
    for (const int64_t items : {3, 7}) {
      HostArrays batch{{"encoder_input_tokens", inputs(items)},
                       {"decoder_input_tokens", tokens(items, kTargets, 3)},
                       {"decoder_causal_attention", HostArray(DType::i32, {items, kTargets})}};
      if (network.decoder_only())  // three tokens to go on from, the first before the text
        for (int64_t i = 0; i < items; ++i)
          for (size_t t = 0; t < 3; ++t) {
            const size_t at = static_cast<size_t>(i * kTargets) + t;
            batch["decoder_causal_attention"].as<int32_t>()[at] = 1;
            if (t == 0) batch["decoder_input_tokens"].as<int32_t>()[at] = 0;
          }
      PredictOptions predict;
      for (const DecodeFn& search : {DecodeFn(beams), {greedy}, {samples}}) {
        SCOPED_TRACE(fmt::format("{}, {} items, search {}", options.name(), items, search.index()));
        predict.decode_fn = search;
        const auto run = [&](auto& on) {
          return network.decoder_only() ? predict_decoder_only(on, batch, predict)
                                        : predict_encoder_decoder(on, batch, predict);
        };
        const Decodes want = run(*packed), got = run(device);
        EXPECT_EQ(got.tokens, want.tokens);
        ASSERT_EQ(got.scores.size(), want.scores.size());
        for (size_t i = 0; i < want.scores.size(); ++i)
          EXPECT_NEAR(got.scores[i], want.scores[i], 1e-4);  // as fixtures/decode
      }
    }
  }
}

TEST(MoeDecoding, RefusesExpertsThatChooseLaterTokens) {
  SparseOptions options;
  T5Config c = sparse_config<T5Config>(options);
  c.decoder.sparse.moe.router.kind = Router::experts_choose;
  const auto parameters = parameters_of<Transformer>(c, 1);
  const PackedNetwork network(spec_of(c), [&](const std::string& name) {
    const HostArray& array = parameters.at(name);
    return View::of(array.as<float>().data(), array.shape);
  });
  EXPECT_THROW(TransformerDecoder{network}, Error);
  EXPECT_THROW(serving::cpu_network(network, {}), Error);
  if (on_cpu()) return;
  EXPECT_THROW(GpuDecoder(EncoderDecoderModel(c, {})), Error);
}

}  // namespace
}  // namespace quintet::testing
