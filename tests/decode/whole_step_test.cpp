// A decoder's step in one kernel against the same step in separate kernels and the recorded tokens.

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "models/decoding/gpu/gpu_decoder.h"
#include "tests/decode/decode_fixture.h"
#include "tests/harness/device.h"

namespace quintet::testing {
namespace {

using namespace decoding;

/// Items [first, first + count) of a batch.
HostArrays items_of(const HostArrays& batch, int64_t first, int64_t count) {
  HostArrays part;
  for (const auto& [name, array] : batch) {
    std::vector<int64_t> shape = array.shape;
    const int64_t bytes = std::ssize(array.bytes) / shape[0];
    shape[0] = count;
    HostArray some(array.dtype, shape);
    std::copy_n(array.bytes.begin() + first * bytes, count * bytes, some.bytes.begin());
    part.emplace(name, std::move(some));
  }
  return part;
}

bool is_emulated() { return std::string_view(std::getenv("QUINTET_TEST_DEVICE")) == "emulated"; }

void ask_for_whole_steps(bool asked) { setenv("QUINTET_WHOLE_STEP", asked ? "1" : "0", 1); }

struct Asked {
  int64_t first, count, decodes;
};

class WholeStepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::current().is_cpu()) GTEST_SKIP() << "a GPU's kernel";
  }
  const Json meta = Json::read(decode_file("cases.json"));
  const HostArrays outputs = read_safetensors(decode_file("outputs.safetensors"));
};

/// Of some items of a kind of network's batch.
void expect_recorded(const Json& meta, const HostArrays& outputs, bool encoder, const char* name,
                     const Asked& asked) {
  SCOPED_TRACE(name);
  const std::string kind = encoder ? "encdec" : "decoder_only";
  const HostArrays parameters = read_safetensors(decode_file(kind + ".params.safetensors"));
  const HostArrays batch = items_of(read_safetensors(decode_file(kind + ".batch.safetensors")),
                                    asked.first, asked.count);
  std::unique_ptr<BaseModel> model;
  if (encoder)
    model = model_from(parameters, meta["config"]);
  else
    model = decoder_only_from(parameters, meta["config"], false);
  GpuDecoder decoder(*model);
  PredictOptions options;
  options.eos_id = static_cast<int32_t>(meta["eos_id"].as_int());
  options.inputs_bidirectional_attention = !encoder;
  BeamOptions beam;
  beam.num_decodes = asked.decodes;
  beam.alpha = 0.6f;
  SampleOptions sample;
  sample.temperature = {0.0f};
  sample.rescale_log_probs = false;
  if (asked.decodes > 1)
    options.decode_fn = beam;
  else
    options.decode_fn = sample;
  const Decodes got = encoder ? predict_encoder_decoder(decoder, batch, options)
                              : predict_decoder_only(decoder, batch, options);
  const auto tokens = outputs.at(std::string(name) + "/tokens").as<int32_t>();
  for (int64_t i = 0; i < asked.count * asked.decodes; ++i) {
    const auto want =
        tokens.subspan(static_cast<size_t>((asked.first * asked.decodes + i) * got.length),
                       static_cast<size_t>(got.length));
    const auto sequence = got.sequence(i / asked.decodes, i % asked.decodes);
    EXPECT_EQ(std::vector(sequence.begin(), sequence.end()), std::vector(want.begin(), want.end()))
        << "sequence " << i;
  }
}

TEST_F(WholeStepTest, GivesTheRecordedTokens) {
  ask_for_whole_steps(true);
  expect_recorded(meta, outputs, true, "encdec_greedy_rescale0", {1, 2, 1});
  expect_recorded(meta, outputs, true, "encdec_beam4_alpha0.6", {4, 1, 4});
  expect_recorded(meta, outputs, false, "prefix_lm_greedy", {0, 1, 1});
  expect_recorded(meta, outputs, false, "prefix_lm_beam4", {1, 1, 4});
}

struct Steps {
  std::vector<float> logits;  // [steps, rows, vocab]
  int64_t launches;           // of the first step
};

/// `whole`: by one kernel.
Steps steps_of(const BaseModel& model, int64_t items, int64_t decodes, int64_t steps, bool whole) {
  ask_for_whole_steps(whole);
  GpuDecoder decoder(model);
  const int64_t length = 24, vocab = decoder.vocab_size(), rows = items * decodes;
  std::vector<int32_t> tokens(static_cast<size_t>(items * length));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(2 + i * 7 % static_cast<size_t>(vocab - 2));
  decoder.begin(tokens, items, length, {.num_decodes = decodes, .max_length = steps + 2});
  Steps all{};
  const int64_t before = Device::current().counters().read().launches;
  std::vector<int32_t> ids(static_cast<size_t>(rows)), next(ids.size()), parents(ids.size());
  std::iota(ids.begin(), ids.end(), 0);
  for (int64_t t = 0; t < steps; ++t) {
    const std::vector<int32_t> positions(ids.size(), static_cast<int32_t>(t));
    for (size_t r = 0; r < ids.size(); ++r) {
      next[r] = static_cast<int32_t>((3 * static_cast<int64_t>(r) + 5 * t) % vocab);
      // Beams change places.
      parents[r] = static_cast<int32_t>(static_cast<int64_t>(r) / decodes * decodes +
                                        (static_cast<int64_t>(r) + t) % decodes);
    }
    const auto got =
        decoder.step({.rows = ids, .tokens = next, .positions = positions, .sources = parents});
    if (t == 0) all.launches = Device::current().counters().read().launches - before;
    all.logits.insert(all.logits.end(), got.begin(), got.end());
  }
  return all;
}

/// A step in one kernel has the same logits, but for the order of sums, as separate kernels.
void expect_agreement(const T5Config& config, int64_t steps,
                      std::initializer_list<std::pair<int64_t, int64_t>> rows) {
  EncoderDecoderModel model(config, {});
  model.parameters().initialize(key_from_seed(1));
  for (const auto& [items, decodes] : rows) {
    const Steps separate = steps_of(model, items, decodes, steps, false);
    const Steps whole = steps_of(model, items, decodes, steps, true);
    EXPECT_LT(whole.launches, 10);
    EXPECT_GT(separate.launches, whole.launches + 10);
    const std::vector<float>&want = separate.logits, &got = whole.logits;
    ASSERT_EQ(want.size(), got.size());
    float most = 0, largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_FALSE(std::isnan(got[i])) << i;
      most = std::max(most, std::abs(want[i] - got[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    EXPECT_LT(most, 0.02f * largest) << items << " x " << decodes << " rows";
  }
}

T5Config tiny_config() {
  T5Config config;
  config.dtype = "bfloat16";
  config.mlp_activations = {"gelu", "linear"};
  config.vocab_size = 40;
  config.emb_dim = 32;
  config.num_heads = 3;
  config.head_dim = 16;
  config.mlp_dim = 48;
  config.num_encoder_layers = config.num_decoder_layers = 2;
  return config;
}

TEST_F(WholeStepTest, AgreesWithSeparateKernels) {
  T5Config config = tiny_config();
  if (is_emulated()) return expect_agreement(config, 4, {{1, 1}, {2, 1}, {1, 4}});
  config.vocab_size = 32128;
  config.emb_dim = 768;
  config.num_heads = 12;
  config.head_dim = 64;
  config.mlp_dim = 2048;
  config.num_encoder_layers = config.num_decoder_layers = 12;
  expect_agreement(config, 40, {{1, 1}, {2, 1}, {1, 4}});
}

/// Tied embeddings, whose logits are another kernel's; an MLP whose weights are more than the ring holds.
TEST_F(WholeStepTest, AgreesWithAWideMlpAndTiedEmbeddings) {
  T5Config config = tiny_config();
  config.mlp_activations = {"relu"};
  config.mlp_dim = 1656;
  config.logits_via_embedding = true;
  expect_agreement(config, 3, {{1, 1}});
}

}  // namespace
}  // namespace quintet::testing
