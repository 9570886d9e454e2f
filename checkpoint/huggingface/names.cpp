#include "checkpoint/huggingface/names.h"

#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

class Table {
 public:
  Table(const Config& config, bool untied) : c_(config) {
    add_tables(untied);
    add_stack("encoder", c_.num_layers);
    if (c_.encoder_only()) return;
    add_stack("decoder", c_.num_decoder_layers);
    if (untied) matrix("decoder/logits_dense", c_.d_model, c_.vocab_size, "lm_head");
  }
  std::vector<MappedTensor> take() { return std::move(tensors_); }

 private:
  /// transformers 5 reads a table for each stack of an untied Switch Transformer, and shared.weight nowhere.
  void add_tables(bool untied) {
    const std::string name = "token_embedder/embedding", encoder = "encoder.embed_tokens.weight",
                      decoder = "decoder.embed_tokens.weight", shared = "shared.weight";
    const std::vector<int64_t> shape{c_.vocab_size, c_.d_model};
    if (c_.separate_embeddings) {
      add("encoder/" + name, shape, encoder);
      add("decoder/" + name, shape, decoder);
      tensors_.back().copies = {shared};
      return;
    }
    add(name, shape, shared);
    if (c_.is_switch() && untied && !c_.encoder_only()) tensors_.back().copies = {encoder, decoder};
  }
  void add(std::string ours, std::vector<int64_t> shape, std::string theirs,
           bool transposed = false) {
    tensors_.push_back({std::move(ours), std::move(shape), {std::move(theirs)}, transposed});
  }
  void norm(const std::string& ours, const std::string& theirs) {
    add(ours + "/scale", {c_.d_model}, theirs + ".weight");
  }
  /// PyTorch's Linear has [out, in].
  void matrix(const std::string& ours, int64_t in, int64_t out, const std::string& theirs) {
    add(ours + "/kernel", {in, out}, theirs + ".weight", true);
  }
  void relative_bias(const std::string& ours, const std::string& block) {
    add(ours + "/relpos_bias/rel_embedding", {c_.num_heads, c_.num_buckets},
        block + ".layer.0.SelfAttention.relative_attention_bias.weight", true);
  }
  void attention(const std::string& ours, const std::string& theirs) {
    const int64_t joined = c_.num_heads * c_.d_kv;
    matrix(ours + "/query", c_.d_model, joined, theirs + ".q");
    matrix(ours + "/key", c_.d_model, joined, theirs + ".k");
    matrix(ours + "/value", c_.d_model, joined, theirs + ".v");
    matrix(ours + "/out", joined, c_.d_model, theirs + ".o");
  }
  void mlp(const std::string& ours, const std::string& theirs) {
    for (const char* wi : {"wi", "wi_0", "wi_1"})
      if (c_.gated == (std::string(wi) != "wi"))
        matrix(ours + "/" + wi, c_.d_model, c_.d_ff, theirs + "." + wi);
    matrix(ours + "/wo", c_.d_ff, c_.d_model, theirs + ".wo");
  }
  void experts(const std::string& ours, const std::string& theirs) {
    const std::string router = ours + "/router/router_weights/w",
                      classifier = theirs + ".router.classifier";
    matrix(router, c_.d_model, c_.num_experts, classifier);
    if (c_.router_bias) add(router + "/bias", {c_.num_experts}, classifier + ".bias");
    const auto stacked = [&](const std::string& name, int64_t in, int64_t out) {
      MappedTensor tensor{.name = ours + "/expert/" + name + "/kernel",
                          .shape = {c_.num_experts, in, out},
                          .sources = {},
                          .transposed = true};
      for (int64_t e = 0; e < c_.num_experts; ++e)
        tensor.sources.push_back(fmt::format("{}.experts.expert_{}.{}.weight", theirs, e, name));
      tensors_.push_back(std::move(tensor));
    };
    stacked("wi", c_.d_model, c_.d_ff);
    stacked("wo", c_.d_ff, c_.d_model);
  }
  void add_stack(const std::string& side, int64_t layers) {
    const bool encoder = side == "encoder";
    if (!c_.bias_in_each_layer()) relative_bias(side, side + ".block.0");
    for (int64_t i = 0; i < layers; ++i) {
      const std::string ours = fmt::format("{}/layers_{}", side, i);
      const std::string theirs = fmt::format("{}.block.{}", side, i);
      const std::string self = encoder ? "attention" : "self_attention";
      if (c_.bias_in_each_layer()) relative_bias(ours, theirs);
      norm(ours + "/pre_" + self + "_layer_norm", theirs + ".layer.0.layer_norm");
      attention(ours + "/" + self, theirs + ".layer.0.SelfAttention");
      if (!encoder) {
        norm(ours + "/pre_cross_attention_layer_norm", theirs + ".layer.1.layer_norm");
        attention(ours + "/encoder_decoder_attention", theirs + ".layer.1.EncDecAttention");
      }
      const std::string last = theirs + (encoder ? ".layer.1" : ".layer.2");
      norm(ours + "/pre_mlp_layer_norm", last + ".layer_norm");
      if (c_.is_sparse(encoder, i))
        experts(ours + "/mlp", last + ".mlp");
      else
        mlp(ours + "/mlp", last + (c_.is_switch() ? ".mlp" : ".DenseReluDense"));
    }
    norm(side + "/" + side + "_norm", side + ".final_layer_norm");
  }

  const Config& c_;
  std::vector<MappedTensor> tensors_;
};

}  // namespace

std::vector<MappedTensor> mapped_tensors(const Config& config, bool untied) {
  return Table(config, untied).take();
}

}  // namespace quintet::huggingface
