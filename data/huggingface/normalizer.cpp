#include "data/huggingface/normalizer.h"

#include <re2/re2.h>
#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <memory>

#include "data/examples/base64.h"
#include "data/huggingface/characters.h"
#include "data/huggingface/charsmap.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

void replace_all(std::string& text, std::string_view pattern, std::string_view content) {
  for (size_t at = 0; (at = text.find(pattern, at)) != std::string::npos; at += content.size())
    text.replace(at, pattern.size(), content);
}

/// Of more than one character.
bool is_long(std::string_view text) { return !text.empty() && character_size(text) < text.size(); }

Normalizer read_replace(const Json& json) {
  const std::string content = json["content"].as_string();
  const Json pattern = json["pattern"];
  if (pattern.has("String")) {
    const std::string text = pattern["String"].as_string();
    QT_CHECK_AS(ExitCode::kData, !text.empty(), "{}: is empty", pattern.path());
    return [text, content](TextPiece& piece) {
      if (is_long(text) && piece.text.starts_with(text)) piece.at_start = false;
      replace_all(piece.text, text, content);
    };
  }
  const std::string text = pattern["Regex"].as_string();
  // Both libraries read these alike; what a class of characters holds differs.
  const bool same = text.find_first_of("\\") == std::string::npos &&
                    text.find("(?") == std::string::npos && text.find("[[") == std::string::npos;
  const auto regex = std::make_shared<RE2>(text, RE2::Quiet);
  QT_CHECK_AS(ExitCode::kData, same && regex->ok(),
              "{}.Regex: '{}' is not supported; supported are expressions without classes of "
              "characters (\\s) and look-arounds",
              pattern.path(), text);
  std::string rewrite = content;
  replace_all(rewrite, "\\", "\\\\");
  return [regex, rewrite](TextPiece& piece) {
    re2::StringPiece found;
    if (regex->Match(piece.text, 0, piece.text.size(), RE2::ANCHOR_START, &found, 1) &&
        is_long({found.data(), found.size()}))
      piece.at_start = false;
    RE2::GlobalReplace(&piece.text, *regex, rewrite);
  };
}

Normalizer read_strip(const Json& json) {
  const bool left = json["strip_left"].as_bool(), right = json["strip_right"].as_bool();
  return [left, right](TextPiece& piece) {
    std::string& text = piece.text;
    if (right) text.resize(text.size() - spaces_at_end(text));
    const size_t spaces = left ? spaces_at_start(text) : 0;
    if (spaces > 0) piece.at_start = false;
    text.erase(0, spaces);
  };
}

Normalizer read_unicode_form(const std::string& name) {
  UErrorCode status = U_ZERO_ERROR;
  const UNormalization2Mode mode = name.ends_with('C') ? UNORM2_COMPOSE : UNORM2_DECOMPOSE;
  const icu::Normalizer2* form = icu::Normalizer2::getInstance(
      nullptr, name.starts_with("NFK") ? "nfkc" : "nfc", mode, status);
  QT_CHECK_AS(ExitCode::kEnvironment, U_SUCCESS(status), "ICU has no {}: {}", name,
              u_errorName(status));
  return [form](TextPiece& piece) {
    UErrorCode failure = U_ZERO_ERROR;
    std::string out;
    form->normalize(icu::UnicodeString::fromUTF8(piece.text), failure).toUTF8String(out);
    piece.text = std::move(out);
  };
}

/// Each character becomes what `change` appends for it.
template <typename Change>
Normalizer each_character(Change change) {
  return [change](TextPiece& piece) {
    std::string out;
    for (const int32_t c : codepoints_of(piece.text)) change(c, out);
    piece.text = std::move(out);
  };
}

void append_lower(int32_t c, std::string& out) {
  icu::UnicodeString(UChar32{c}).toLower(icu::Locale::getRoot()).toUTF8String(out);
}

void append_unless_mark(int32_t c, std::string& out) {
  if ((U_GET_GC_MASK(c) & U_GC_M_MASK) == 0) append_utf8(out, c);
}

Normalizer normalizer_sequence(const Json& json) {
  std::vector<Normalizer> parts;
  for (const Json& part : json.items())
    if (Normalizer one = read_normalizer(part)) parts.push_back(std::move(one));
  return [parts](TextPiece& piece) {
    for (const Normalizer& part : parts) part(piece);
  };
}

}  // namespace

Normalizer charsmap_normalizer(const std::string& bytes, const std::string& where) {
  if (bytes.empty()) return {};
  const auto map = std::make_shared<const Charsmap>(bytes, where);
  return [map](TextPiece& piece) { piece.text = map->normalize(piece.text); };
}

Normalizer read_normalizer(const Json& json) {
  if (json.is_null()) return {};
  const std::string type = json["type"].as_string();
  if (type == "Sequence") return normalizer_sequence(json["normalizers"]);
  if (type == "Precompiled") return charsmap_normalizer(charsmap_bytes(json), json.path());
  if (type == "Replace") return read_replace(json);
  if (type == "Strip") return read_strip(json);
  if (type == "Lowercase") return each_character(append_lower);
  if (type == "StripAccents") return each_character(append_unless_mark);
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
    return read_unicode_form(type);
  if (type == "Prepend")
    return [text = json["prepend"].as_string()](TextPiece& piece) {
      if (!piece.text.empty()) piece.text.insert(0, text);
    };
  fail(ExitCode::kData,
       "{}.type: the normalizer '{}' is not supported; supported are Sequence, Precompiled, "
       "Replace, Strip, Lowercase, StripAccents, Prepend, NFC, NFD, NFKC and NFKD",
       json.path(), type);
}

std::string charsmap_bytes(const Json& json) {
  if (json["precompiled_charsmap"].is_null()) return "";
  const auto bytes = from_base64(json["precompiled_charsmap"].as_string());
  QT_CHECK_AS(ExitCode::kData, bytes.has_value(), "{}.precompiled_charsmap: is not base64",
              json.path());
  return *bytes;
}

}  // namespace quintet::data
