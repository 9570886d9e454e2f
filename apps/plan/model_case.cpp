#include "apps/plan/model_case.h"

#include <CLI/App.hpp>
#include <map>

#include "models/fp8.h"
#include "runtime/base/nearest.h"
#include "runtime/base/threefry.h"
#include "runtime/optim/optax/optax.h"

namespace quintet {
namespace {

constexpr int64_t kVocabulary = 32128, kMegatronVocabulary = 29184;

struct Size {
  int64_t emb_dim, num_heads, mlp_dim, num_layers;
  int64_t vocab_size = kVocabulary;
  std::vector<std::string> activations = {"gelu", "linear"};
  int64_t num_experts = 0;  // of every other layer
};
// T5 1.1's published sizes (arXiv:2002.05202 and t5x/examples/t5/t5_1_1); heads are 64 wide. Those of
// Megatron-LM's tests (tests/functional_tests/test_cases/t5), whose runs are published. Switch Transformers as those
// that Google published with 8 and 64 experts (arXiv:2101.03961).
const std::map<std::string, Size> kSizes = {
    {"t5_1_1_tiny", {8, 4, 16, 2}},
    {"t5_1_1_small", {512, 6, 1024, 8}},
    {"t5_1_1_base", {768, 12, 2048, 12}},
    {"t5_1_1_large", {1024, 16, 2816, 24}},
    {"t5_1_1_xl", {2048, 32, 5120, 24}},
    {"t5_1_1_xxl", {4096, 64, 10240, 24}},
    {"switch_tiny", {8, 4, 16, 2, kVocabulary, {"relu"}, 4}},
    {"switch_base_8", {768, 12, 3072, 12, kVocabulary, {"relu"}, 8}},
    {"switch_base_64", {768, 12, 3072, 12, kVocabulary, {"relu"}, 64}},
    {"megatron_t5_220m", {768, 12, 3072, 12, kMegatronVocabulary, {"gelu"}}},
    {"megatron_t5_11b", {4096, 64, 10240, 24, kMegatronVocabulary, {"gelu"}}},
};

}  // namespace

void add_model_flags(CLI::App& app, ModelCase& options, bool trains) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  app.add_option(
      "--model", options.model,
      "t5_1_1_tiny, _small, _base, _large, _xl or _xxl; switch_base_8 or _64; plan: instead "
      "of gin files");
  app.add_option("--batch", options.batch, "sequences per step")->check(positive);
  app.add_option("--inputs", options.inputs, "tokens per input")->check(positive);
  app.add_option("--targets", options.targets, "tokens per target")->check(positive);
  if (trains)
    app.add_flag("--fp8", options.fp8,
                 "dense layers multiply in 8 bits, as with te_helper.TransformerEngineConfig");
}

T5Config published_model_config(const std::string& name, const std::string& dtype) {
  const auto found = kSizes.find(name);
  std::vector<std::string> names;
  for (const auto& [known, size] : kSizes) names.push_back(known);
  QT_CHECK(found != kSizes.end(), "--model={} is unknown{} Known: {}", name,
           did_you_mean(name, names), fmt::join(names, ", "));
  T5Config config;
  config.vocab_size = found->second.vocab_size;
  config.emb_dim = found->second.emb_dim;
  config.num_heads = found->second.num_heads;
  config.head_dim = name.ends_with("_tiny") ? 3 : 64;
  config.mlp_dim = found->second.mlp_dim;
  config.num_encoder_layers = config.num_decoder_layers = found->second.num_layers;
  config.mlp_activations = found->second.activations;
  config.dropout_rate = 0;
  config.dtype = dtype;
  if (found->second.num_experts > 0)
    config.encoder.sparse =
        config.decoder.sparse = {.num_sparse_layers = found->second.num_layers / 2,
                                 .moe = {.num_experts = found->second.num_experts,
                                         .train_capacity_factor = 1.25,
                                         .eval_capacity_factor = 2,
                                         .mlp_dim = found->second.mlp_dim,
                                         .activations = found->second.activations}};
  return config;
}

HostArray random_tokens(int64_t rows, int64_t length, int64_t vocab_size, uint32_t seed) {
  HostArray array(DType::i32, {rows, length});
  std::vector<uint32_t> bits(static_cast<size_t>(array.elements()));
  uint32_t state = seed;
  for (size_t i = 0; i < bits.size(); ++i) {
    state = state * 1664525u + 1013904223u;  // any spread-out ids will do here
    array.as<int32_t>()[i] =
        static_cast<int32_t>(3 + (state >> 8) % static_cast<uint32_t>(vocab_size - 3));
  }
  return array;
}

HostArrays random_batch(const ModelCase& options, int64_t vocab_size) {
  HostArrays batch;
  batch["encoder_input_tokens"] = random_tokens(options.batch, options.inputs, vocab_size, 1);
  HostArray targets = random_tokens(options.batch, options.targets, vocab_size, 2);
  HostArray shifted(DType::i32, targets.shape), weights(DType::i32, targets.shape);
  for (int64_t i = 0; i < targets.elements(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (i % options.targets != 0) shifted.as<int32_t>()[at] = targets.as<int32_t>()[at - 1];
    weights.as<int32_t>()[at] = 1;
  }
  batch["decoder_target_tokens"] = std::move(targets);
  batch["decoder_input_tokens"] = std::move(shifted);
  batch["decoder_loss_weights"] = std::move(weights);
  return batch;
}

LayoutCase layout_case(const ModelCase& options) {
  return layout_case(published_model_config(options.model, options.dtype), options);
}

LayoutCase layout_case(const T5Config& config, const ModelCase& options) {
  const auto make = [lora = options.lora.lora(), fp8 = options.fp8](const T5Config& of) {
    LossOptions loss;
    loss.z_loss = 1e-4;
    const auto model = std::make_shared<EncoderDecoderModel>(of, loss);
    if (lora) add_adapters(*model, *lora);
    use_fp8(*model, {.enabled = fp8});
    return ModelAndOptimizer{model, optax_optimizer(adamw(1e-3))};
  };
  T5Config remat = config;
  remat.remat_policy = "full";
  LayoutCase what;
  what.make = [=] { return make(config); };
  what.make_remat = [=] { return make(remat); };
  what.batch = [options, vocabulary = config.vocab_size](int64_t) {
    return random_batch(options, vocabulary);
  };
  what.tokens = options.batch * (options.inputs + options.targets);
  return what;
}

}  // namespace quintet
