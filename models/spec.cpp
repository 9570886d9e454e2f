#include "models/spec.h"

#include <cmath>

#include "models/network.h"

namespace quintet {
namespace {

ModelSpec with_blocks(ModelSpec spec) {
  spec.decoder.layer.block_layers = spec.decoder.block_layers();
  if (spec.encoder) spec.encoder->layer.block_layers = spec.encoder->block_layers();
  return spec;
}

}  // namespace

ModelSpec spec_of(const T5Config& config) {
  LayerConfig encoder = config;
  encoder.parallel = config.parallel_encoder;
  return with_blocks({.vocab_size = config.vocab_size,
                      .dtype = config.dtype,
                      .logits_via_embedding = config.logits_via_embedding,
                      .separate_embeddings = config.separate_embeddings,
                      .encoder = StackSpec{.layer = encoder,
                                           .num_layers = config.num_encoder_layers,
                                           .is_encoder = true,
                                           .sparse = config.sparse_encoder,
                                           .sows = config.encoder_sows},
                      .decoder = {.layer = config,
                                  .num_layers = config.num_decoder_layers,
                                  .cross_attention = true,
                                  .sparse = config.sparse_decoder,
                                  .sows = config.decoder_sows}});
}

ModelSpec spec_of(const TransformerConfig& config, bool inputs_bidirectional_attention) {
  return with_blocks({.vocab_size = config.vocab_size,
                      .dtype = config.dtype,
                      .logits_via_embedding = config.logits_via_embedding,
                      .inputs_bidirectional_attention = inputs_bidirectional_attention,
                      .decoder = {.layer = config,
                                  .num_layers = config.num_layers,
                                  .sparse = config.sparse,
                                  .sows = config.sows}});
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
