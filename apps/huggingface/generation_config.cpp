#include "apps/huggingface/generation_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "checkpoint/huggingface/config.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

// Fields that change answers and are not taken from the file, and the value with which they change nothing.
constexpr std::array<std::pair<const char*, const char*>, 14> kNotTaken{
    {{"encoder_no_repeat_ngram_size", "0"},
     {"encoder_repetition_penalty", "1.0"},
     {"bad_words_ids", "null"},
     {"forced_bos_token_id", "null"},
     {"forced_eos_token_id", "null"},
     {"suppress_tokens", "null"},
     {"begin_suppress_tokens", "null"},
     {"exponential_decay_length_penalty", "null"},
     {"sequence_bias", "null"},
     {"num_beam_groups", "1"},
     {"diversity_penalty", "0.0"},
     {"typical_p", "1.0"},
     {"penalty_alpha", "null"},
     {"guidance_scale", "null"}}};

class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}
  bool has(const std::string& name) const { return json_.has(name) && !json_[name].is_null(); }
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
};

void warn_of_others(const Json& json) {
  for (const auto& [name, value] : kNotTaken) {
    if (!json.has(name)) continue;
    const nlohmann::json found = json[name].raw(), none = nlohmann::json::parse(value);
    if (found != none && !found.is_null())
      fmt::print(stderr, "warning: {}.{} = {} has no effect here\n", json.path(), name,
                 found.dump());
  }
}

}  // namespace

GenerationDefaults read_generation_defaults(const fs::path& directory) {
  GenerationDefaults defaults;
  const auto set_eos = [&](const std::vector<int64_t>& ids) {
    defaults.eos_ids.assign(ids.begin(), ids.end());
  };
  set_eos(huggingface::read_config(directory).eos_token_ids);
  const bool has_file = is_there(directory / "generation_config.json");
  const Json json = Json::read(directory / (has_file ? "generation_config.json" : "config.json"));
  const Fields fields(json);
  if (fields.has("eos_token_id"))
    set_eos(json["eos_token_id"].is_array() ? json["eos_token_id"].as_ints()
                                            : std::vector<int64_t>{json["eos_token_id"].as_int()});
  defaults.max_new_tokens = fields.integer("max_new_tokens", 1);
  // max_length counts the start token.
  if (const auto length = fields.integer("max_length", 2); length && !defaults.max_new_tokens)
    defaults.max_new_tokens = *length - 1;
  defaults.num_beams = fields.integer("num_beams", 1);
  defaults.min_new_tokens = fields.integer("min_new_tokens", 0);
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
  warn_of_others(json);
  return defaults;
}

}  // namespace quintet
