// Networks that several GPUs hold together, emulated, over the fake of NCCL and through ordinary memory: the
// answers of one GPU, the same bits on every rank, of a share of the weights.

#include <numeric>

#include "models/decoding/encoding.h"
#include "models/decoding/predict.h"
#include "models/decoding/teacher_forced.h"
#include "tests/mesh/nccl_gpus.h"
#include "tests/models/sparse_network.h"

namespace quintet::testing {
namespace {

using namespace decoding;

constexpr int64_t kVocab = 37, kInputs = 6, kTargets = 8;
constexpr double kTolerance = 2e-5;  // of the largest logit: sums are taken in another order
const LossOptions kLoss{.label_smoothing = 0.1,
                        .z_loss = 0.01,
                        .loss_normalizing_factor = {},
                        .aux_loss_factor = 0.5,
                        .router_z_loss_factor = 0.1};

template <class Config>
Config small_config() {
  Config c;
  c.vocab_size = kVocab, c.emb_dim = 24, c.num_heads = 4, c.head_dim = 8, c.mlp_dim = 28;
  c.mlp_activations = {"gelu", "linear"};
  c.num_buckets = 8, c.max_distance = 5;
  if constexpr (std::is_same_v<Config, T5Config>)
    c.num_encoder_layers = c.num_decoder_layers = 2;
  else
    c.num_layers = 2;
  return c;
}

/// A model without parameters, and what they would be.
struct Model {
  std::unique_ptr<BaseModel> model;
  std::map<std::string, HostArray> parameters = {};

  explicit Model(const T5Config& c) : Model(std::make_unique<EncoderDecoderModel>(c, kLoss)) {}
  explicit Model(const TransformerConfig& c)
      : Model(std::make_unique<DecoderOnlyModel>(c, kLoss, true)) {}
  explicit Model(std::unique_ptr<BaseModel> declared) : model(std::move(declared)) {
    for (const ParamInfo& info : model->parameters().all()) {
      std::vector<int64_t> sizes;
      for (const Axis& axis : info.spec.axes) sizes.push_back(axis.size);
      HostArray& array = parameters[info.name] = HostArray(DType::f32, sizes);
      info.initializer(key_of_parameter(key_from_seed(2), info.name), sizes, array.as<float>());
    }
  }
  bool decoder_only() const { return model->spec().decoder_only(); }
  InferenceWeights weights(WeightType type, const Group& ranks) const {
    return {type,
            [this](const std::string& name) {
              const HostArray& array = parameters.at(name);
              return View::of(array.as<float>().data(), array.shape);
            },
            ranks};
  }
};

/// Some inputs end early.
HostArrays batch_of(int64_t items, bool decoder_only) {
  HostArray inputs(DType::i32, {items, kInputs}), targets(DType::i32, {items, kTargets}),
      prefix = targets;
  for (int64_t i = 0; i < items; ++i) {
    for (int64_t t = 0; t < kInputs - i % 3; ++t)
      inputs.as<int32_t>()[static_cast<size_t>(i * kInputs + t)] =
          static_cast<int32_t>(2 + (7 * i + 5 * t) % (kVocab - 2));
    for (int64_t t = 1; decoder_only && t < 4; ++t) {
      const auto at = static_cast<size_t>(i * kTargets + t);
      targets.as<int32_t>()[at] = static_cast<int32_t>(2 + (3 * i + 11 * t) % (kVocab - 2));
      prefix.as<int32_t>()[at - 1] = prefix.as<int32_t>()[at] = 1;
    }
  }
  return {{"encoder_input_tokens", inputs},
          {"decoder_input_tokens", targets},
          {"decoder_causal_attention", prefix}};
}

/// The same with targets, some of which end early.
HostArrays with_targets(int64_t items, bool decoder_only) {
  HostArrays batch = batch_of(items, decoder_only);
  HostArray targets(DType::i32, {items, kTargets}), inputs = targets;
  for (int64_t i = 0; i < items; ++i)
    for (int64_t t = 0; t < kTargets - i; ++t) {
      const auto at = static_cast<size_t>(i * kTargets + t);
      targets.as<int32_t>()[at] = static_cast<int32_t>(2 + (5 * i + 3 * t) % (kVocab - 2));
      inputs.as<int32_t>()[at] = t == 0 ? 0 : targets.as<int32_t>()[at - 1];
    }
  batch["decoder_target_tokens"] = targets;
  batch["decoder_input_tokens"] = inputs;
  return batch;
}

/// What a rank makes of some inputs.
struct Got {
  std::vector<float> logits = {};      // of all steps
  std::vector<int64_t> launches = {};  // of each step
  std::vector<int32_t> tokens = {};    // of greedy, beam and sampled decodes
  std::vector<float> scores = {};      // likewise
};

void step(Got& got, GpuDecoder& decoder, bool decoder_only, const HostArrays& batch,
          int64_t items) {
  const CacheOptions cache{.num_decodes = 1, .max_length = kTargets};
  const std::vector<int32_t> prefix(static_cast<size_t>(items), 3);
  if (decoder_only)
    decoder.begin_prefix(batch.at("decoder_input_tokens").as<int32_t>(), items, kTargets, prefix,
                         true, cache);
  else
    decoder.begin(batch.at("encoder_input_tokens").as<int32_t>(), items, kInputs, cache);
  std::vector<int32_t> rows(static_cast<size_t>(items)), tokens(rows.size(), 5);
  std::iota(rows.begin(), rows.end(), 0);
  for (int32_t t = decoder_only ? 3 : 0; t < kTargets; ++t) {
    const std::vector<int32_t> positions(rows.size(), t);
    const int64_t before = Device::current().counters().read().launches;
    const auto logits =
        decoder.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = {}});
    got.launches.push_back(Device::current().counters().read().launches - before);
    got.logits.insert(got.logits.end(), logits.begin(), logits.end());
    for (int32_t& token : tokens) token = (token * 5 + 3) % static_cast<int32_t>(kVocab);
  }
}

Got decode(const Model& model, WeightType type, const Group& ranks, int64_t items) {
  const bool decoder_only = model.decoder_only();
  const HostArrays batch = batch_of(items, decoder_only);
  GpuDecoder decoder(*model.model, model.weights(type, ranks));
  Got got;
  step(got, decoder, decoder_only, batch, items);
  // What chooses tokens takes logits, however they were made.
  if (type != WeightType::f32 || items > 3) return got;
  const SampleOptions greedy{},
      sampled{.decode_rng = key_from_seed(3), .num_decodes = 2, .topk = 0};
  for (const auto& decode_fn : std::initializer_list<decltype(PredictOptions::decode_fn)>{
           greedy, BeamOptions{.num_decodes = 3}, sampled}) {
    const PredictOptions options{.decode_fn = decode_fn, .inputs_bidirectional_attention = true};
    const Decodes decodes = decoder_only ? predict_decoder_only(decoder, batch, options)
                                         : predict_encoder_decoder(decoder, batch, options);
    got.tokens.insert(got.tokens.end(), decodes.tokens.begin(), decodes.tokens.end());
    got.scores.insert(got.scores.end(), decodes.scores.begin(), decodes.scores.end());
  }
  return got;
}

double difference(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return largest == 0 ? most : most / largest;
}

/// Scores, then metrics of losses.
std::vector<float> numbers_of(const BaseModel::TokenScores& tokens, const Metrics& metrics) {
  const auto scores = tokens.scores.as<float>();
  std::vector<float> numbers(scores.begin(), scores.end());
  for (const auto& [name, metric] : metrics)
    numbers.push_back(static_cast<float>(metric.total / metric.count));
  return numbers;
}

/// A model with experts whose heads four ranks can share.
Model sparse_model(const SparseOptions& options) {
  const auto of = [&]<class Config>(Config config) {
    config.num_heads = 4;
    return Model(config);
  };
  return options.decoder_only ? of(sparse_config<TransformerConfig>(options))
                              : of(sparse_config<T5Config>(options));
}

class TogetherOnGpus : public NcclGraphs {
 protected:
  std::vector<Got> together(int size, const std::function<Got(const Group&)>& body) {
    std::vector<Got> got(static_cast<size_t>(size));
    EXPECT_EQ(over_gpus(size,
                        [&](Comm& comm) {
                          const Group ranks = comm.world();
                          const Buffer word = comm.device().memory().allocate(4);
                          ranks.all_reduce(word.get(), 1, DType::i32).wait();
                          got[static_cast<size_t>(comm.rank())] = body(ranks);
                        }),
              "");
    return got;
  }
  void expect_one_gpus(int size, const Model& model, WeightType type, int64_t items = 3) {
    SCOPED_TRACE(fmt::format("{} GPUs, {}, {} items", size, name_of(type), items));
    const auto body = [&](const Group& ranks) { return decode(model, type, ranks, items); };
    const Got alone = on_one(model, body);
    const std::vector<Got> got = together(size, body);
    for (const Got& one : got) {
      EXPECT_EQ(one.logits, got[0].logits);
      EXPECT_EQ(one.scores, got[0].scores);
      EXPECT_EQ(one.tokens, alone.tokens);
      EXPECT_LT(difference(one.logits, alone.logits), kTolerance);
      EXPECT_LT(difference(one.scores, alone.scores), kTolerance);
      EXPECT_LT(4 * one.launches.back(), one.launches.front());  // a graph
    }
  }
  Got on_one(const Model& model, const std::function<Got(const Group&)>& body) {
    const Device::Use use(gpu(0));
    model.model->parameters().load(model.parameters);  // which one GPU reads in float32
    Got got = body(Group());
    for (ParamInfo& info : model.model->parameters().all()) info.value = info.compute = Tensor();
    return got;
  }
};

TEST_F(TogetherOnGpus, AnEncoderDecoderGivesOneGpusAnswers) {
  T5Config config = small_config<T5Config>();
  const Model model(config);
  for (const int size : {2, 4}) expect_one_gpus(size, model, WeightType::f32);
  expect_one_gpus(2, model, WeightType::f32, 11);  // products by ops, not each in one kernel
  expect_one_gpus(2, model, WeightType::int8);
}

TEST_F(TogetherOnGpus, ATiedOneWithScaledScoresGivesOneGpusAnswers) {
  T5Config config = small_config<T5Config>();
  config.logits_via_embedding = true;
  config.mlp_activations = {"relu"};
  config.scale_attn_logits = true;
  config.shared_relative_position_bias = false;
  config.num_encoder_layers = config.num_decoder_layers = 1;
  expect_one_gpus(2, Model(config), WeightType::fp8);
}

TEST_F(TogetherOnGpus, ADecoderGivesOneGpusAnswers) {
  const Model model(small_config<TransformerConfig>());
  expect_one_gpus(2, model, WeightType::f32);
  expect_one_gpus(2, model, WeightType::int8);
}

// Each has its columns of every expert.
TEST_F(TogetherOnGpus, ExpertsGiveOneGpusAnswers) {
  for (const bool parallel : {false, true}) {
    const Model model =
        sparse_model({.chosen = 2, .gated = true, .extra = true, .parallel = parallel});
    for (const int64_t items : {3, 11}) expect_one_gpus(2, model, WeightType::f32, items);
    expect_one_gpus(2, model, WeightType::int8);
  }
  expect_one_gpus(2, sparse_model({.encoder = Router::experts_choose}), WeightType::f32);
  expect_one_gpus(2, sparse_model({.decoder_only = true, .router_bias = true}), WeightType::f32);
}

// Of the model's own parameters, by its own layers.
TEST_F(TogetherOnGpus, ScoresAndLossesAreOneGpus) {
  T5Config tied = small_config<T5Config>();
  tied.logits_via_embedding = tied.scale_attn_logits = true;
  tied.shared_relative_position_bias = false;
  const auto expect_one = [&](const Model& model) {
    const HostArrays batch = with_targets(4, model.decoder_only());
    const Got alone = on_one(model, [&](const Group&) {
      return Got{.logits =
                     numbers_of(model.model->score_tokens(batch), model.model->eval_fn(batch))};
    });
    const std::vector<Got> got = together(2, [&](const Group& ranks) {
      const GpuWeights network(*model.model, model.weights(WeightType::f32, ranks));
      return Got{.logits = numbers_of(score_tokens(network, batch),
                                      eval_metrics(*model.model, network, batch))};
    });
    EXPECT_EQ(got[1].logits, got[0].logits);
    ASSERT_EQ(got[0].logits.size(), alone.logits.size());
    for (size_t i = 0; i < alone.logits.size(); ++i)
      EXPECT_NEAR(got[0].logits[i], alone.logits[i], kTolerance * (1 + std::abs(alone.logits[i])));
  };
  expect_one(Model(tied));
  expect_one(Model(small_config<TransformerConfig>()));
  expect_one(sparse_model({.chosen = 2, .gated = true, .extra = true}));
  expect_one(sparse_model({.chosen = 2, .gated = true, .extra = true, .parallel = true}));
  expect_one(sparse_model({.decoder_only = true, .encoder = {}}));
}

// Parts of sums are rounded before they are added.
TEST_F(TogetherOnGpus, InBfloat16LogitsAreNear) {
  T5Config config = small_config<T5Config>();
  config.dtype = "bfloat16";
  const Model model(config);
  const auto body = [&](const Group& ranks) { return decode(model, WeightType::f32, ranks, 4); };
  const Got alone = on_one(model, body);
  const std::vector<Got> got = together(2, body);
  EXPECT_EQ(got[1].logits, got[0].logits);
  EXPECT_LT(difference(got[0].logits, alone.logits), 0.03);
}

TEST_F(TogetherOnGpus, EmbeddingsAreOneGpus) {
  const Model model(small_config<T5Config>());
  const std::vector<int32_t> tokens{3, 9, 4};
  const std::vector<const std::vector<int32_t>*> inputs{&tokens};
  const auto body = [&](const Group& ranks) {
    const GpuWeights encoder(model.model->spec().encoder_alone(), model.model->parameters(),
                             model.weights(WeightType::f32, ranks));
    return Got{.logits = encode_each(encoder, inputs)[0]};
  };
  const Got alone = on_one(model, body);
  const std::vector<Got> got = together(2, body);
  EXPECT_EQ(got[1].logits, got[0].logits);
  EXPECT_LT(difference(got[0].logits, alone.logits), kTolerance);
}

TEST_F(TogetherOnGpus, EachHoldsItsShareOfTheLayers) {
  T5Config config = small_config<T5Config>();
  config.emb_dim = 64, config.head_dim = 16, config.mlp_dim = 256;
  const Model model(config);
  int64_t layers = 0, all = 0;
  for (const auto& [name, array] : model.parameters) {
    all += array.elements();
    if (name.find("/layers_") != std::string::npos && name.ends_with("/kernel"))
      layers += array.elements();
  }
  for (const int size : {2, 4})
    together(size, [&](const Group& ranks) {
      Memory& memory = Device::current().memory();
      const int64_t before = memory.used_bytes();
      const GpuWeights weights(*model.model, model.weights(WeightType::f32, ranks));
      const int64_t held = (memory.used_bytes() - before) / 4, own = layers / size + all - layers;
      EXPECT_GE(held, own);
      EXPECT_LT(held, own * 21 / 20);
      return Got();
    });
}

/// Through ordinary memory nothing is recorded.
TEST_F(TogetherOnGpus, RanksThatShareAGpuGiveItsAnswers) {
  const Model model(small_config<T5Config>());
  const auto body = [&](const Group& ranks) { return decode(model, WeightType::f32, ranks, 4); };
  const Got alone = on_one(model, body);
  std::vector<Got> got(2);
  run_threads({.count = 2, .device = &gpu(0)}, [&](Comm& comm) {
    const Device::Use use(gpu(0));
    got[static_cast<size_t>(comm.rank())] = body(comm.world());
  });
  EXPECT_EQ(got[0].logits, got[1].logits);
  for (const Got& one : got) {
    EXPECT_LT(difference(one.logits, alone.logits), kTolerance);
    EXPECT_GT(4 * one.launches.back(), one.launches.front());  // of both
  }
}

TEST_F(TogetherOnGpus, WhatCannotBeSharedIsRefused) {
  const auto says = [&](const BaseModel& model, int size, const std::string& what) {
    std::mutex mutex;
    over_gpus(size, [&](Comm& comm) {
      const std::lock_guard lock(mutex);
      try {
        const GpuWeights weights(model, {WeightType::f32, {}, comm.world()});
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage);
        EXPECT_TRUE(has(error.what(), what)) << error.what();
      }
    });
  };
  T5Config config = small_config<T5Config>();
  says(*Model(config).model, 3, "3 ranks for 4 attention heads and MLPs of 28");
  config.mlp_dim = 30;
  says(*Model(config).model, 4, "4 ranks for 4 attention heads and MLPs of 30");
  auto sparse = sparse_config<TransformerConfig>({.decoder_only = true});
  sparse.num_heads = 4;
  says(*Model(sparse).model, 4, "4 ranks for 4 attention heads and MLPs of 20 and 18");
}

}  // namespace
}  // namespace quintet::testing
