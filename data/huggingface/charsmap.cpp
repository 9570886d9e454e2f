#include "data/huggingface/charsmap.h"

#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

// Fields of a unit of the trie (darts-clone).
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (1U << 31 | 0xff); }
size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1U << 9) >> 6); }

/// Each thread's own: iterating changes it.
icu::BreakIterator& grapheme_iterator() {
  static thread_local const std::unique_ptr<icu::BreakIterator> iterator = [] {
    UErrorCode status = U_ZERO_ERROR;
    std::unique_ptr<icu::BreakIterator> made(
        icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
    QT_CHECK_AS(ExitCode::kEnvironment, U_SUCCESS(status),
                "ICU has no rules for characters ({}); install its data (libicu)",
                u_errorName(status));
    return made;
  }();
  return *iterator;
}

/// Calls work with each grapheme cluster.
template <typename Work>
void for_each_grapheme(std::string_view text, Work work) {
  UErrorCode status = U_ZERO_ERROR;
  UText* utext = utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status);
  icu::BreakIterator& iterator = grapheme_iterator();
  iterator.setText(utext, status);
  utext_close(utext);
  QT_CHECK(U_SUCCESS(status), "ICU cannot read a text: {}", u_errorName(status));
  for (int32_t begin = iterator.first(), end; (end = iterator.next()) != icu::BreakIterator::DONE;
       begin = end)
    work(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  QT_CHECK_AS(ExitCode::kData,
              trie_bytes > 0 && trie_bytes % sizeof(uint32_t) == 0 &&
                  trie_bytes <= bytes.size() - sizeof trie_bytes,
              "{}: is no precompiled character map: {} bytes, of which a trie is said to have {}",
              where, bytes.size(), trie_bytes);
  trie_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(trie_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  replacements_ = bytes.substr(sizeof trie_bytes + trie_bytes);
}

std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  size_t node = offset(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= trie_.size() || label(trie_[node]) != byte) return std::nullopt;
    const bool ends_here = has_leaf(trie_[node]);
    node ^= offset(trie_[node]);
    if (!ends_here) continue;
    if (node >= trie_.size()) return std::nullopt;
    const size_t at = trie_[node] & ~(1U << 31);
    if (at >= replacements_.size()) return std::nullopt;
    return std::string_view(replacements_).substr(at, replacements_.find('\0', at) - at);
  }
  return std::nullopt;
}

void Charsmap::append_grapheme(std::string_view grapheme, std::string& out) const {
  constexpr size_t kLookedUpWhole = 6;  // bytes; fewer
  if (grapheme.size() < kLookedUpWhole)
    if (const auto found = replacement(grapheme)) {
      out += *found;
      return;
    }
  while (!grapheme.empty()) {
    const std::string_view one = grapheme.substr(0, std::max<size_t>(utf8_sequence(grapheme), 1));
    out += replacement(one).value_or(one);
    grapheme.remove_prefix(one.size());
  }
}

std::string Charsmap::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for_each_grapheme(text, [&](std::string_view grapheme) { append_grapheme(grapheme, out); });
  return out;
}

}  // namespace quintet::data
