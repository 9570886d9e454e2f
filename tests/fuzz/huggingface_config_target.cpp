// config.json of a Hugging Face directory, and the names that follow from it.

#include "checkpoint/huggingface/names.h"
#include "runtime/base/formats/json.h"
#include "tests/fuzz/target.h"

namespace quintet {

std::vector<std::string> testing::fuzz_seeds() {
  return {R"({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 96,
 "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 3,
 "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "eos_token_id": [1, 2]})",
          R"({"model_type": "switch_transformers", "num_experts": 4, "num_layers": 2,
 "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_decoder_layers": 2})"};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  testing::allow_errors([&] {
    const auto config = huggingface::parse_config(
        Json::parse({reinterpret_cast<const char*>(data), size}, "input"));
    if (config.num_layers + config.num_decoder_layers < 100 && config.num_experts < 100)
      huggingface::mapped_tensors(config, true);
  });
  return 0;
}
