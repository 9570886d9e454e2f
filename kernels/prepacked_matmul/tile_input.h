#pragma once
// What the kernels of multiply (prepacked_matmul.h) read for one tile of the result. Private to kernels/prepacked_matmul.

#include <cstddef>
#include <cstdint>

#include "kernels/prepacked_matmul/fetch_queue.h"

namespace quintet {

/// Most columns of a panel: two vectors of 128 bytes.
inline constexpr int kMostPanelWidth = 64;

/// Memory that is soon read, to the second-level cache: lines by turns of four. Those are one after the other, or one of
/// each quarter of the memory, so that prefetchers that follow a page of 4 KiB each are all at work (Intel's; README.md).
/// Fetches no line beyond the memory; up to three at its end, which make no turn, are left out.
class FetchAhead {
 public:
  FetchAhead() = default;
  FetchAhead(const std::byte* begin, int64_t lines, bool quarters)
      : next_(reinterpret_cast<const char*>(begin)),
        turns_(lines / kPlaces),
        apart_(quarters ? turns_ * kLine : kLine),
        step_(quarters ? kLine : kPlaces * kLine) {}
  /// Lines that do not make a turn wait for more.
  void fetch(int64_t lines) {
    for (due_ += lines; due_ >= kPlaces && turns_ > 0; due_ -= kPlaces, --turns_, next_ += step_)
#pragma GCC unroll 4
      for (int64_t place = 0; place < kPlaces; ++place)
        __builtin_prefetch(next_ + place * apart_, 0, 2);
  }

 private:
  static constexpr int64_t kPlaces = 4, kLine = 64;
  const char* next_ = nullptr;
  int64_t turns_ = 0;             // that are left
  int64_t apart_ = 0, step_ = 0;  // bytes
  int64_t due_ = 0;               // lines
};

struct TileInput {
  const float* x = nullptr;           // [k, rows]
  const uint32_t* quads = nullptr;    // [k/4, rows]
  const std::byte* pieces = nullptr;  // row_pieces.h
  const float* x_scales = nullptr;    // [rows]
  const std::byte* w = nullptr;
  const float* w_scales = nullptr;  // [2 vectors]
  const int32_t* w_sums = nullptr;
  int64_t panel_bytes = 0;  // from a panel to the next
  int64_t k = 0;            // a multiple of 4
  FetchAhead ahead{};       // of which every four steps fetch `lines` lines
  int64_t lines = 0;
  FetchQueue* later = nullptr;  // of which they fetch one

  const std::byte* panel(size_t i) const { return w + static_cast<int64_t>(i) * panel_bytes; }
  /// Of four steps.
  void fetch() {
    ahead.fetch(lines);
    fetch_later();
  }
  void fetch_later(int64_t count = 1) {
    if (later != nullptr && !later->fetch(count)) later = nullptr;
  }
};

}  // namespace quintet
