#pragma once
// How fast this rank's threads read memory: what bounds generation with few rows, which reads every weight each step.
//
//   const ReadBandwidth memory(network.bytes());
//   const double bytes_per_second = memory.best_of(4);

#include <algorithm>
#include <memory>

#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "runtime/base/clock.h"

namespace quintet {

class ReadBandwidth {
 public:
  /// Of memory as large as some weights.
  explicit ReadBandwidth(int64_t bytes)
      : words_(bytes / 32 * 4), memory_(HugeArena().allocate(words_ * 2)) {
    std::fill_n(memory_.get(), words_ * 2, 1.0f);
  }
  double seconds_of_a_pass() const {
    const auto* words = reinterpret_cast<const uint64_t*>(memory_.get());
    const double since = now_seconds();
    uint64_t a = 0, b = 0, c = 0, d = 0;  // several loads under way
#pragma omp parallel for schedule(static) reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < words_; i += 4) {
      a += words[i];
      b += words[i + 1];
      c += words[i + 2];
      d += words[i + 3];
    }
    asm volatile("" : : "r"(a + b + c + d));
    return now_seconds() - since;
  }
  double bytes() const { return static_cast<double>(8 * words_); }
  /// Bytes a second of the fastest of some passes.
  double best_of(int passes) const {
    double best = 0;
    for (int i = 0; i < passes; ++i) best = std::max(best, bytes() / seconds_of_a_pass());
    return best;
  }

 private:
  int64_t words_;
  std::shared_ptr<float> memory_;
};

}  // namespace quintet
