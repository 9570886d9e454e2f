#include "data/vocabularies/codepoint_vocabularies.h"

#include <charconv>
#include <utility>

#include "data/vocabularies/utf8.h"
#include "data/vocabularies/vocabulary_file.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {
constexpr int32_t kUnknown = 0xE004;  // stands for an unknown character in text
}

Tokens FullCodepointVocabulary::encode(std::string_view text) const { return codepoints_of(text); }

void FullCodepointVocabulary::append(int32_t id, DecodeState&, std::string& text) const {
  if (id != kEos) append_utf8(text, id);
}

PartialCodepointVocabulary::PartialCodepointVocabulary(const Tokens& codepoints, int32_t extra_ids)
    : codepoints_{0, FullCodepointVocabulary::kEos, kUnknown}, extra_ids_(extra_ids) {
  QT_CHECK(extra_ids >= 0, "PartialCodepointVocabulary: extra_ids {} must not be negative",
           extra_ids);
  for (size_t i = 0; i < codepoints_.size(); ++i) ids_[codepoints_[i]] = static_cast<int32_t>(i);
  for (int32_t codepoint : codepoints)
    if (ids_.emplace(codepoint, base_vocab_size()).second) codepoints_.push_back(codepoint);
}

PartialCodepointVocabulary PartialCodepointVocabulary::create_from_file(
    const std::string& vocab_file, int32_t extra_ids) {
  const std::string content = read_vocabulary_file(vocab_file);
  Tokens codepoints;
  int64_t line = 1;
  for (const char *at = content.data(), *end = at + content.size(); at != end; ++line) {
    int32_t codepoint = 0;
    const auto [stop, error] = std::from_chars(at, end, codepoint);
    QT_CHECK_AS(ExitCode::kData, error == std::errc() && (stop == end || *stop == '\n'),
                "{}:{}: expected a code point as a decimal number", vocab_file, line);
    codepoints.push_back(codepoint);
    at = stop == end ? end : stop + 1;
  }
  PartialCodepointVocabulary vocabulary(codepoints, extra_ids);
  vocabulary.vocab_file_ = vocab_file;
  return vocabulary;
}

Tokens PartialCodepointVocabulary::encode(std::string_view text) const {
  Tokens ids = codepoints_of(text);
  for (int32_t& id : ids) {
    const auto found = ids_.find(id);
    id = found == ids_.end() ? *unk_id() : found->second;
  }
  return ids;
}

void PartialCodepointVocabulary::append(int32_t id, DecodeState&, std::string& text) const {
  if (id != *eos_id()) append_utf8(text, codepoints_[static_cast<size_t>(id)]);
}

std::string PartialCodepointVocabulary::description() const {
  return fmt::format("PartialCodepointVocabulary(codepoints=[{}], extra_ids={})",
                     fmt::join(codepoints_, ", "), extra_ids_);
}

UnigramVocabulary::UnigramVocabulary(std::vector<std::string> unigrams, bool split_on_space)
    : unigrams_(std::move(unigrams)), split_on_space_(split_on_space) {
  unigrams_.insert(unigrams_.begin(), "PAD");
  unigrams_.push_back("UNK");
  for (size_t i = 0; i < unigrams_.size(); ++i) ids_[unigrams_[i]] = static_cast<int32_t>(i);
}

Tokens UnigramVocabulary::encode(std::string_view text) const {
  Tokens ids;
  for (bool more = true; more;) {
    const size_t end = split_on_space_ ? text.find(' ') : std::string_view::npos;
    const auto found = ids_.find(text.substr(0, end));
    ids.push_back(found == ids_.end() ? *unk_id() : found->second);
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  return ids;
}

void UnigramVocabulary::append(int32_t id, DecodeState& state, std::string& text) const {
  text += (std::exchange(state.begun, true) ? " " : "") + unigrams_[static_cast<size_t>(id)];
}

std::string UnigramVocabulary::description() const {
  return fmt::format("UnigramVocabulary(unigrams=[{}], split_on_space={})",
                     fmt::join(unigrams_, ", "), split_on_space_);
}

}  // namespace quintet::data
