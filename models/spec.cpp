#include "models/spec.h"

#include <fmt/ranges.h>

#include <cmath>

#include "models/network.h"

namespace quintet {
namespace {

StackSpec stack_of(const StackConfig& config, const LayerConfig& layer, int64_t num_layers) {
  StackSpec stack{config, layer, num_layers};
  stack.layer.block_layers = stack.block_layers();
  return stack;
}

}  // namespace

std::string LayerKind::text() const {
  std::vector<std::string> differences;
  if (is_parallel())
    differences.emplace_back(form == LayerForm::fused ? "parallel with fused kernels" : "parallel");
  if (extra_mlp) differences.emplace_back("followed by a dense MLP");
  return fmt::format("{}", fmt::join(differences, " and "));
}

double StackSpec::sum_divisor(int64_t i) const {
  return kind(i).form == LayerForm::parallel ? std::sqrt(cross_attention ? 3.0 : 2.0) : 1;
}

ModelSpec spec_of(const T5Config& config) {
  ModelSpec spec{.vocab_size = config.vocab_size,
                 .dtype = config.dtype,
                 .logits_via_embedding = config.logits_via_embedding,
                 .separate_embeddings = config.separate_embeddings,
                 .encoder = stack_of(config.encoder, config, config.num_encoder_layers),
                 .decoder = stack_of(config.decoder, config, config.num_decoder_layers)};
  spec.encoder->is_encoder = true;
  spec.decoder.cross_attention = true;
  return spec;
}

ModelSpec spec_of(const TransformerConfig& config, bool inputs_bidirectional_attention) {
  return {.vocab_size = config.vocab_size,
          .dtype = config.dtype,
          .logits_via_embedding = config.logits_via_embedding,
          .inputs_bidirectional_attention = inputs_bidirectional_attention,
          .decoder = stack_of(config.decoder, config, config.num_layers)};
}

void check_t5x_dropout(const ModelSpec& spec) {
  QT_CHECK(
      !spec.own_network,
      "trainer.Trainer.t5x_dropout: this model has a network of its own; T5X's masks are known of "
      "examples/t5, contrib/gpu/t5, examples/scalable_t5, examples/decoder_only and flaxformer's "
      "t5_architecture and moe_architecture; bind t5x_dropout = False");
  for (const StackSpec* stack : {&spec.decoder, spec.encoder ? &*spec.encoder : nullptr})
    QT_CHECK(
        stack == nullptr || !stack->has_experts() || stack->sparse.moe.router.jitter_noise == 0,
        "trainer.Trainer.t5x_dropout: jitter_noise is {}, with which T5X does not train, "
        "as it gives modules no key for it; bind JITTER_NOISE = 0.0 or t5x_dropout = False",
        stack->sparse.moe.router.jitter_noise);
}

void refuse_own_network(const ModelSpec& spec) {
  QT_CHECK(!spec.own_network,
           "this model has a network of its own, which trains and is evaluated teacher-forced; it "
           "generates, serves and converts nothing (train_script.train.infer_eval_dataset_cfg = "
           "None leaves predictions out of a run)");
}

double ModelSpec::logit_scale() const {
  return logits_via_embedding ? 1.0 / std::sqrt(static_cast<double>(emb_dim())) : 1;
}

}  // namespace quintet
