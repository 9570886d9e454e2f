#pragma once
// Networks that gin has configured but that are not built yet: a model builds them into its own
// parameters.

#include "models/network.h"
#include "runtime/gin/registry/registry.h"

namespace quintet {

struct T5Module {
  T5Config config;
};
struct DecoderOnlyModule {
  TransformerConfig config;
};

/// flaxformer's names of a T5, dense or with sparse layers: architectures, routers, layers, and linen's initializers and
/// dropout that they are made of. t5_architecture.EncoderDecoder gives a T5Module, DecoderOnly a DecoderOnlyModule.
void register_flaxformer(gin::Registry& registry);

}  // namespace quintet
