#include "models/spec.h"

#include <cmath>

#include "models/network.h"

namespace quintet {

ModelSpec spec_of(const T5Config& config) {
  return {.vocab_size = config.vocab_size,
          .dtype = config.dtype,
          .logits_via_embedding = config.logits_via_embedding,
          .separate_embeddings = config.separate_embeddings,
          .encoder = StackSpec{.layer = config,
                               .num_layers = config.num_encoder_layers,
                               .is_encoder = true,
                               .sparse = config.sparse_encoder,
                               .sows = config.encoder_sows},
          .decoder = {.layer = config,
                      .num_layers = config.num_decoder_layers,
                      .cross_attention = true,
                      .sparse = config.sparse_decoder,
                      .sows = config.decoder_sows}};
}

ModelSpec spec_of(const TransformerConfig& config, bool inputs_bidirectional_attention) {
  return {.vocab_size = config.vocab_size,
          .dtype = config.dtype,
          .logits_via_embedding = config.logits_via_embedding,
          .inputs_bidirectional_attention = inputs_bidirectional_attention,
          .decoder = {.layer = config,
                      .num_layers = config.num_layers,
                      .sparse = config.sparse,
                      .sows = config.sows}};
}

void check_t5x_dropout(const ModelSpec& spec) {
  const StackSpec& stack = spec.decoder;
  const bool scanned_flaxformer = stack.layer.masks_padding && stack.layer.is_scanned();
  const char* const network = spec.own_network       ? "a network of its own"
                              : spec.has_experts()   ? "flaxformer's with experts"
                              : stack.layer.parallel ? "flaxformer's with parallel layers"
                              : scanned_flaxformer   ? "flaxformer's with scan_layers"
                                                     : nullptr;
  QT_CHECK(network == nullptr,
           "trainer.Trainer.t5x_dropout: this model's network is {}; T5X's masks are known of "
           "examples/t5, contrib/gpu/t5, examples/scalable_t5, examples/decoder_only and "
           "flaxformer's dense t5_architecture; bind t5x_dropout = False",
           network);
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
