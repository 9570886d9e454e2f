#include "data/vocabularies/text_stream.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::data {

// Knuth, Morris and Pratt's.
StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    QT_CHECK(!text.empty(), "a stop string must not be empty");
    std::vector<size_t> fallback(text.size(), 0);
    for (size_t i = 1, n = 0; i < text.size(); ++i) {
      while (n > 0 && text[n] != text[i]) n = fallback[n - 1];
      if (text[n] == text[i]) ++n;
      fallback[i] = n;
    }
    stops_.push_back({.text = std::move(text), .fallback = std::move(fallback)});
  }
}

std::optional<size_t> StopMatcher::read(std::string_view text) {
  std::optional<size_t> first;
  for (Stop& stop : stops_)
    for (size_t i = 0; i < text.size(); ++i) {
      size_t& n = stop.matched;
      while (n > 0 && stop.text[n] != text[i]) n = stop.fallback[n - 1];
      if (stop.text[n] == text[i]) ++n;
      if (n < stop.text.size()) continue;
      first = std::max(first.value_or(0), text.size() - 1 - i + n);
      n = stop.fallback[n - 1];
    }
  return first;
}

size_t StopMatcher::begun() const {
  size_t longest = 0;
  for (const Stop& stop : stops_) longest = std::max(longest, stop.matched);
  return longest;
}

TextStream::TextStream(VocabularyPtr vocabulary, std::vector<std::string> stops)
    : vocabulary_(std::move(vocabulary)), stops_(std::move(stops)) {}

/// Looks for stop strings in text_ from `from` on, and ends it there.
void TextStream::read_on(size_t from) {
  const auto stop = stops_.read(std::string_view(text_).substr(from));
  if (!stop) return;
  stopped_ = true;
  text_.resize(text_.size() - *stop);
}

std::string TextStream::push(int32_t token) {
  if (stopped_) return {};
  text_.resize(certain_);
  vocabulary_->decode_next(token, state_, text_);
  read_on(certain_);
  certain_ = text_.size();
  if (stopped_) return take(certain_);
  text_ += vocabulary_->decode_open(state_);
  if (state_.ids.empty()) return take(certain_ - stops_.begun());
  // A text that is known only as a whole: nothing of it is certain, but it may have come to a stop.
  const StopMatcher before = stops_;
  read_on(0);
  if (stopped_) return take(certain_ = text_.size());
  stops_ = before;
  return {};
}

std::string TextStream::finish() {
  if (!stopped_) read_on(certain_);
  return take(certain_ = text_.size());
}

std::string TextStream::take(size_t end) {
  if (end <= shown_) return {};
  std::string fresh = text_.substr(shown_, end - shown_);
  shown_ = end;
  return fresh;
}

std::string decode_until(const VocabularyPtr& vocabulary, std::span<const int32_t> tokens,
                         const std::vector<std::string>& stops) {
  if (stops.empty()) return vocabulary->decode(tokens);
  TextStream stream(vocabulary, stops);
  for (int32_t token : tokens) stream.push(token);
  stream.finish();
  return stream.text();
}

std::function<bool(int32_t)> stop_check(const VocabularyPtr& vocabulary,
                                        const std::vector<std::string>& stops) {
  if (stops.empty()) return {};
  return [stream = TextStream(vocabulary, stops)](int32_t token) mutable {
    stream.push(token);
    return stream.stopped();
  };
}

}  // namespace quintet::data
