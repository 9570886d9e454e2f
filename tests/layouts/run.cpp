#include "tests/layouts/run.h"

#include <omp.h>

#include <mutex>

#include "models/fp8.h"
#include "runtime/execution/reshard.h"
#include "runtime/execution/tape.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/profile/profile.h"
#include "runtime/trainer/batch_rows.h"
#include "runtime/trainer/trainer.h"

namespace quintet::testing {
namespace {

constexpr int64_t kVocabulary = 64, kInputs = 12, kTargets = 8;

LayerConfig layers(Network network, int64_t mlp_dim) {
  LayerConfig config;
  config.emb_dim = 32;
  config.num_heads = 8;
  config.head_dim = 4;
  config.mlp_dim = mlp_dim;
  config.mlp_activations = network == Network::t5_1_0_tied
                               ? std::vector<std::string>{"relu"}
                               : std::vector<std::string>{"gelu", "linear"};
  return config;
}

/// One sparse layer of four experts, who serve `chosen` a token as long as there is room.
StackConfig sparse(const Training& training, int64_t chosen) {
  StackConfig config;
  config.sparse_layers.extra_mlp = chosen == 2;
  SparseStack& stack = config.sparse;
  stack.num_sparse_layers = 1;
  stack.moe.num_experts = 4;
  stack.moe.train_capacity_factor = 1.25;
  stack.moe.min_expert_capacity = 1;
  stack.moe.dropless = training.dropless;
  stack.moe.mlp_dim = 32;
  stack.moe.activations = {"gelu", "linear"};
  stack.moe.dropout_rate = training.dropout_rate;
  stack.moe.router = {
      .kind = training.experts_choose ? Router::experts_choose : Router::tokens_choose,
      .num_selected_experts = chosen,
      .batch_prioritized_routing = chosen == 2,
      .jitter_noise = 0.01,
      .weights_stddev = training.router_stddev,
      .use_bias = true};
  return config;
}

std::vector<float> global_values(const Tensor& x) {
  const HostArray array = resharded(x, Layout::replicated(x.spec().axes.size())).to_host();
  return {array.as<float>().begin(), array.as<float>().end()};
}

Result run(const Training& training) {
  const std::unique_ptr<BaseModel> model = make_model(training);
  use_fp8(*model, {.enabled = training.fp8, .fused_casts = training.fused_casts});
  model->parameters().initialize(key_from_seed(7));
  Result result;
  {
    const HostArrays batch = local_rows(make_batch(training, 0));
    Tape tape;
    LossOutput step;
    {
      const Tape::Recording recording(tape);
      step =
          loss_of(*model, training.t5x_dropout)(batch, 0, Rows::all(batch).end, key_from_seed(5));
    }
    tape.backward(step.loss);
    result.loss = step.loss.item();
    for (const ParamInfo& info : model->parameters().all()) {
      result.gradients[info.name] = global_values(info.value.grad());
      info.value.set_grad({});
    }
  }
  Trainer trainer(loss_of(*model, training.t5x_dropout), model->parameters(),
                  training.optimizer
                      ? training.optimizer()
                      : adafactor({.min_dim_size_to_factor = 16,
                                   .logical_factor_rules = moe_logical_factor_rules()}),
                  {.num_microbatches = training.microbatches,
                   .reduction = training.reduction,
                   .reduction_dtype = training.reduction_dtype,
                   .gradient_dtype = training.gradient_dtype,
                   .interleave = training.interleave,
                   .t5x_dropout = training.t5x_dropout,
                   .loss_is_total = true,
                   .learning_rate = [](int64_t) { return 0.01F; },
                   .weight_metrics = true},
                  key_from_seed(9));
  Profile profile;
  for (int64_t i = 0; i < training.steps; ++i) {
    const Profile::Use use(&profile);
    result.metrics =
        trainer.train(local_rows(make_batch(training, i), training.microbatches)).metrics;
    result.losses.push_back(result.metrics.at("loss").value());
  }
  for (const auto& [name, entry] : profile.entries()) result.calls[name] = entry.calls;
  for (const ParamInfo& info : model->parameters().all())
    result.parameters[info.name] = global_values(info.value);
  for (const StateArray& array : trainer.state())
    if (array.name.starts_with(kFp8Prefix) && array.name.ends_with("/scale")) {
      const HostArray copy = host_copy(array);
      result.fp8_scales[array.name] = {copy.as<float>().begin(), copy.as<float>().end()};
    }
  return result;
}

bool decodes_alone(const Training& training) {
  return training.network == Network::decoder_only ||
         training.network == Network::parallel_decoder_only || training.network == Network::fused;
}

}  // namespace

LossFunction loss_of(const BaseModel& model, bool t5x_dropout) {
  return [&model, t5x_dropout](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
    return model.loss_fn(batch, {begin, end},
                         {.train = true, .dropout_key = key, .t5x_dropout = t5x_dropout});
  };
}

std::unique_ptr<BaseModel> make_model(const Training& training) {
  LossNormalizingFactor factor = SpecialLossNormalizingFactor::kNumRealTargetTokens;
  if (training.summed_loss) factor = {};
  const LossOptions loss{.z_loss = 1e-3,
                         .loss_normalizing_factor = factor,
                         .aux_loss_factor = 0.01,
                         .router_z_loss_factor = 0.001};
  const auto fill = [&](auto& config) {
    static_cast<LayerConfig&>(config) = layers(training.network, training.mlp_dim);
    config.vocab_size = kVocabulary;
    config.dropout_rate = training.dropout_rate;
    config.logits_via_embedding = training.network == Network::t5_1_0_tied;
    config.multi_query = training.network == Network::multi_query;
    const bool fused = training.network == Network::fused;
    if (fused)
      config.decoder.dense_layers.form = LayerForm::fused;
    else if (training.network == Network::parallel ||
             training.network == Network::parallel_decoder_only)
      config.decoder.dense_layers.form = LayerForm::parallel;
    config.multi_query |= fused;
    if (training.network == Network::rotary) {
      config.multi_query = true;
      config.num_buckets = 0;
      config.rotary_max_timescale = 100;
    }
    config.remat_policy = training.remat;
  };
  if (decodes_alone(training)) {
    TransformerConfig config;
    fill(config);
    config.num_layers = training.num_layers;
    return std::make_unique<DecoderOnlyModel>(config, loss, true);
  }
  T5Config config;
  fill(config);
  config.num_encoder_layers = 1;
  config.encoder = config.decoder;
  config.num_decoder_layers = training.num_layers;
  if (training.network == Network::experts) {
    config.masks_padding = true;
    config.encoder = sparse(training, 2);
    config.decoder = sparse(training, 1);
  }
  return std::make_unique<EncoderDecoderModel>(config, loss);
}

HostArrays make_batch(const Training& training, int64_t step) {
  HostArrays batch;
  const bool encoder = !decodes_alone(training);
  const auto fill = [&](const std::string& name, int64_t length, auto value) {
    HostArray& array = batch[name] = HostArray(DType::i32, {training.rows, length});
    for (int64_t row = 0; row < training.rows; ++row)
      for (int64_t i = 0; i < length; ++i)
        array.as<int32_t>()[static_cast<size_t>(row * length + i)] =
            i >= length - row % 4 ? 0 : static_cast<int32_t>(value(row, i));  // ends differ
  };
  const auto tokens = [&](uint32_t seed) {
    return [=](int64_t row, int64_t i) {
      const auto bits = random_bits(key_from_seed(static_cast<uint32_t>(seed + 10 * step)),
                                    static_cast<uint64_t>(row * 64 + i));
      return 2 + bits % (kVocabulary - 2);
    };
  };
  const auto segment = [](int64_t, int64_t i) { return 1 + i / 5; };
  fill("decoder_target_tokens", kTargets, tokens(2));
  fill("decoder_input_tokens", kTargets, tokens(3));
  if (encoder) fill("encoder_input_tokens", kInputs, tokens(1));
  if (!encoder)
    fill("decoder_causal_attention", kTargets, [](int64_t, int64_t i) { return i < 3 ? 1 : 0; });
  if (training.packed) {
    fill("decoder_segment_ids", kTargets, segment);
    if (encoder) fill("encoder_segment_ids", kInputs, segment);
  }
  return batch;
}

Result run_unsharded(const Training& training) { return run(training); }

void on_ranks(const Partitioning& partitioning, const std::function<void(Comm&)>& body) {
  int ranks = 1;
  for (const MeshAxis& axis : partitioning.mesh) ranks *= axis.size;
  run_threads({.count = ranks, .device = &Device::current()}, [&](Comm& comm) {
    omp_set_num_threads(1);
    const Mesh mesh(partitioning.mesh, &comm);
    const Sharding sharding(mesh, partitioning.rules);
    const Sharding::Use use(sharding);
    body(comm);
  });
}

std::vector<Result> run_sharded(const Training& training, const Partitioning& partitioning) {
  std::mutex mutex;
  std::map<int, Result> by_rank;
  on_ranks(partitioning, [&](Comm& comm) {
    Result result = run(training);
    const std::lock_guard lock(mutex);
    by_rank[comm.rank()] = std::move(result);
  });
  std::vector<Result> results;
  for (auto& [rank, result] : by_rank) results.push_back(std::move(result));
  return results;
}

}  // namespace quintet::testing
