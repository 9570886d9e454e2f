#include "checkpoint/huggingface/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::huggingface {
namespace {

constexpr const char* kSupported =
    "t5 (T5 1.0, 1.1, FLAN, ByT5), mt5, umt5 and switch_transformers, as ForConditionalGeneration "
    "or "
    "EncoderModel";

constexpr int64_t kMostSize = int64_t{1} << 31;
constexpr int64_t kMostLayers = 10'000;

constexpr WithoutEffect kWithoutEffect[] = {
    {"transformers_version", "says who wrote the file"},
    {"_name_or_path", "says where it came from"},
    {"torch_dtype", "the weights' files say it themselves"},
    {"dtype", "the weights' files say it themselves"},
    {"initializer_factor", "of initial weights; these are trained"},
    {"n_positions", "T5 has no absolute positions"},
    {"output_past", "of transformers' interface"},
    {"use_cache", "keys and values are always cached"},
    {"classifier_dropout", "of classification heads"},
    {"task_specific_params", "bind what a task needs"},
    {"finetuning_task", "a note"},
    {"tokenizer_class", "the tokenizer's files say it"},
    {"gradient_checkpointing", "bind remat_policy"},
    {"router_dtype", "routers compute in float32"},
    {"router_z_loss_coef", "bind router_z_loss_factor for training"},
    {"router_aux_loss_coef", "bind aux_loss_factor for training"},
    {"router_type", "tokens choose their expert"},
    {"router_ignore_padding_tokens", "answers do not depend on padding here"},
    {"batch_prioritized_routing", "a sequence's first tokens are served first"},
    {"add_router_probs", "of transformers' interface"},
    {"is_encoder_decoder", "the architecture says it"},
    {"is_decoder", "the architecture says it"},
    {"add_cross_attention", "the architecture says it"},
    {"bos_token_id", "T5 has no such token"},
    {"return_dict", "of transformers' interface"},
    {"output_hidden_states", "of transformers' interface"},
    {"output_attentions", "of transformers' interface"},
    {"torchscript", "of transformers' interface"},
    {"id2label", "of classification heads"},
    {"label2id", "of classification heads"},
    {"problem_type", "of classification heads"},
    {"chunk_size_feed_forward", "of transformers' memory"},
    {"use_bfloat16", "of transformers' interface"},
    {"tf_legacy_loss", "of transformers' interface"},
    {"prefix", "put it before the inputs"},
    {"cross_attention_hidden_size", "of other models"},
    {"sep_token_id", "T5 has no such token"},
    {"hidden_size", "d_model"},
    {"num_hidden_layers", "num_layers"},
    {"attn_implementation", "of transformers"},
    {"_attn_implementation_autoset", "of transformers"},
    {"max_length", "of generation: generation_config.json, --max_tokens"},
    {"min_length", "of generation"},
    {"do_sample", "of generation"},
    {"early_stopping", "of generation"},
    {"num_beams", "of generation"},
    {"num_beam_groups", "of generation"},
    {"diversity_penalty", "of generation"},
    {"temperature", "of generation"},
    {"top_k", "of generation"},
    {"top_p", "of generation"},
    {"typical_p", "of generation"},
    {"repetition_penalty", "of generation"},
    {"length_penalty", "of generation"},
    {"no_repeat_ngram_size", "of generation"},
    {"encoder_no_repeat_ngram_size", "of generation"},
    {"bad_words_ids", "of generation"},
    {"num_return_sequences", "of generation"},
    {"output_scores", "of generation"},
    {"return_dict_in_generate", "of generation"},
    {"forced_bos_token_id", "of generation"},
    {"forced_eos_token_id", "of generation"},
    {"remove_invalid_values", "of generation"},
    {"exponential_decay_length_penalty", "of generation"},
    {"suppress_tokens", "of generation"},
    {"begin_suppress_tokens", "of generation"},
    {"scalable_attention", "umT5 has a bias in each layer"}};

/// Reads fields and knows afterwards which were never asked for.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}
  bool has(const std::string& name) {
    known_.insert(name);
    return json_.has(name) && !json_[name].is_null();
  }
  int64_t size(const std::string& name, int64_t otherwise, int64_t least = 1,
               int64_t most = kMostSize) {
    if (!has(name)) return otherwise;
    const int64_t value = json_[name].as_int();
    QT_CHECK_AS(ExitCode::kData, value >= least && value <= most,
                "{}.{}: expected {} to {}, found {}", json_.path(), name, least, most, value);
    return value;
  }
  double number(const std::string& name, double otherwise) {
    return has(name) ? json_[name].as_double() : otherwise;
  }
  bool flag(const std::string& name, bool otherwise) {
    return has(name) ? json_[name].as_bool() : otherwise;
  }
  std::string text(const std::string& name, const std::string& otherwise) {
    return has(name) ? json_[name].as_string() : otherwise;
  }
  Json at(const std::string& name) { return json_[name]; }
  /// Throws unless the field is absent or has the one value that this network has.
  template <typename T>
  void only(const std::string& name, const T& value, const T& found, const std::string& why) {
    QT_CHECK_AS(ExitCode::kData, value == found, "{}.{}: expected {}, found {}: {}", json_.path(),
                name, value, found, why);
  }
  void check_all_known() const {
    for (const auto& [name, value] : json_.members()) {
      const bool known =
          known_.contains(name) || value.is_null() ||
          std::any_of(fields_without_effect().begin(), fields_without_effect().end(),
                      [&key = name](const WithoutEffect& field) { return field.field == key; });
      QT_CHECK_AS(ExitCode::kData, known,
                  "{}.{}: is not known here, so it is not known either what the model would lose "
                  "without it; take it out of the file if it has no effect",
                  json_.path(), name);
    }
  }

 private:
  const Json& json_;
  std::set<std::string> known_;
};

void read_kind(Fields& fields, const Json& json, Config& config) {
  config.model_type = fields.text("model_type", "");
  if (fields.has("architectures") && fields.at("architectures").size() > 0)
    config.architecture = fields.at("architectures")[0].as_string();
  constexpr std::array<std::pair<const char*, const char*>, 4> kKinds{
      {{"t5", "T5"},
       {"mt5", "MT5"},
       {"umt5", "UMT5"},
       {"switch_transformers", "SwitchTransformers"}}};
  for (const auto& [type, prefix] : kKinds) {
    const std::string name = prefix;
    if (config.model_type.empty() && config.architecture.starts_with(name))
      config.model_type = type;
    if (config.model_type != type) continue;
    const std::string& a = config.architecture;
    if (a.empty() || a == name + "ForConditionalGeneration" || a == name + "WithLMHeadModel" ||
        a == "T5ForConditionalGeneration" || a == name + "EncoderModel" || a == "T5EncoderModel")
      return;
    fail(ExitCode::kData, "{}.architectures: {} is not supported; supported are {}", json.path(), a,
         kSupported);
  }
  fail(ExitCode::kData, "{}.model_type: '{}' is not supported; supported are {}", json.path(),
       config.model_type, kSupported);
}

void read_activation(Fields& fields, const Json& json, Config& config) {
  const std::string projection =
      fields.text("feed_forward_proj", config.model_type == "t5" ? "relu" : "gated-gelu");
  config.gated = projection.starts_with("gated-");
  std::string name = config.gated ? projection.substr(6) : projection;
  if (projection == "gated-gelu") name = "gelu_new";  // transformers' reading
  config.gated = fields.flag("is_gated_act", config.gated);
  if (config.is_switch()) {  // dense_act_fn alone counts there, and nothing is gated
    config.gated = false;
    name = "relu";
  }
  name = fields.text("dense_act_fn", name);
  constexpr std::array<std::pair<const char*, const char*>, 7> kNames{
      {{"relu", "relu"},
       {"gelu_new", "gelu"},
       {"gelu_pytorch_tanh", "gelu"},
       {"gelu", "gelu_erf"},
       {"silu", "silu"},
       {"swish", "silu"},
       {"linear", "linear"}}};
  for (const auto& [theirs, ours] : kNames)
    if (name == theirs) {
      config.activation = ours;
      return;
    }
  fail(ExitCode::kData,
       "{}: the activation '{}' (feed_forward_proj, dense_act_fn) is not supported; supported are "
       "relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish and linear",
       json.path(), name);
}

/// transformers 5 writes scale_decoder_outputs for T5, since 5.24 for umT5, and ties mT5 without scaling;
/// before, scaling went with tying. A file that does not say who wrote it is read as transformers 5 reads it.
void read_output(Fields& fields, Config& config) {
  const bool since_5 = std::atoi(fields.text("transformers_version", "5").c_str()) >= 5;
  config.tie_word_embeddings =
      fields.flag("tie_word_embeddings", config.model_type != "mt5" || since_5);
  const bool scaled = config.tie_word_embeddings && !(config.model_type == "mt5" && since_5);
  config.scale_decoder_outputs = fields.flag("scale_decoder_outputs", scaled);
  if (config.model_type != "t5" && config.model_type != "umt5")
    fields.only("scale_decoder_outputs", scaled, config.scale_decoder_outputs,
                "transformers reads it for T5 and umT5 alone; here tie_word_embeddings decides");
}

void read_tokens(Fields& fields, const Json& json, Config& config) {
  fields.only("pad_token_id", int64_t{0}, fields.size("pad_token_id", 0, -1), "padding is 0 here");
  fields.only("decoder_start_token_id", int64_t{0}, fields.size("decoder_start_token_id", 0, -1),
              "decoders start with 0 here");
  if (!fields.has("eos_token_id")) return;
  const Json eos = fields.at("eos_token_id");
  config.eos_token_ids = eos.is_array() ? eos.as_ints() : std::vector<int64_t>{eos.as_int()};
  for (const int64_t id : config.eos_token_ids)
    QT_CHECK_AS(ExitCode::kData, id >= 0 && id < config.vocab_size,
                "{}.eos_token_id: {} lies outside the vocabulary of {}", json.path(), id,
                config.vocab_size);
}

void read_experts(Fields& fields, Config& config) {
  if (!config.is_switch()) return;
  config.num_experts = fields.size("num_experts", 8, 1, 1 << 20);
  config.num_sparse_encoder_layers = fields.size("num_sparse_encoder_layers", 3, 0, kMostLayers);
  config.num_sparse_decoder_layers = fields.size("num_sparse_decoder_layers", 3, 0, kMostLayers);
  config.router_jitter_noise = fields.number("router_jitter_noise", 0.01);
  config.expert_capacity = fields.size("expert_capacity", 64);
  config.router_bias = fields.flag("router_bias", false);
  for (const bool encoder : {true, false}) {
    const std::string name = encoder ? "encoder_sparse_step" : "decoder_sparse_step";
    const int64_t step = config.sparse_step(encoder), found = fields.size(name, step, 0);
    if (encoder || !config.encoder_only())
      fields.only(name, step, found, "layers divided by those with experts, rounded down");
  }
}

}  // namespace

int64_t Config::sparse_step(bool encoder) const {
  const int64_t sparse = encoder ? num_sparse_encoder_layers : num_sparse_decoder_layers;
  // As there, 0 sparse layers are one, unless there is no layer for it.
  return (encoder ? num_layers : num_decoder_layers) / std::max<int64_t>(sparse, 1);
}

bool Config::is_sparse(bool encoder, int64_t i) const {
  const int64_t step = is_switch() ? sparse_step(encoder) : 0;
  return step == 1 || (step > 1 && i % step == 1);
}

std::span<const WithoutEffect> fields_without_effect() { return kWithoutEffect; }

bool is_directory(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  if (!is_there(file)) return false;
  const Json json = Json::read(file);
  return json.is_object() && (json.has("model_type") || json.has("architectures"));
}

Config read_config(const std::filesystem::path& folder) {
  return parse_config(Json::read(folder / "config.json"));
}

Config parse_config(const Json& json) {
  Fields fields(json);
  Config c;
  read_kind(fields, json, c);
  c.vocab_size = fields.size("vocab_size", c.model_type == "t5" || c.is_switch() ? 32128 : 250112);
  c.d_model = fields.size("d_model", c.is_switch() ? 768 : 512, 1, 1 << 20);
  c.d_kv = fields.size("d_kv", 64, 1, 1 << 20);
  c.d_ff = fields.size("d_ff", c.model_type == "t5" || c.is_switch() ? 2048 : 1024, 1, 1 << 24);
  c.num_heads = fields.size("num_heads",
                            c.is_switch()          ? 12
                            : c.model_type == "t5" ? 8
                                                   : 6,
                            1, 1 << 20);
  c.num_layers = fields.size("num_layers",
                             c.is_switch()          ? 12
                             : c.model_type == "t5" ? 6
                                                    : 8,
                             1, kMostLayers);
  c.num_decoder_layers = fields.size("num_decoder_layers", c.num_layers, 1, kMostLayers);
  if (c.architecture.ends_with("EncoderModel")) c.num_decoder_layers = 0;
  c.num_buckets = fields.size("relative_attention_num_buckets", 32, 2, 1 << 20);
  c.max_distance = fields.size("relative_attention_max_distance", 128, 1);
  c.dropout_rate = fields.number("dropout_rate", 0.1);
  QT_CHECK_AS(ExitCode::kData, c.dropout_rate >= 0 && c.dropout_rate < 1,
              "{}.dropout_rate: expected 0 <= rate < 1, found {}", json.path(), c.dropout_rate);
  fields.only("layer_norm_epsilon", 1e-6, fields.number("layer_norm_epsilon", 1e-6),
              "norms have this one here");
  fields.only("tie_encoder_decoder", false, fields.flag("tie_encoder_decoder", false),
              "encoder and decoder have weights of their own here");
  QT_CHECK_AS(
      ExitCode::kData, !fields.has("quantization_config"),
      "{}.quantization_config: quantized weights are not read; name the model they were made "
      "from",
      json.path());
  QT_CHECK_AS(ExitCode::kData,
              !fields.has("pruned_heads") || fields.at("pruned_heads").members().empty(),
              "{}.pruned_heads: layers have the same heads here", json.path());
  read_activation(fields, json, c);
  read_output(fields, c);
  read_tokens(fields, json, c);
  read_experts(fields, c);
  fields.check_all_known();
  return c;
}

}  // namespace quintet::huggingface
