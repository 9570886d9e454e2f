// Networks that several ranks hold together, threads here: every rank has the logits of one rank alone, bit
// for bit, and holds its share of the weights.

#include <gtest/gtest.h>
#include <omp.h>

#include <map>
#include <numeric>
#include <thread>

#include "models/base_model.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/teacher_forced.h"
#include "tests/decode/random_parameters.h"
#include "tests/harness/threads.h"

namespace quintet::testing {
namespace {

using namespace decoding;

constexpr int64_t kItems = 3, kLength = 9, kSteps = 4;

template <class Config>
Config small_config() {
  Config c;
  c.vocab_size = 301, c.emb_dim = 90, c.num_heads = 3, c.head_dim = 10, c.mlp_dim = 140;
  c.mlp_activations = {"gelu", "linear"};
  return c;
}

T5Config encoder_decoder() {
  auto c = small_config<T5Config>();
  c.num_encoder_layers = 2, c.num_decoder_layers = 2;
  return c;
}

using Arrays = std::map<std::string, HostArray>;

struct Got {
  std::vector<float> logits;  // of all steps
  int64_t bytes = 0;          // of the weights
};

/// What a rank gets of some inputs, and how much of the network it holds.
Got decode(const ModelSpec& spec, const Arrays& parameters, WeightType type,
           SharedMemoryGroup* ranks, CacheType cache_type = CacheType::native) {
  use_threads(ranks == nullptr ? 2 : 1 + ranks->rank());
  const PackedNetwork network(
      spec,
      [&](const std::string& name) {
        const HostArray& array = parameters.at(name);
        return View::of(array.as<float>().data(), array.shape);
      },
      type, ranks);
  std::vector<int32_t> inputs;
  for (int32_t i = 0; i < kItems * kLength; ++i) inputs.push_back((i * 37 + 5) % 300 + 1);
  inputs[kLength - 1] = 0;  // padding
  TransformerDecoder decoder(network);
  const CacheOptions cache{.num_decodes = 1, .max_length = kLength + kSteps, .type = cache_type};
  if (spec.decoder_only())
    decoder.begin_prefix(inputs, kItems, kLength, std::vector<int32_t>(kItems, kLength), true,
                         cache);
  else
    decoder.begin(inputs, kItems, kLength, cache);
  Got got{.logits = {}, .bytes = network.bytes()};
  std::vector<int32_t> rows(kItems), tokens(kItems, 0);
  std::iota(rows.begin(), rows.end(), 0);
  for (int32_t t = 0; t < kSteps; ++t) {
    const std::vector<int32_t> positions(kItems, spec.decoder_only() ? t + kLength : t);
    const auto logits =
        decoder.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = {}});
    got.logits.insert(got.logits.end(), logits.begin(), logits.end());
    for (size_t r = 0; r < rows.size(); ++r) tokens[r] = (tokens[r] * 3 + 7 + t) % 300;
  }
  return got;
}

void expect_ranks_agree(const ModelSpec& spec, const Arrays& parameters) {
  for (const auto& [type, cache] : {std::pair(WeightType::f32, CacheType::native),
                                    {WeightType::bf16, CacheType::native},
                                    {WeightType::int8_dynamic, CacheType::native},
                                    {WeightType::f32, CacheType::int8}}) {
    const Got alone = decode(spec, parameters, type, nullptr, cache);
    for (const int size : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}, caches {}", size, name_of(type), name_of(cache)));
      const SharedMemoryGroup::File file;
      std::vector<Got> got(static_cast<size_t>(size));
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < size; ++rank)
        ranks.emplace_back([&, rank] {
          SharedMemoryGroup group(file.path(), {rank, size}, {.timeout_seconds = 0, .end = {}});
          got[static_cast<size_t>(rank)] = decode(spec, parameters, type, &group, cache);
        });
      for (std::thread& rank : ranks) rank.join();
      int64_t bytes = 0;
      for (const Got& one : got) {
        EXPECT_EQ(one.logits, alone.logits);
        EXPECT_LT(one.bytes, alone.bytes * 3 / 4);
        bytes += one.bytes;
      }
      // Of all ranks, what one has, but for panels that are filled up.
      EXPECT_GE(bytes, alone.bytes);
      EXPECT_LT(bytes, alone.bytes * 3 / 2);
    }
  }
}

TEST(TensorParallel, AnEncoderDecoderGivesOneRanksBits) {
  T5Config config = encoder_decoder();
  for (const bool tied : {true, false}) {
    config.logits_via_embedding = tied;
    expect_ranks_agree(spec_of(config), parameters_of<Transformer>(config, 0.25F));
  }
}

TEST(TensorParallel, ADecoderGivesOneRanksBits) {
  auto config = small_config<TransformerConfig>();
  config.num_layers = 2;
  expect_ranks_agree(spec_of(config), parameters_of<DecoderOnlyTransformer>(config, 0.25F));
}

/// A network with experts in one layer of each stack: routers of `kind` in the encoder, with `capacity`.
T5Config sparse_encoder_decoder(Router kind = Router::tokens_choose, int64_t capacity = 0) {
  T5Config config = encoder_decoder();
  SparseStack& decoder = config.decoder.sparse;
  decoder.num_sparse_layers = 1;
  decoder.moe.num_experts = 4, decoder.moe.mlp_dim = 150;
  decoder.moe.activations = {"gelu", "linear"};
  decoder.moe.router.num_selected_experts = 2;
  config.decoder.sparse_layers.extra_mlp = true;
  config.encoder = config.decoder;
  SparseStack& encoder = config.encoder.sparse;
  encoder.moe.activations = {"relu"};
  encoder.moe.expert_capacity = capacity;
  encoder.moe.router.kind = kind;
  encoder.moe.router.num_selected_experts = 1;
  return config;
}

TEST(TensorParallel, ExpertsGiveOneRanksBits) {
  for (const T5Config& config :
       {sparse_encoder_decoder(), sparse_encoder_decoder(Router::tokens_choose, 2),
        sparse_encoder_decoder(Router::experts_choose)})
    expect_ranks_agree(spec_of(config), parameters_of<Transformer>(config, 0.25F));
  auto config = small_config<TransformerConfig>();
  config.num_layers = 2;
  config.decoder = sparse_encoder_decoder().decoder;
  expect_ranks_agree(spec_of(config), parameters_of<DecoderOnlyTransformer>(config, 0.25F));
}

/// Odd rows: tokens missing in the middle, weighted padding, no inputs, no weights, a prefix.
HostArrays odd_batch(bool with_inputs) {
  const int64_t rows = 5;
  HostArrays batch;
  const auto make = [&](const std::string& name, int32_t factor) {
    HostArray& array = batch[name] = HostArray(DType::i32, {rows, kLength});
    for (int32_t i = 0; int32_t & id : array.as<int32_t>()) id = ++i * factor % 300 + 1;
    return array.as<int32_t>();
  };
  const auto targets = make("decoder_target_tokens", 37), input = make("decoder_input_tokens", 41);
  const auto weights = make("decoder_loss_weights", 0),
             prefix = make("decoder_causal_attention", 0);
  for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = i % kLength < 3;
  targets[2] = 0, weights[2] = 0;  // in the middle
  for (size_t t = 5; t < kLength; ++t) targets[kLength + t] = input[kLength + t] = 0;  // weighted
  targets[kLength + 1] = 0;
  for (size_t t = 0; t < kLength; ++t) weights[3 * kLength + t] = 0;
  if (!with_inputs) return batch;
  const auto inputs = make("encoder_input_tokens", 43);
  inputs[4] = inputs[8] = 0;
  for (size_t t = 0; t < kLength; ++t) inputs[2 * kLength + t] = 0;
  inputs[kLength + 3] = inputs[kLength + 8] = 0;
  return batch;
}

/// What a pass gives, by one rank and by several, to the bit.
template <class Pass>
auto result_of_ranks(const BaseModel& model, const Arrays& parameters, const Pass& pass) {
  const auto run = [&](SharedMemoryGroup* ranks) {
    use_threads(ranks == nullptr ? 2 : 1 + ranks->rank());
    return pass(PackedNetwork(
        model.spec(),
        [&](const std::string& name) {
          const HostArray& array = parameters.at(name);
          return View::of(array.as<float>().data(), array.shape);
        },
        WeightType::f32, ranks));
  };
  const auto alone = run(nullptr);
  for (const int size : {2, 3}) {
    const SharedMemoryGroup::File file;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back([&, rank] {
        SharedMemoryGroup group(file.path(), {rank, size}, {.timeout_seconds = 0, .end = {}});
        EXPECT_EQ(run(&group), alone) << "rank " << rank << " of " << size;
      });
    for (std::thread& rank : ranks) rank.join();
  }
  return alone;
}

void expect_scores_agree(const BaseModel& model, const Arrays& parameters) {
  const HostArrays batch = odd_batch(!model.spec().decoder_only());
  const HostArray weights = unscaled_loss_weights(batch, {});
  const auto alone = result_of_ranks(model, parameters, [&](const PackedNetwork& network) {
    const HostArray found = target_log_probs(network, batch, weights.as<float>());
    return std::vector<float>(found.as<float>().begin(), found.as<float>().end());
  });
  const auto whole = model.score_tokens(batch);
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_NEAR(alone[i] * weights.as<float>()[i], whole.scores.as<float>()[i], 2e-5) << i;
}

void expect_losses_agree(const BaseModel& model, const Arrays& parameters) {
  HostArrays batch = odd_batch(!model.spec().decoder_only());
  // Of a third of the targets the model is right.
  const Tensor logits = model.logits(batch);
  const auto vocabulary = static_cast<size_t>(model.vocab_size());
  const auto targets = batch.at("decoder_target_tokens").as<int32_t>();
  for (size_t i = 0; i < targets.size(); i += 3) {
    const float* row = logits.local().data<float>() + i * vocabulary;
    if (targets[i] > 0)
      targets[i] = static_cast<int32_t>(std::max_element(row + 1, row + vocabulary) - row);
  }
  const auto alone = result_of_ranks(model, parameters, [&](const PackedNetwork& network) {
    std::map<std::string, double> values;
    for (const auto& [name, metric] : eval_metrics(model, network, batch))
      values[name] = metric.value();
    return values;
  });
  const Metrics whole = model.eval_fn(batch);
  EXPECT_EQ(alone.size(), whole.size());
  for (const auto& [name, metric] : whole)
    EXPECT_NEAR(alone.at(name), metric.value(), 2e-6 * std::abs(metric.value())) << name;
  EXPECT_GT(alone.at("accuracy"), 0);
  EXPECT_GT(alone.at("z_loss"), 0);
}

template <class Model, class... More>
void expect_agree(const auto& config, const Arrays& parameters, More... more) {
  LossOptions options;
  options.z_loss = 0.01, options.aux_loss_factor = 0.5, options.router_z_loss_factor = 0.25;
  Model model(config, options, more...);
  model.parameters().load(parameters);
  expect_scores_agree(model, parameters);
  expect_losses_agree(model, parameters);
}

/// Calls check(model, parameters) with models of each kind.
template <class Check>
void for_models(const Check& check) {
  const LossOptions options{
      .label_smoothing = 0.1,
      .z_loss = 0.01,
      .loss_normalizing_factor = SpecialLossNormalizingFactor::kAveragePerSequence};
  const auto with = [&](auto&& model, const Arrays& parameters) {
    model.parameters().load(parameters);
    check(model, parameters);
  };
  T5Config config = encoder_decoder();
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied);
    config.logits_via_embedding = tied;
    with(EncoderDecoderModel(config, options), parameters_of<Transformer>(config, 0.25F));
  }
  auto decoder = small_config<TransformerConfig>();
  decoder.num_layers = 2;
  for (const bool bidirectional : {true, false}) {
    SCOPED_TRACE(bidirectional);
    with(DecoderOnlyModel(decoder, options, bidirectional),
         parameters_of<DecoderOnlyTransformer>(decoder, 0.25F));
  }
}

TEST(TensorParallel, ScoresAreOneRanksBits) { for_models(expect_scores_agree); }

TEST(TensorParallel, LossesAreOneRanksBits) { for_models(expect_losses_agree); }

/// Of whole batches, with padding and rows without weights, where experts have no room for all.
TEST(TensorParallel, ResultsOfExpertsAreOneRanksBits) {
  for (const Router decoder : {Router::tokens_choose, Router::scatter, Router::experts_choose})
    for (const Router encoder : {Router::tokens_choose, Router::experts_choose})
      for (const bool masks : {true, false}) {
        SCOPED_TRACE(
            fmt::format("{} {} {}", static_cast<int>(decoder), static_cast<int>(encoder), masks));
        T5Config config = sparse_encoder_decoder(encoder);
        config.masks_padding = masks;
        MoeConfig& moe = config.decoder.sparse.moe;
        moe.router.kind = decoder;
        moe.min_expert_capacity = 1;
        moe.router.ignore_padding_tokens = decoder == Router::scatter;
        moe.router.batch_prioritized_routing = decoder == Router::tokens_choose;
        expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
      }
  for (const bool dropless : {true, false}) {
    SCOPED_TRACE(dropless);
    T5Config config = sparse_encoder_decoder();
    config.masks_padding = true;
    SparseStack& decoder = config.decoder.sparse;
    decoder.moe.dropless = dropless;
    if (!dropless) decoder.moe.expert_capacity = 2, decoder.moe.router.num_selected_experts = 1;
    expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
  }
  auto config = small_config<TransformerConfig>();
  config.num_layers = 2;
  config.decoder = sparse_encoder_decoder().decoder;
  expect_agree<DecoderOnlyModel>(config, parameters_of<DecoderOnlyTransformer>(config, 0.25F),
                                 true);
}

/// A dense network that masks padding, as flaxformer's do.
TEST(TensorParallel, ResultsOfMaskedPaddingAreOneRanksBits) {
  T5Config config = encoder_decoder();
  config.masks_padding = true;
  expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
}

TEST(TensorParallel, ResultsOfMultiQueryAndParallelLayersAreOneRanksBits) {
  T5Config config = encoder_decoder();
  config.multi_query = true;
  expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
  config.masks_padding = true;
  for (StackConfig* stack : {&config.encoder, &config.decoder})
    stack->dense_layers.form = stack->sparse_layers.form = LayerForm::parallel;
  expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
  config.encoder.sparse = sparse_encoder_decoder(Router::experts_choose).encoder.sparse;
  config.decoder.sparse = sparse_encoder_decoder().decoder.sparse;
  config.encoder.sparse_layers.extra_mlp = config.decoder.sparse_layers.extra_mlp = true;
  expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
  // Padding is zeros in other layers, and behind them what it was.
  config.encoder.dense_layers.form = config.decoder.sparse_layers.form = LayerForm::sequential;
  for (SparseStack* stack : {&config.encoder.sparse, &config.decoder.sparse}) {
    stack->num_sparse_layers = 2;
    stack->moe.router.kind = Router::tokens_choose;
    stack->moe.min_expert_capacity = 1;
  }
  for (const bool ignores : {false, true}) {
    config.encoder.sparse.moe.router.ignore_padding_tokens = ignores;
    for (const int64_t layers : {2, 1}) {
      config.encoder.sparse.num_sparse_layers = layers;
      SCOPED_TRACE(fmt::format("{} {}", ignores, layers));
      expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
    }
  }
  auto alone = small_config<TransformerConfig>();
  alone.num_layers = 2;
  alone.multi_query = true;
  alone.decoder.dense_layers.form = LayerForm::parallel;
  expect_agree<DecoderOnlyModel>(alone, parameters_of<DecoderOnlyTransformer>(alone, 0.25F), true);
  alone.decoder.dense_layers.form = LayerForm::fused, alone.mlp_dim = 141;
  expect_agree<DecoderOnlyModel>(alone, parameters_of<DecoderOnlyTransformer>(alone, 0.25F), true);
}

TEST(TensorParallel, ResultsOfRotaryEmbeddingsAreOneRanksBits) {
  T5Config config = encoder_decoder();
  config.rotary_max_timescale = 100;
  config.num_buckets = 0;
  expect_agree<EncoderDecoderModel>(config, parameters_of<Transformer>(config, 0.25F));
}

TEST(TensorParallel, MoreRanksThanHeadsAreRefused) {
  const T5Config config = encoder_decoder();
  const Arrays parameters = parameters_of<Transformer>(config, 0.25F);
  const SharedMemoryGroup::File file;
  SharedMemoryGroup group(file.path(), {0, 4}, {.timeout_seconds = 0, .end = {}});
  EXPECT_THROW(decode(spec_of(config), parameters, WeightType::f32, &group), Error);
}

TEST(SharedMemoryGroup, TextsAndFloatsOfOneAreSeenByAll) {
  constexpr int kSize = 4;
  const SharedMemoryGroup::File file;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank)
    ranks.emplace_back([&, rank] {
      SharedMemoryGroup group(file.path(), {rank, kSize}, {.timeout_seconds = 0, .end = {}});
      for (int round = 1; round < 200; ++round) {
        const int64_t count = round * 100 * kSize;  // grows beyond pages
        float* shared = group.floats(count);
        for (int64_t i = rank; i < count; i += kSize) shared[i] = static_cast<float>(round + i);
        group.wait();
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(shared[i], static_cast<float>(round + i)) << i << " of round " << round;
        group.wait();
        const std::string text(static_cast<size_t>(round * 977),
                               static_cast<char>('a' + round % 26));
        ASSERT_EQ(group.of_leader(group.leads() ? text : ""), text);
      }
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(SharedMemoryGroup, ARankThatDoesNotComeIsNamed) {
  const SharedMemoryGroup::File file;
  struct Ended : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  SharedMemoryGroup group(
      file.path(), {0, 3},
      {.timeout_seconds = 0.2, .end = [](const std::string& message) { throw Ended(message); }});
  try {
    group.wait();
    FAIL() << "waited for nobody";
  } catch (const Ended& error) {
    EXPECT_NE(std::string(error.what()).find("for rank 1, which does not come"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace quintet::testing
