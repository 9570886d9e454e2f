#include "data/text_stream.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // of bytes that are no character yet

/// Length of the longest end of `text` that begins `stop` without being all of it.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.ends_with(stop.substr(0, n))) return n;
  return 0;
}

}  // namespace

size_t find_stop(std::string_view text, std::span<const std::string> stops, size_t from) {
  size_t first = std::string_view::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop, from));
  return first;
}

TextStream::TextStream(VocabularyPtr vocabulary, std::vector<std::string> stops)
    : vocabulary_(std::move(vocabulary)), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) QT_CHECK(!stop.empty(), "a stop string must not be empty");
}

std::string TextStream::push(int32_t token) {
  if (stopped_) return {};
  tokens_.push_back(token);
  text_ = vocabulary_->decode(tokens_);
  if (const size_t end = find_stop(text_, stops_, shown_); end != std::string::npos) {
    stopped_ = true;
    text_.resize(end);
    return finish();
  }
  std::string_view certain = text_;
  while (certain.ends_with(kReplacement)) certain.remove_suffix(kReplacement.size());
  size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, begun(certain, stop));
  return take(certain.size() - held);
}

std::string TextStream::finish() { return take(text_.size()); }

std::string TextStream::take(size_t end) {
  if (end <= shown_) return {};
  std::string fresh = text_.substr(shown_, end - shown_);
  shown_ = end;
  return fresh;
}

}  // namespace quintet::data
