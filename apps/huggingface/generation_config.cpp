#include "apps/huggingface/generation_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/huggingface/config.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/process/messages.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

// Fields that change answers and are not taken from the file, and the value with which they change nothing.
constexpr std::array<std::pair<const char*, const char*>, 15> kNotTaken{
    {{"num_beam_groups", "1"},
     {"diversity_penalty", "0.0"},
     {"typical_p", "1.0"},
     {"min_p", "null"},
     {"epsilon_cutoff", "0.0"},
     {"eta_cutoff", "0.0"},
     {"penalty_alpha", "null"},
     {"guidance_scale", "null"},
     {"constraints", "null"},
     {"force_words_ids", "null"},
     {"stop_strings", "null"},
     {"max_time", "null"},
     {"watermarking_config", "null"},
     {"num_return_sequences", "1"},
     {"remove_invalid_values", "false"}}};
// Those that say nothing of the answers.
constexpr std::array<const char*, 14> kOfTheInterface{"use_cache",
                                                      "output_scores",
                                                      "output_logits",
                                                      "output_attentions",
                                                      "transformers_version",
                                                      "bos_token_id",
                                                      "pad_token_id",
                                                      "return_dict_in_generate",
                                                      "output_hidden_states",
                                                      "_from_model_config",
                                                      "cache_implementation",
                                                      "trust_remote_code",
                                                      "generation_kwargs",
                                                      "temperature"};

class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}
  bool has(const std::string& name) const {
    read_.insert(name);
    return json_.has(name) && !json_[name].is_null();
  }
  const std::set<std::string>& read() const { return read_; }
  std::optional<int64_t> integer(const std::string& name, int64_t least) const {
    if (!has(name)) return std::nullopt;
    const int64_t value = json_[name].as_int();
    QT_CHECK_AS(ExitCode::kData, value >= least && value <= int64_t{1} << 30,
                "{}.{}: expected {} or more, found {}", json_.path(), name, least, value);
    return value;
  }
  std::optional<double> number(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    return json_[name].as_double();
  }
  bool flag(const std::string& name) const { return has(name) && json_[name].as_bool(); }

 private:
  const Json& json_;
  mutable std::set<std::string> read_;
};

/// `read`: what has been taken. config.json has fields of other uses, too.
void warn_of_others(const Json& json, const std::set<std::string>& read, bool has_file) {
  for (const auto& [name, member] : json.members()) {
    const nlohmann::json found = member.raw();
    const auto* known = std::find_if(kNotTaken.begin(), kNotTaken.end(),
                                     [&key = name](const auto& one) { return key == one.first; });
    const bool foreign =
        has_file && known == kNotTaken.end() && !read.contains(name) &&
        std::find(kOfTheInterface.begin(), kOfTheInterface.end(), name) == kOfTheInterface.end();
    const bool acts_there =
        known != kNotTaken.end() && found != nlohmann::json::parse(known->second);
    if (!found.is_null() && (foreign || acts_there))
      print_warning("{} = {} has no effect here", member.path(), found.dump());
  }
}

decoding::TokenList token_list(const Json& json) {
  if (!json.is_array()) return {static_cast<int32_t>(json.as_int())};
  const std::vector<int64_t> ids = json.as_ints();
  return {ids.begin(), ids.end()};
}

/// Transformers' logits processors.
decoding::LogitRules read_rules(const Json& json, const Fields& fields,
                                const std::vector<int32_t>& eos_ids) {
  decoding::LogitRules rules;
  if (fields.has("bad_words_ids"))
    for (const Json& word : json["bad_words_ids"].items())
      rules.bad_words.push_back(token_list(word));
  if (fields.has("suppress_tokens")) rules.suppress = token_list(json["suppress_tokens"]);
  if (fields.has("begin_suppress_tokens"))
    rules.begin_suppress = token_list(json["begin_suppress_tokens"]);
  if (fields.has("forced_bos_token_id")) rules.prefix = token_list(json["forced_bos_token_id"]);
  if (fields.has("forced_eos_token_id")) {
    rules.forced_eos = true;
    QT_CHECK_AS(ExitCode::kData, token_list(json["forced_eos_token_id"]) == eos_ids,
                "{}.forced_eos_token_id: expected the end tokens [{}]", json.path(),
                fmt::join(eos_ids, ", "));
  }
  if (fields.has("sequence_bias"))
    for (const Json& one : json["sequence_bias"].items())
      rules.sequence_bias.emplace_back(token_list(one[0]), static_cast<float>(one[1].as_double()));
  if (fields.has("exponential_decay_length_penalty")) {
    const Json decay = json["exponential_decay_length_penalty"];
    rules.decay_length_penalty = {decay[0].as_int(), static_cast<float>(decay[1].as_double())};
  }
  rules.encoder_repetition_penalty =
      static_cast<float>(fields.number("encoder_repetition_penalty").value_or(1));
  rules.encoder_no_repeat_ngram_size =
      fields.integer("encoder_no_repeat_ngram_size", 0).value_or(0);
  return rules;
}

/// Of generation_config.json, or of config.json where there is none.
GenerationDefaults defaults_of(const Json& json, bool has_file, const std::vector<int64_t>& eos) {
  GenerationDefaults defaults;
  const auto set_eos = [&](const std::vector<int64_t>& ids) {
    defaults.eos_ids.assign(ids.begin(), ids.end());
  };
  set_eos(eos);
  const Fields fields(json);
  if (fields.has("eos_token_id"))
    set_eos(json["eos_token_id"].is_array() ? json["eos_token_id"].as_ints()
                                            : std::vector<int64_t>{json["eos_token_id"].as_int()});
  defaults.max_new_tokens = fields.integer("max_new_tokens", 1);
  // max_length counts the start token.
  if (const auto length = fields.integer("max_length", 2); length && !defaults.max_new_tokens)
    defaults.max_new_tokens = *length - 1;
  QT_CHECK_AS(ExitCode::kData, fields.integer("decoder_start_token_id", -1).value_or(0) == 0,
              "{}.decoder_start_token_id: expected 0, as decoders start here", json.path());
  defaults.num_beams = fields.integer("num_beams", 1);
  defaults.min_new_tokens = fields.integer("min_new_tokens", 0);
  // min_length counts the start token, too.
  if (const auto length = fields.integer("min_length", 0); length && *length > 0)
    defaults.min_new_tokens = std::max(defaults.min_new_tokens.value_or(0), *length - 1);
  defaults.no_repeat_ngram_size = fields.integer("no_repeat_ngram_size", 0);
  defaults.length_penalty = fields.number("length_penalty");
  defaults.repetition_penalty = fields.number("repetition_penalty");
  if (fields.has("early_stopping"))
    defaults.early_stopping = !json["early_stopping"].is_bool()  ? "never"
                              : json["early_stopping"].as_bool() ? "yes"
                                                                 : "no";
  if (fields.flag("do_sample")) {
    defaults.temperature = fields.number("temperature").value_or(1.0);
    defaults.top_k = fields.integer("top_k", 0).value_or(50);
    defaults.top_p = fields.number("top_p");
  }
  for (const char* name : {"top_k", "top_p"}) fields.has(name);  // read without sampling, too
  if (fields.has("renormalize_logits"))
    defaults.renormalize_logits = json["renormalize_logits"].as_bool();
  defaults.rules = read_rules(json, fields, defaults.eos_ids);
  warn_of_others(json, fields.read(), has_file);
  return defaults;
}

Json config_file(const fs::path& directory, bool& has_file) {
  has_file = is_there(directory / "generation_config.json");
  return Json::read(directory / (has_file ? "generation_config.json" : "config.json"));
}

}  // namespace

GenerationDefaults read_generation_defaults(const fs::path& directory) {
  bool has_file = false;
  const Json json = config_file(directory, has_file);
  return defaults_of(json, has_file, huggingface::read_config(directory).eos_token_ids);
}

std::string kept_generation_config(const CheckpointReader& from) {
  const fs::path folder = from.folder();
  if (!huggingface::is_directory(folder)) {
    const Json state = Json::parse(from.state_json(), folder.string() + ": state");
    return state.has(kGenerationConfig) ? state[kGenerationConfig].raw().dump() : "";
  }
  bool has_file = false;
  const Json json = config_file(folder, has_file);
  const nlohmann::ordered_json kept = {
      {"config", json.raw()},
      {"of_generation", has_file},
      {"eos_token_ids", huggingface::read_config(folder).eos_token_ids}};
  return kept.dump();
}

std::optional<GenerationDefaults> generation_defaults_of(const CheckpointReader& from) {
  const fs::path folder = from.folder();
  if (huggingface::is_directory(folder)) return read_generation_defaults(folder);
  const std::string text = kept_generation_config(from);
  if (text.empty()) return std::nullopt;
  const Json kept = Json::parse(text, fmt::format("{}: {}", folder.string(), kGenerationConfig));
  return defaults_of(kept["config"], kept["of_generation"].as_bool(),
                     kept["eos_token_ids"].as_ints());
}

}  // namespace quintet
