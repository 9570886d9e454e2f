// Networks whose weights a device keeps in fewer bits against the same weights on the CPU: step by step
// the same logits, whether few products or many take them, and the same tokens.

#include <set>

#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/encoding.h"
#include "models/decoding/gpu/gpu_decoder.h"
#include "models/decoding/predict.h"
#include "tests/gpu_kernels/on_device.h"
#include "tests/models/sparse_network.h"

namespace quintet::testing {
namespace {

using namespace decoding;

constexpr int64_t kVocab = 37, kInputs = 6, kTargets = 7;
constexpr WeightType kTypes[] = {WeightType::bf16, WeightType::int8, WeightType::fp8};
constexpr std::span kBytes = std::span(kTypes).subspan(1);

template <class Config>
Config small_config(const std::string& dtype) {
  Config c;
  c.vocab_size = kVocab, c.emb_dim = 24, c.num_heads = 3, c.head_dim = 8, c.mlp_dim = 21;
  c.mlp_activations = {"gelu", "linear"};
  c.num_buckets = 8, c.max_distance = 5;  // unlike T5's, and nearer than the farthest token
  c.dtype = dtype;
  if constexpr (std::is_same_v<Config, T5Config>)
    c.num_encoder_layers = c.num_decoder_layers = 2;
  else
    c.num_layers = 2;
  return c;
}

/// A model without parameters, what they would be, and both packed for the CPU.
struct Network {
  std::unique_ptr<BaseModel> model;
  std::map<std::string, HostArray> parameters = {};

  template <class Config>
  explicit Network(const Config& config) {
    if constexpr (std::is_same_v<Config, T5Config>)
      model = std::make_unique<EncoderDecoderModel>(config, LossOptions{});
    else
      model = std::make_unique<DecoderOnlyModel>(config, LossOptions{}, true);
    for (const ParamInfo& info : model->parameters().all()) {
      std::vector<int64_t> sizes;
      for (const Axis& axis : info.spec.axes) sizes.push_back(axis.size);
      HostArray& array = parameters[info.name] = HostArray(DType::f32, sizes);
      info.initializer(key_of_parameter(key_from_seed(2), info.name), sizes, array.as<float>());
    }
  }
  ParameterSource source() const {
    return [this](const std::string& name) {
      const HostArray& array = parameters.at(name);
      return View::of(array.as<float>().data(), array.shape);
    };
  }
  PackedNetwork packed(WeightType type) const {
    return PackedNetwork(model->spec(), source(), type);
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

template <class Decoder>
void begin(Decoder& decoder, bool decoder_only, const HostArrays& batch, int64_t items) {
  const CacheOptions cache{.num_decodes = 1, .max_length = kTargets};
  if (!decoder_only)
    return decoder.begin(batch.at("encoder_input_tokens").as<int32_t>(), items, kInputs, cache);
  const std::vector<int32_t> prefix(static_cast<size_t>(items), 3);
  decoder.begin_prefix(batch.at("decoder_input_tokens").as<int32_t>(), items, kTargets, prefix,
                       true, cache);
}

class Quantized : public DeviceTest {
 protected:
  /// The largest difference of logits, as a part of the largest logit.
  static double difference(const Network& network, WeightType type, int64_t items) {
    const bool decoder_only = network.model->spec().decoder_only();
    const HostArrays batch = batch_of(items, decoder_only);
    const PackedNetwork packed = network.packed(type);
    TransformerDecoder host(packed);
    GpuDecoder device(*network.model, {type, network.source()});
    begin(host, decoder_only, batch, items);
    begin(device, decoder_only, batch, items);
    double most = 0, largest = 0;
    std::vector<int32_t> rows(static_cast<size_t>(items)), tokens(rows.size(), 5);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
    for (int32_t t = decoder_only ? 3 : 0; t < kTargets; ++t) {
      const std::vector<int32_t> positions(rows.size(), t);
      const StepInput input{.rows = rows, .tokens = tokens, .positions = positions, .sources = {}};
      const auto want = host.step(input), got = device.step(input);
      for (size_t i = 0; i < want.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
        largest = std::max(largest, std::abs(static_cast<double>(want[i])));
      }
      for (int32_t& token : tokens) token = (token * 5 + 3) % static_cast<int32_t>(kVocab);
    }
    return most / largest;
  }
  static Decodes decodes(auto& on, const Network& network, int64_t items) {
    const HostArrays batch = batch_of(items, network.model->spec().decoder_only());
    PredictOptions options{.decode_fn = BeamOptions{.num_decodes = 2}};
    options.inputs_bidirectional_attention = true;
    return network.model->spec().decoder_only() ? predict_decoder_only(on, batch, options)
                                                : predict_encoder_decoder(on, batch, options);
  }
  static void expect_the_cpus(const Network& network, std::span<const WeightType> types = kBytes) {
    for (const WeightType type : types) {
      for (const int64_t items : {3, 11}) {
        SCOPED_TRACE(fmt::format("{}, {} items", name_of(type), items));
        EXPECT_LT(difference(network, type, items), 2e-5);
      }
      const PackedNetwork packed = network.packed(type);
      GpuDecoder device(*network.model, {type, network.source()});
      EXPECT_EQ(decodes(device, network, 3).tokens, decodes(packed, network, 3).tokens);
    }
  }
};

TEST_F(Quantized, EncoderAndDecoder) {
  expect_the_cpus(Network(small_config<T5Config>("float32")), kTypes);
}
TEST_F(Quantized, TiedEmbeddings) {
  auto config = small_config<T5Config>("float32");
  config.logits_via_embedding = true;
  config.mlp_activations = {"relu"};
  expect_the_cpus(Network(config));
}
TEST_F(Quantized, ScaledScores) {
  auto config = small_config<T5Config>("float32");
  config.scale_attn_logits = true;
  expect_the_cpus(Network(config), std::span(kTypes).first(2));
}
TEST_F(Quantized, RelativeBiasOfEachLayer) {
  auto config = small_config<T5Config>("float32");
  config.shared_relative_position_bias = false;
  expect_the_cpus(Network(config), std::span(kTypes).last(1));
}
TEST_F(Quantized, DecoderAlone) {
  expect_the_cpus(Network(small_config<TransformerConfig>("float32")));
}
TEST_F(Quantized, ExpertsOfADecoder) {
  expect_the_cpus(Network(sparse_config<TransformerConfig>(
                      {.decoder_only = true, .chosen = 2, .gated = true, .extra = true})),
                  std::span(kTypes).last(1));
}
TEST_F(Quantized, InBfloat16TheRestIsAsItIsInFloat32) {
  for (const WeightType type : kTypes)
    for (const int64_t items : {3, 11, 66}) {  // one kernel, tensor cores, ops
      if (items > 64 && type != WeightType::int8) continue;
      SCOPED_TRACE(fmt::format("{}, {} items", name_of(type), items));
      EXPECT_LT(difference(Network(small_config<T5Config>("bfloat16")), type, items), 0.03);
    }
}
TEST_F(Quantized, EncodersWithExpertsStayTheModels) {
  SparseNetwork sparse = sparse_network({.chosen = 1});
  HostArrays values;
  for (const ParamInfo& info : sparse.model->parameters().all())
    values[info.name] = info.value.to_host();
  const ParameterSource source = [&](const std::string& name) {
    return View::of(values.at(name).as<float>().data(), values.at(name).shape);
  };
  for (ParamInfo& info : sparse.model->parameters().all())
    if (info.name.starts_with("decoder/")) info.value = Tensor();
  GpuDecoder device(*sparse.model, {WeightType::int8, source});
  const HostArrays batch = batch_of(3, false);
  begin(device, false, batch, 3);
  const std::vector<int32_t> rows{0, 1, 2}, tokens{0, 0, 0}, positions{0, 0, 0};
  for (const float x :
       device.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = {}}))
    EXPECT_TRUE(std::isfinite(x));
}

/// Bytes that decoders' weights take on the device.
TEST_F(Quantized, WeightsTakeTheirBytes) {
  auto config = small_config<T5Config>("bfloat16");
  config.emb_dim = config.mlp_dim = 256;
  config.head_dim = 64;
  const Network network(config);
  Memory& memory = device().memory();
  const auto bytes = [&](WeightType type) {
    const int64_t before = memory.used_bytes();
    const GpuDecoder decoder(*network.model, {type, network.source()});
    return memory.used_bytes() - before;
  };
  const int64_t half = bytes(WeightType::bf16), byte = bytes(WeightType::int8);
  EXPECT_EQ(bytes(WeightType::fp8), byte);
  EXPECT_LT(byte, half * 7 / 10);  // `wo`, embeddings and small ones stay
  int64_t elements = 0;
  for (const auto& [name, array] : network.parameters) elements += array.elements();
  EXPECT_LT(half, 2 * elements * 13 / 10);
}

/// Embeddings need no decoder: nothing of it is read or lies on the device.
TEST_F(Quantized, AnEncoderAloneTakesNothingOfTheDecoder) {
  for (const bool separate : {false, true}) {
    auto config = small_config<T5Config>("bfloat16");
    config.separate_embeddings = separate;
    const Network network(config);
    std::set<std::string> read, wanted;
    const ParameterSource source = [&](const std::string& name) {
      read.insert(name);
      return network.source()(name);
    };
    for (const auto& [name, array] : network.parameters)
      if (!name.starts_with("decoder/")) wanted.insert(name);
    Memory& memory = device().memory();
    const int64_t before = memory.used_bytes();
    const GpuWeights encoder(network.model->spec().encoder_alone(), network.model->parameters(),
                             {WeightType::bf16, source});
    const int64_t alone = memory.used_bytes() - before;
    EXPECT_EQ(read, wanted);
    const GpuWeights both(*network.model, {WeightType::bf16, network.source()});
    EXPECT_LT(alone, (memory.used_bytes() - before - alone) / 2);
    const std::vector<int32_t> tokens{3, 9, 4};
    const std::vector<const std::vector<int32_t>*> inputs{&tokens};
    EXPECT_EQ(encode_each(encoder, inputs), encode_each(both, inputs));
    EXPECT_EQ(encoder.dtype(), both.dtype());
  }
}

TEST_F(Quantized, ParametersThatDoNotFitAreNamed) {
  Network network(small_config<T5Config>("float32"));
  const auto says = [&](const ParameterSource& source, const std::string& what) {
    try {
      const GpuDecoder decoder(*network.model, {WeightType::int8, source});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  const std::string name = "decoder/layers_1/mlp/wo/kernel";
  network.parameters[name] = HostArray(DType::f32, {21, 23});
  says(network.source(), name + ": expected [21, 24] of bfloat16, found 483 values of float32");
  const HostArray bytes(DType::i8, {21, 24});
  says(
      [&](const std::string& asked) -> StoredParameter {
        if (asked != name) return network.source()(asked);
        View view = View::of(reinterpret_cast<const uint8_t*>(bytes.bytes.data()), bytes.shape);
        view.dtype = DType::i8;
        return view;
      },
      name + ": expected [21, 24] of bfloat16, found 504 values of int8");
}

}  // namespace
}  // namespace quintet::testing
