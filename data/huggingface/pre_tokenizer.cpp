#include "data/huggingface/pre_tokenizer.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include "data/huggingface/characters.h"
#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

enum class Prepend { always, first, never };

/// Each piece becomes those that `split` appends for it.
template <typename Split>
PreTokenizer each_piece(Split split) {
  return [split](Pieces& pieces) {
    Pieces result;
    for (TextPiece& piece : pieces) split(std::move(piece), result);
    pieces = std::move(result);
  };
}

void add_piece(std::string_view text, bool at_start, Pieces& to) {
  if (!text.empty()) to.push_back({std::string(text), at_start});
}

void split_at_spaces(const TextPiece& piece, Pieces& to) {
  std::string_view rest = piece.text;
  for (bool at_start = piece.at_start; !rest.empty(); at_start = false) {
    if (const size_t spaces = spaces_at_start(rest); spaces > 0) {
      rest.remove_prefix(spaces);
      continue;
    }
    size_t end = 0;
    while (end < rest.size() && spaces_at_start(rest.substr(end)) == 0)
      end += character_size(rest.substr(end));
    add_piece(rest.substr(0, end), at_start, to);
    rest.remove_prefix(end);
  }
}

/// Before each `mark`.
void split_before(std::string_view mark, const TextPiece& piece, Pieces& to) {
  const std::string_view text = piece.text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end =
        std::min(text.find(mark, begin + (text.substr(begin).starts_with(mark) ? mark.size() : 0)),
                 text.size());
    add_piece(text.substr(begin, end - begin), piece.at_start && begin == 0, to);
    begin = end;
  }
}

PreTokenizer metaspace(const std::string& mark, Prepend prepend, bool split) {
  return each_piece([mark, prepend, split](TextPiece piece, Pieces& to) {
    std::string& text = piece.text;
    for (size_t at = 0; (at = text.find(' ', at)) != std::string::npos; at += mark.size())
      text.replace(at, 1, mark);
    const bool wanted = prepend == Prepend::always || (prepend == Prepend::first && piece.at_start);
    if (wanted && !text.starts_with(mark)) text.insert(0, mark);
    split ? split_before(mark, piece, to) : add_piece(text, piece.at_start, to);
  });
}

PreTokenizer read_metaspace(const Json& json) {
  const std::string mark = json["replacement"].as_string();
  QT_CHECK_AS(ExitCode::kData, !mark.empty() && character_size(mark) == mark.size(),
              "{}.replacement: expected one character, found '{}'", json.path(), mark);
  Prepend prepend = Prepend::always;
  if (json.has("prepend_scheme")) {
    const std::string scheme = json["prepend_scheme"].as_string();
    QT_CHECK_AS(ExitCode::kData, scheme == "always" || scheme == "first" || scheme == "never",
                "{}.prepend_scheme: expected always, first or never, found '{}'", json.path(),
                scheme);
    prepend = scheme == "first"   ? Prepend::first
              : scheme == "never" ? Prepend::never
                                  : Prepend::always;
  } else if (json.has("add_prefix_space") && !json["add_prefix_space"].as_bool()) {
    prepend = Prepend::never;  // files from before prepend_scheme
  }
  return metaspace(mark, prepend, !json.has("split") || json["split"].as_bool());
}

PreTokenizer read_digits(const Json& json) {
  const bool individual = json["individual_digits"].as_bool();
  return each_piece([individual](const TextPiece& piece, Pieces& to) {
    const std::string_view text = piece.text;
    size_t begin = 0;
    bool in_digits = false;
    for (size_t at = 0; at < text.size();) {
      const size_t size = character_size(text.substr(at));
      const auto characters = codepoints_of(text.substr(at, size));
      const bool digit = !characters.empty() && (U_GET_GC_MASK(characters[0]) & U_GC_N_MASK) != 0;
      if (at > begin && (digit != in_digits || (digit && individual))) {
        add_piece(text.substr(begin, at - begin), piece.at_start && begin == 0, to);
        begin = at;
      }
      in_digits = digit;
      at += size;
    }
    add_piece(text.substr(begin), piece.at_start && begin == 0, to);
  });
}

PreTokenizer pre_tokenizer_sequence(const Json& json) {
  std::vector<PreTokenizer> parts;
  for (const Json& part : json.items())
    if (PreTokenizer one = read_pre_tokenizer(part)) parts.push_back(std::move(one));
  return [parts](Pieces& pieces) {
    for (const PreTokenizer& part : parts) part(pieces);
  };
}

}  // namespace

PreTokenizer read_pre_tokenizer(const Json& json) {
  if (json.is_null()) return {};
  const std::string type = json["type"].as_string();
  if (type == "Sequence") return pre_tokenizer_sequence(json["pretokenizers"]);
  if (type == "WhitespaceSplit") return each_piece(split_at_spaces);
  if (type == "Metaspace") return read_metaspace(json);
  if (type == "Digits") return read_digits(json);
  fail(ExitCode::kData,
       "{}.type: the pre-tokenizer '{}' is not supported; supported are Sequence, "
       "WhitespaceSplit, Metaspace and Digits",
       json.path(), type);
}

PreTokenizer t5_pre_tokenizer() {
  return [](Pieces& pieces) {
    static const PreTokenizer words = each_piece(split_at_spaces);
    static const PreTokenizer marks = metaspace("\u2581", Prepend::always, true);
    words(pieces);
    marks(pieces);
  };
}

}  // namespace quintet::data
