#include "data/huggingface/tokenizer_files.h"

#include <algorithm>
#include <array>

#include "data/huggingface/spiece_file.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kSettings = "tokenizer_config.json";
constexpr std::array kNamedTokens{"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};
constexpr int32_t kByteIds = 3 + 256;

Json read_or_empty(const fs::path& file) {
  if (!is_there(file)) return Json::parse("{}", file.string());
  Json json = Json::read(file);
  QT_CHECK_AS(ExitCode::kData, json.is_object(), "{}: expected an object", file.string());
  return json;
}

bool is_set(const Json& json, const char* name) { return json.has(name) && !json[name].is_null(); }

/// Without "Fast".
std::string class_of(const Json& json) {
  std::string name = is_set(json, "tokenizer_class") ? json["tokenizer_class"].as_string() : "";
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

/// A directory's tokenizer while it is put together.
class Tokenizer {
 public:
  explicit Tokenizer(const fs::path& directory)
      : directory_(directory),
        kind_(tokenizer_kind(directory)),
        settings_(read_or_empty(directory / kSettings)),
        special_(read_or_empty(directory / "special_tokens_map.json")) {}

  TokenizerParts read() {
    switch (kind_) {
      case TokenizerKind::none:
        fail(ExitCode::kData,
             "{}: has no tokenizer: neither {} nor spiece.model, and {} names no "
             "ByT5Tokenizer",
             directory_.string(), kTokenizer, kSettings);
      case TokenizerKind::bytes:
        return read_bytes();
      case TokenizerKind::t5:
        read_t5();
        break;
      case TokenizerKind::other:
        read_other();
    }
    add_recorded();
    add_named();
    add_extra();
    parts_.pad_id = id_of("pad_token", "<pad>");
    parts_.eos_id = id_of("eos_token", "</s>");
    parts_.unk_id = parts_.model->unk_id();
    return std::move(parts_);
  }

 private:
  TokenizerParts read_bytes() {
    parts_.added.emplace(kByteIds);
    int32_t next = 0;
    for (const auto& [name, text] :
         {std::pair("pad_token", "<pad>"), {"eos_token", "</s>"}, {"unk_token", "<unk>"}}) {
      const auto found = named(name);
      AddedToken token = found ? AddedToken::read(*found, true) : AddedToken{.content = text};
      if (!found || found->is_string()) token.lstrip = token.rstrip = true;
      parts_.added->add(token, next++);
    }
    add_recorded();
    add_named();
    add_extra();
    parts_.pad_id = 0;
    parts_.eos_id = 1;
    parts_.unk_id = 2;
    return std::move(parts_);
  }

  /// transformers' T5Tokenizer.
  void read_t5() {
    constexpr int32_t kUnknown = 2;
    parts_.pre_tokenizer = t5_pre_tokenizer();
    std::vector<ScoredPiece> pieces;
    std::string charsmap;
    if (is_there(directory_ / kTokenizer)) {
      const Json& json = open_json();
      pieces = pieces_of(json["model"]);
      charsmap = find_charsmap(json);
    } else {
      SpieceFile file = read_spiece_file(directory_ / "spiece.model");
      parts_.file = directory_ / "spiece.model";
      pieces = std::move(file.pieces);
      charsmap = std::move(file.charsmap);
      for (int64_t i = extra_ids(); i-- > 0;) pieces.push_back({fmt::format("<extra_id_{}>", i)});
      model_tokens_ = std::move(file.tokens);
    }
    parts_.normalizer = charsmap_normalizer(charsmap, parts_.file.string());
    set_model(std::move(pieces), kUnknown, false);
  }

  /// The tokenizers library, for what tokenizer.json says.
  void read_other() {
    QT_CHECK_AS(ExitCode::kData, is_there(directory_ / kTokenizer),
                "{}: its tokenizer's class needs {}", directory_.string(), kTokenizer);
    const Json& json = open_json();
    const Json model = json["model"];
    const std::optional<int32_t> unk =
        is_set(model, "unk_id") ? std::optional(static_cast<int32_t>(model["unk_id"].as_int()))
                                : std::nullopt;
    set_model(pieces_of(model), unk,
              is_set(model, "byte_fallback") && model["byte_fallback"].as_bool());
    for (const Json& token : json["added_tokens"].items()) add(AddedToken::read(token, false));
    const auto part = [&](const char* name) {
      return json.has(name) ? json[name] : Json::parse("null", name);
    };
    parts_.normalizer = read_normalizer(part("normalizer"));
    parts_.pre_tokenizer = read_pre_tokenizer(part("pre_tokenizer"));
    parts_.decoder = TokenDecoder::read(part("decoder"));
    parts_.adds_eos = adds_eos(part("post_processor"));
  }

  const Json& open_json() {
    parts_.file = directory_ / kTokenizer;
    if (!json_)
      json_ = Json::parse(read_vocabulary_file(parts_.file.string()), parts_.file.string());
    return *json_;
  }

  static std::vector<ScoredPiece> pieces_of(const Json& model) {
    const std::string type = model.has("type") ? model["type"].as_string() : "Unigram";
    QT_CHECK_AS(ExitCode::kData, type == "Unigram",
                "{}.type: the model '{}' is not supported; expected Unigram, as T5's are",
                model.path(), type);
    std::vector<ScoredPiece> pieces;
    for (const Json& piece : model["vocab"].items())
      pieces.push_back({piece[0].as_string(), piece[1].as_double()});
    return pieces;
  }

  void set_model(std::vector<ScoredPiece> pieces, std::optional<int32_t> unk, bool byte_fallback) {
    parts_.model = std::make_shared<const UnigramModel>(std::move(pieces), unk, byte_fallback,
                                                        parts_.file.string());
    parts_.added.emplace(parts_.model->size());
  }

  static std::string find_charsmap(const Json& json) {
    if (!is_set(json, "normalizer")) return "";
    const Json normalizer = json["normalizer"];
    const bool many = normalizer["type"].as_string() == "Sequence";
    for (const Json& one : many ? normalizer["normalizers"].items() : std::vector{normalizer})
      if (one["type"].as_string() == "Precompiled") return charsmap_bytes(one);
    return "";
  }

  /// Whether text gets an end token: what is around it.
  static bool adds_eos(const Json& processor) {
    if (processor.is_null()) return false;
    const std::string type = processor["type"].as_string();
    QT_CHECK_AS(ExitCode::kData, type == "TemplateProcessing",
                "{}.type: the post-processor '{}' is not supported; expected TemplateProcessing",
                processor.path(), type);
    const std::vector<Json> single = processor["single"].items();
    QT_CHECK_AS(ExitCode::kData,
                !single.empty() && single.size() <= 2 && single[0].has("Sequence") &&
                    (single.size() == 1 || single[1].has("SpecialToken")),
                "{}.single: expected a text and at most an end token after it", processor.path());
    return single.size() == 2;
  }

  /// A named token's entry; special_tokens_map.json counts where there is no added_tokens_decoder.
  std::optional<Json> named(const char* name) const {
    if (!is_set(settings_, "added_tokens_decoder") && is_set(special_, name)) return special_[name];
    if (is_set(settings_, name)) return settings_[name];
    return std::nullopt;
  }
  std::string text_of(const char* name, const char* otherwise) const {
    const auto json = named(name);
    return json ? AddedToken::read(*json, true).content : otherwise;
  }
  std::optional<int32_t> id_of(const char* name, const char* otherwise) const {
    const std::string text = text_of(name, otherwise);
    const auto added = parts_.added->find(text);
    return added ? added : parts_.model->find(text);
  }

  void add(AddedToken token, std::optional<int32_t> id = {}) {
    if (!id && parts_.model != nullptr) id = parts_.model->find(token.content);
    parts_.added->add(std::move(token), id);
  }
  void add_if_new(AddedToken token) {
    if (!parts_.added->find(token.content)) add(std::move(token));
  }

  /// added_tokens_decoder; files from before it have added_tokens.json, and T5Tokenizer then takes those of
  /// tokenizer.json.
  void add_recorded() {
    std::map<int64_t, AddedToken> tokens;
    if (is_set(settings_, "added_tokens_decoder")) {
      for (const auto& [id, token] : settings_["added_tokens_decoder"].members())
        tokens[parse_id(id)] = AddedToken::read(token, false);
    } else {
      const Json older = read_or_empty(directory_ / "added_tokens.json");
      for (const auto& [text, id] : older.members()) {
        const bool special = is_named_special(text);
        tokens[id.as_int()] = {.content = text, .special = special, .normalized = !special};
      }
      if (kind_ != TokenizerKind::bytes && is_there(directory_ / kTokenizer))
        for (const Json& token : open_json()["added_tokens"].items())
          tokens[token["id"].as_int()] = AddedToken::read(token, false);
    }
    for (auto& [id, token] : tokens)
      kind_ == TokenizerKind::bytes ? add(std::move(token), static_cast<int32_t>(id))
                                    : add(std::move(token));
  }
  static int64_t parse_id(const std::string& text) {
    const Json id = Json::parse(text, "tokenizer_config.json:added_tokens_decoder");
    const int64_t value = id.as_int();
    QT_CHECK_AS(ExitCode::kData, value >= 0 && value < int64_t{1} << 30, "{}: '{}' is no token id",
                id.path(), text);
    return value;
  }

  bool is_named_special(const std::string& text) const {
    return std::any_of(kNamedTokens.begin(), kNamedTokens.end(),
                       [&](const char* name) { return text_of(name, "") == text; });
  }

  void add_named() {
    for (const char* name : kNamedTokens) {
      const auto json = named(name);
      if (json)
        add_if_new(AddedToken::read(*json, true));
      else if (kind_ == TokenizerKind::t5)
        for (const auto& [own, text] :
             {std::pair("eos_token", "</s>"), {"unk_token", "<unk>"}, {"pad_token", "<pad>"}})
          if (std::string(name) == own) add_if_new({.content = text, .special = true});
    }
  }

  int64_t extra_ids() const {
    const int64_t otherwise = kind_ == TokenizerKind::bytes ? 125 : 100;
    const int64_t count =
        is_set(settings_, "extra_ids") ? settings_["extra_ids"].as_int() : otherwise;
    QT_CHECK_AS(ExitCode::kData, count >= 0 && count <= 1 << 20,
                "{}.extra_ids: expected 0 or more, found {}", settings_.path(), count);
    return count;
  }

  void add_extra() {
    for (const Json* json : {&settings_, &special_})
      for (const char* name : {"extra_special_tokens", "additional_special_tokens"})
        if (is_set(*json, name) && (*json)[name].is_array() && (*json)[name].size() > 0) {
          for (const Json& token : (*json)[name].items()) add_if_new(AddedToken::read(token, true));
          return;
        }
    if (kind_ == TokenizerKind::other) return;
    for (AddedToken& token : model_tokens_) add_if_new(std::move(token));
    for (int64_t i = 0; i < extra_ids(); ++i)
      add_if_new({.content = fmt::format("<extra_id_{}>", i), .special = true});
  }

  const fs::path directory_;
  const TokenizerKind kind_;
  const Json settings_, special_;
  std::optional<Json> json_;              // tokenizer.json
  std::vector<AddedToken> model_tokens_;  // control and user-defined pieces of spiece.model
  TokenizerParts parts_;
};

}  // namespace

TokenizerKind tokenizer_kind(const fs::path& directory) {
  const Json config = read_or_empty(directory / "config.json");
  std::string name = class_of(read_or_empty(directory / kSettings));
  if (name.empty()) name = class_of(config);
  const std::string model = is_set(config, "model_type") ? config["model_type"].as_string() : "t5";
  if (name == "ByT5Tokenizer") return TokenizerKind::bytes;
  const bool json = is_there(directory / kTokenizer);
  if (!json && !is_there(directory / "spiece.model")) return TokenizerKind::none;
  const bool is_t5 = name.empty() || name == "T5Tokenizer" || name == "MT5Tokenizer";
  // umT5 has no tokenizer of its own; transformers cannot read its spiece.model alone.
  return is_t5 && (model != "umt5" || !json) ? TokenizerKind::t5 : TokenizerKind::other;
}

TokenizerParts read_tokenizer(const fs::path& directory) { return Tokenizer(directory).read(); }

}  // namespace quintet::data
