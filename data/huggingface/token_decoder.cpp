#include "data/huggingface/token_decoder.h"

#include <charconv>

#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

using TokenTexts = std::vector<std::string>;

void replace_all(std::string& text, const std::string& pattern, const std::string& content) {
  for (size_t at = 0; (at = text.find(pattern, at)) != std::string::npos; at += content.size())
    text.replace(at, pattern.size(), content);
}

void decode_metaspace(const std::string& mark, bool first, std::string& token) {
  replace_all(token, mark, first ? "" : " ");
}

/// The byte that a token "<0x0A>" stands for.
std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

/// Bytes in a row become their text, or U+FFFD each if they are none.
void join_bytes(TokenTexts& tokens) {
  TokenTexts result;
  std::string bytes;
  const auto flush = [&] {
    if (find_bad_utf8(bytes) == std::string::npos) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes.push_back(*byte);
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

void fuse(TokenTexts& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {std::move(all)};
}

/// At most so many of the character at the start and the end of each token.
void strip(const std::string& character, int64_t start, int64_t stop, std::string& token) {
  for (; start > 0 && token.starts_with(character); --start) token.erase(0, character.size());
  for (; stop > 0 && token.ends_with(character); --stop)
    token.resize(token.size() - character.size());
}

std::string not_empty(const Json& value) {
  std::string text = value.as_string();
  QT_CHECK_AS(ExitCode::kData, !text.empty(), "{}: is empty", value.path());
  return text;
}

template <typename Change>
std::function<void(TokenTexts&)> each_token(Change change) {
  return [change](TokenTexts& tokens) {
    for (std::string& token : tokens) change(token);
  };
}

}  // namespace

TokenDecoder TokenDecoder::metaspace(const std::string& mark, bool drops_first) {
  TokenDecoder decoder;
  decoder.metaspace_ = {mark, drops_first};
  decoder.steps_.emplace_back([mark, drops_first](TokenTexts& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      decode_metaspace(mark, i == 0 && drops_first, tokens[i]);
  });
  return decoder;
}

TokenDecoder TokenDecoder::read_metaspace(const Json& json) {
  bool drops_first = true;
  if (json.has("prepend_scheme"))
    drops_first = json["prepend_scheme"].as_string() != "never";
  else if (json.has("add_prefix_space"))
    drops_first = json["add_prefix_space"].as_bool();
  return metaspace(not_empty(json["replacement"]), drops_first);
}

std::function<void(TokenTexts&)> TokenDecoder::read_step(const Json& json) {
  const std::string type = json["type"].as_string();
  if (type == "ByteFallback") return join_bytes;
  if (type == "Fuse") return fuse;
  if (type == "Replace")
    return each_token([pattern = not_empty(json["pattern"]["String"]),
                       content = json["content"].as_string()](std::string& token) {
      replace_all(token, pattern, content);
    });
  if (type == "Strip")
    return each_token([character = not_empty(json["content"]), start = json["start"].as_int(),
                       stop = json["stop"].as_int()](std::string& token) {
      strip(character, start, stop, token);
    });
  if (type == "Metaspace") return read_metaspace(json).steps_.front();
  fail(ExitCode::kData,
       "{}.type: the decoder '{}' is not supported; supported are Sequence, Metaspace, Replace, "
       "ByteFallback, Fuse and Strip",
       json.path(), type);
}

TokenDecoder TokenDecoder::read(const Json& json) {
  TokenDecoder decoder;
  decoder.spaces_between_ = json.is_null();
  if (json.is_null()) return decoder;
  const std::string type = json["type"].as_string();
  if (type == "Metaspace") return read_metaspace(json);
  if (type == "Sequence") {
    for (const Json& part : json["decoders"].items()) decoder.steps_.push_back(read_step(part));
    return decoder;
  }
  decoder.steps_.push_back(read_step(json));
  return decoder;
}

std::string TokenDecoder::decode(TokenTexts tokens) const {
  for (const auto& step : steps_) step(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (spaces_between_ && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::optional<std::string> TokenDecoder::decode_one(const std::string& token, bool first) const {
  if (!metaspace_) return std::nullopt;
  std::string text = token;
  decode_metaspace(metaspace_->first, first && metaspace_->second, text);
  return text;
}

}  // namespace quintet::data
