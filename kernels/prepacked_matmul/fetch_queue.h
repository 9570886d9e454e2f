#pragma once
// Memory other than weights that a thread reads soon, as keys and values: products fetch it into the second-level cache,
// a line at a time, so that it is there when its turn comes.
//
//   FetchQueue later;
//   later.add(keys, bytes);
//   multiply(x, w, panels, done, next, &later);

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quintet {

class FetchQueue {
 public:
  static constexpr int64_t kLine = 64, kMostBytes = 2 << 20;  // bytes

  void clear() {
    ranges_.clear();
    taken_ = 0;
    bytes_ = 0;
    at_ = end_ = nullptr;
  }
  /// More would leave the second-level cache, and soon the third, before it is read.
  bool full() const { return bytes_ >= kMostBytes; }
  bool has_lines() const { return at_ < end_ || taken_ < ranges_.size(); }
  /// What continues the last range becomes part of it.
  void add(const void* begin, int64_t bytes) {
    const auto* from = static_cast<const char*>(begin);
    bytes_ += bytes;
    if (ranges_.empty() || ranges_.back().end != from)
      ranges_.push_back({from, from + bytes});
    else
      ranges_.back().end = from + bytes;
  }
  /// Where the next line is, in the order of the ranges; null: there is none.
  const char* next_line() {
    if (at_ >= end_) {
      if (taken_ == ranges_.size()) return nullptr;
      at_ = ranges_[taken_].begin;
      end_ = ranges_[taken_++].end;
    }
    const char* line = at_;
    at_ += kLine;
    return line;
  }
  /// Fetches so many lines, or what is left; whether any was.
  bool fetch(int64_t lines) {
    // Fetching an address that is not mapped costs a walk through the tables of pages, each time.
    for (int64_t i = 0; i < lines; ++i) {
      const char* line = next_line();
      if (line == nullptr) return i > 0;
      __builtin_prefetch(line, 0, 2);
    }
    return true;
  }

 private:
  struct Range {
    const char *begin, *end;
  };
  std::vector<Range> ranges_;
  size_t taken_ = 0;
  int64_t bytes_ = 0;                          // of all ranges
  const char *at_ = nullptr, *end_ = nullptr;  // what is left of the range taken last
};

}  // namespace quintet
