#pragma once
// A model's config.json for a Hugging Face directory, as transformers 4 and 5, CTranslate2's and
// llama.cpp's converters read it.

#include <string>

#include "checkpoint/huggingface/config.h"
#include "runtime/base/dtype.h"

namespace quintet::huggingface {

/// Every field of the model's kind. `weights`: of the weights' files.
std::string config_text(const Config& config, DType weights);

}  // namespace quintet::huggingface
