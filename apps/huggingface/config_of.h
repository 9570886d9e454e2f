#pragma once
// A model of ours as a Hugging Face configuration: the opposite of gin_text.h.
//
//   const huggingface::Config config = huggingface_config(model.spec());

#include "checkpoint/huggingface/config.h"
#include "models/spec.h"

namespace quintet {

/// Throws ExitCode::kUsage that lists, by the names that gin gives them, what of the model Hugging Face's
/// classes have no place for.
huggingface::Config huggingface_config(const ModelSpec& spec);

}  // namespace quintet
