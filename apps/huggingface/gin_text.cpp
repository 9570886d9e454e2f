#include "apps/huggingface/gin_text.h"

#include <algorithm>

#include "checkpoint/bundle/bundle.h"
#include "checkpoint/huggingface/huggingface_reader.h"
#include "data/huggingface/tokenizer_files.h"
#include "runtime/gin/registry/finder.h"
#include "runtime/gin/syntax/value.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using huggingface::Config;

std::string quoted(const std::string& text) { return gin::Value(text).repr(); }

constexpr const char* kImports = R"(from __gin__ import dynamic_registration

import __main__ as train_script
import seqio
from quintet import data
from t5x import adafactor
from t5x import models
)";

constexpr const char* kTraining = R"(
Z_LOSS = 0.0001
LABEL_SMOOTHING = 0.0
LOSS_NORMALIZING_FACTOR = None
OPTIMIZER = @adafactor.Adafactor()
adafactor.Adafactor:
  decay_rate = 0.8
  step_offset = 0
  logical_factor_rules = @adafactor.standard_logical_factor_rules()
train_script.train.model = %MODEL
)";

/// The model's vocabulary by the tokenizer's files; None if there are none.
std::string vocabulary_text(const fs::path& directory) {
  if (data::tokenizer_kind(directory) == data::TokenizerKind::none) return "VOCABULARY = None\n";
  return fmt::format(
      "VOCABULARY = @data.HuggingFaceVocabulary()\ndata.HuggingFaceVocabulary.directory = {}\n",
      quoted(fs::absolute(directory).lexically_normal().string()));
}

std::string model_text(const std::string& name, const std::string& module) {
  return fmt::format(
      "MODEL = @{0}()\n{0}:\n  module = {1}\n  input_vocabulary = %VOCABULARY\n  output_vocabulary "
      "= "
      "%VOCABULARY\n  optimizer_def = %OPTIMIZER\n  z_loss = %Z_LOSS\n  label_smoothing = "
      "%LABEL_SMOOTHING\n  loss_normalizing_factor = %LOSS_NORMALIZING_FACTOR\n",
      name, module);
}

std::string dense_text(const Config& c, bool tied) {
  // umT5's network is scalable_t5's: a table of relative position biases in each layer.
  const char* module = c.bias_in_each_layer() ? "scalable_t5" : "t5";
  std::string text = fmt::format("from t5x.examples.{} import network\n\nDROPOUT_RATE = {}\n",
                                 module, c.dropout_rate);
  text += model_text("models.EncoderDecoderModel", "@network.Transformer()");
  text += "network.Transformer.config = @network.T5Config()\nnetwork.T5Config:\n";
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {} = {}\n", name, value);
  };
  const auto size = [&](const std::string& name, int64_t value) {
    add(name, std::to_string(value));
  };
  size("vocab_size", c.vocab_size);
  add("dtype", "'float32'");
  size("emb_dim", c.d_model);
  size("num_heads", c.num_heads);
  size("num_encoder_layers", c.num_layers);
  size("num_decoder_layers", c.num_decoder_layers);
  size("head_dim", c.d_kv);
  size("mlp_dim", c.d_ff);
  add("mlp_activations", c.gated ? fmt::format("('{}', 'linear')", c.activation)
                                 : fmt::format("('{}',)", c.activation));
  size("num_buckets", c.num_buckets);
  size("max_distance", c.max_distance);
  add("dropout_rate", "%DROPOUT_RATE");
  add("logits_via_embedding", tied ? "True" : "False");
  if (c.bias_in_each_layer()) add("scan_layers", "False");
  return text;
}

std::string switch_text(const Config& c, bool tied) {
  std::string text =
      "from flaxformer.architectures.moe import moe_architecture\n"
      "from flaxformer.architectures.moe import moe_layers\n"
      "from flaxformer.architectures.moe import routing\n"
      "from flaxformer.architectures.t5 import t5_architecture\n"
      "from flaxformer.components import dense\n"
      "from flaxformer.components import embedding\n"
      "from flaxformer.components import relative_position_biases\n"
      "from t5x.contrib.moe import models as moe_models\n\n"
      "include 'flaxformer/t5x/configs/moe/architectures/moe.gin'\n\n";
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{} = {}\n", name, value);
  };
  const auto size = [&](const std::string& name, int64_t value) {
    add(name, std::to_string(value));
  };
  size("NUM_ENCODER_LAYERS", c.num_layers);
  size("NUM_DECODER_LAYERS", c.num_decoder_layers);
  for (const bool encoder : {true, false}) {
    const char* side = encoder ? "ENCODER" : "DECODER";
    const int64_t sparse = encoder ? c.num_sparse_encoder_layers : c.num_sparse_decoder_layers;
    size(fmt::format("NUM_{}_SPARSE_LAYERS", side),
         c.sparse_step(encoder) == 0 ? 0 : std::max<int64_t>(sparse, 1));
    add(fmt::format("{}_SPARSE_LAYOUT", side), "'second'");
  }
  size("NUM_HEADS", c.num_heads);
  size("HEAD_DIM", c.d_kv);
  size("EMBED_DIM", c.d_model);
  size("MLP_DIM", c.d_ff);
  size("NUM_EMBEDDINGS", c.vocab_size);
  size("NUM_EXPERTS", c.num_experts);
  size("NUM_EXPERT_PARTITIONS", 1);
  size("NUM_MODEL_PARTITIONS", 1);
  add("DROPOUT_RATE", fmt::format("{}", c.dropout_rate));
  if (c.router_bias) add("routing.RouterWeights.use_bias", "True");
  add("JITTER_NOISE", fmt::format("{}", c.router_jitter_noise));
  add("ACTIVATION_DTYPE", "'float32'");
  add("MOE_TRUNCATED_DTYPE", "'float32'");
  add("dense.MlpBlock.activations", fmt::format("('{}',)", c.activation));
  add("expert/dense.MlpBlock.activations", fmt::format("('{}',)", c.activation));
  add("relative_position_biases.RelativePositionBiases.num_buckets", std::to_string(c.num_buckets));
  add("relative_position_biases.RelativePositionBiases.max_distance",
      std::to_string(c.max_distance));
  if (c.expert_capacity >= huggingface::kEveryToken) {
    add("moe_layers.MoeLayer.dropless", "True");
  } else {
    size("moe_layers.MoeLayer.expert_capacity", c.expert_capacity);
    add("sparse_encoder/routing.TokensChooseMaskedRouter.batch_prioritized_routing", "False");
  }
  if (c.separate_embeddings) {
    add("t5_architecture.EncoderDecoder.shared_token_embedder_factory", "None");
    for (const char* stack : {"Encoder", "Decoder"})
      add(fmt::format("moe_architecture.Sparse{}.token_embedder_factory", stack),
          "@embedding.Embed");
  }
  if (tied) add("moe_architecture.SparseDecoder.output_logits_factory", "None");
  return text + model_text("moe_models.MoeEncoderDecoderModel", "%ARCHITECTURE");
}

}  // namespace

std::string huggingface_gin_text(const fs::path& directory) {
  const huggingface::Reader reader(directory);
  const Config& config = reader.config();
  const std::string network =
      config.is_switch() ? switch_text(config, reader.tied()) : dense_text(config, reader.tied());
  return kImports + network + vocabulary_text(directory) + kTraining;
}

std::string read_config_file(const std::string& path) {
  const fs::path file = path;
  if (bundle::is_at(file)) return bundle::Reader(file).config();
  if (file.filename() != "config.json") return gin::read_gin_file(path);
  const fs::path directory = file.parent_path();
  QT_CHECK_AS(ExitCode::kData, huggingface::is_directory(directory),
              "{}: has no model_type; is it a Hugging Face directory's?", path);
  return huggingface_gin_text(directory);
}

}  // namespace quintet
