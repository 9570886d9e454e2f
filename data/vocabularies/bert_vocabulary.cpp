#include "data/vocabularies/bert_vocabulary.h"

#include <re2/re2.h>
#include <unicode/normalizer2.h>
#include <unicode/unistr.h>
#include <zlib.h>

#include <algorithm>

#include "data/vocabularies/utf8.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr const char* kSpaces = R"(\s+)";
// Marks, and ideographs, which are words of their own.
constexpr const char* kMarks =
    R"([!-/]|[:-@]|[\[-`]|[{-~]|[\p{P}]|[\x{4E00}-\x{9FFF}]|[\x{3400}-\x{4DBF}]|)"
    R"([\x{20000}-\x{2A6DF}]|[\x{2A700}-\x{2B73F}]|[\x{2B740}-\x{2B81F}]|[\x{2B820}-\x{2CEAF}]|)"
    R"([\x{F900}-\x{FAFF}]|[\x{2F800}-\x{2FA1F}])";
constexpr const char* kUnused = R"(\[unused\d+\]|)";

const icu::Normalizer2* normalizer(const std::string& name, UNormalization2Mode mode) {
  UErrorCode status = U_ZERO_ERROR;
  const auto* found = icu::Normalizer2::getInstance(nullptr, name.c_str(), mode, status);
  QT_CHECK_AS(ExitCode::kBug, U_SUCCESS(status), "ICU: {}", u_errorName(status));
  return found;
}

/// ICU names a table and a direction: NFKD is its "nfkc", decomposing.
const icu::Normalizer2* normal_form(const std::string& form) {
  QT_CHECK(form == "NFC" || form == "NFD" || form == "NFKC" || form == "NFKD",
           "BertWordPieceVocabulary: normalization_form '{}', expected NFC, NFD, NFKC or NFKD",
           form);
  return normalizer(form.size() == 3 ? "nfc" : "nfkc",
                    form.back() == 'C' ? UNORM2_COMPOSE : UNORM2_DECOMPOSE);
}

std::string normalize(const icu::Normalizer2* form, std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  std::string out;
  form->normalize(icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())}),
                  status)
      .toUTF8String(out);
  QT_CHECK_AS(ExitCode::kData, U_SUCCESS(status), "cannot normalise '{}': {}", text,
              u_errorName(status));
  return out;
}

}  // namespace

struct BertWordPieceVocabulary::Patterns {
  RE2 delimiter, kept, invisible{R"(\p{Cc}|\p{Cf})"}, accent{R"(\p{Mn})"};
  const icu::Normalizer2 *form = nullptr, *fold = nullptr;
  Patterns(const std::string& delimiters, const std::string& keep)
      : delimiter("(" + delimiters + ")"), kept(keep) {}
};

BertWordPieceVocabulary::BertWordPieceVocabulary(Options options) : options_(std::move(options)) {
  const std::string& file = options_.vocab_lookup_table;
  const std::string bytes = read_vocabulary_file(file);
  checksum_ =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    ids_.emplace(bytes.substr(at, end - at), static_cast<int32_t>(pieces_.size()));
    pieces_.push_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  QT_CHECK_AS(ExitCode::kData, ids_.contains(options_.unknown_token),
              "{}: has no piece '{}'; expected a BERT vocabulary, one piece a line", file,
              options_.unknown_token);
  unk_id_ = id_of(options_.unknown_token);
  QT_CHECK(!options_.lower_case || options_.normalization_form.value_or("NFD") == "NFD",
           "BertWordPieceVocabulary: lower_case takes accents off, so normalization_form must be "
           "NFD");
  const std::string unused = options_.preserve_unused_token ? kUnused : "";
  const std::string delimiters = std::string(kSpaces) + "|" + kMarks;
  auto patterns = std::make_unique<Patterns>(
      unused + delimiters, unused + (options_.keep_whitespace ? delimiters : kMarks));
  if (options_.lower_case) {
    patterns->fold = normalizer("nfkc_cf", UNORM2_COMPOSE);
    patterns->form = normal_form("NFD");
  } else if (options_.normalization_form) {
    patterns->form = normal_form(*options_.normalization_form);
  }
  patterns_ = std::move(patterns);
}

BertWordPieceVocabulary::~BertWordPieceVocabulary() = default;

int32_t BertWordPieceVocabulary::id_of(const std::string& piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? static_cast<int32_t>(pieces_.size()) : found->second;
}

void BertWordPieceVocabulary::encode_word(std::string_view word, Tokens& ids) const {
  const size_t before = ids.size();
  if (static_cast<int64_t>(word.size()) > options_.max_bytes_per_word) {
    ids.push_back(unk_id_);
    return;
  }
  // Where characters begin, and the end.
  std::vector<size_t> starts;
  for (size_t at = 0; at < word.size(); at += std::max<size_t>(1, utf8_sequence(word.substr(at))))
    starts.push_back(at);
  starts.push_back(word.size());
  const size_t characters = starts.size() - 1;
  for (size_t first = 0; first < characters;) {
    const std::string lead = first > 0 ? options_.suffix_indicator : "";
    size_t last = characters;
    if (options_.max_chars_per_token)
      last = std::min(last, first + static_cast<size_t>(*options_.max_chars_per_token));
    auto found = ids_.end();
    for (; last > first && found == ids_.end(); --last)
      found =
          ids_.find(lead + std::string(word.substr(starts[first], starts[last] - starts[first])));
    if (found != ids_.end()) {
      ids.push_back(found->second);
      first = last + 1;
    } else if (options_.split_unknown_characters) {
      ids.push_back(id_of(lead + options_.unknown_token));
      ++first;
    } else {
      ids.resize(before);
      ids.push_back(unk_id_);
      return;
    }
  }
}

Tokens BertWordPieceVocabulary::encode(std::string_view text) const {
  std::string clean(text);
  if (patterns_->fold != nullptr) clean = normalize(patterns_->fold, clean);
  if (patterns_->form != nullptr) clean = normalize(patterns_->form, clean);
  if (patterns_->fold != nullptr) RE2::GlobalReplace(&clean, patterns_->accent, "");
  RE2::GlobalReplace(&clean, patterns_->invisible, " ");
  Tokens ids;
  re2::StringPiece rest(clean), mark;
  const char* start = rest.data();
  while (RE2::FindAndConsume(&rest, patterns_->delimiter, &mark)) {
    if (mark.data() > start) encode_word({start, static_cast<size_t>(mark.data() - start)}, ids);
    if (RE2::FullMatch(mark, patterns_->kept)) encode_word({mark.data(), mark.size()}, ids);
    start = rest.data();
  }
  if (!rest.empty()) encode_word({rest.data(), rest.size()}, ids);
  return ids;
}

void BertWordPieceVocabulary::append(int32_t id, DecodeState& state, std::string& text) const {
  const auto index = static_cast<size_t>(id);
  const std::string& piece = index < pieces_.size() ? pieces_[index] : options_.unknown_token;
  text += (state.begun ? " " : "") + piece;
  state.begun = state.begun || !piece.empty();
}

std::string BertWordPieceVocabulary::description() const {
  const Options& o = options_;
  return fmt::format(
      "BertWordPieceVocabulary(pieces={}, crc32={:08x}, suffix='{}', words={}, tokens={}, "
      "unknown='{}'{}, lower={}, whitespace={}, form={}, unused={}, bos={}, eos={})",
      pieces_.size(), checksum_, o.suffix_indicator, o.max_bytes_per_word,
      o.max_chars_per_token.value_or(0), o.unknown_token,
      o.split_unknown_characters ? " split" : "", o.lower_case, o.keep_whitespace,
      o.normalization_form.value_or("None"), o.preserve_unused_token, o.start_of_sequence_id,
      o.end_of_sequence_id);
}

}  // namespace quintet::data
