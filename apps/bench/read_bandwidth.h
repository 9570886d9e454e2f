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
      : words_(bytes / (64 * kStreams) * (8 * kStreams)),
        memory_(HugeArena().allocate(words_ * 2 + 16 * kAhead)) {
    std::fill_n(memory_.get(), words_ * 2, 1.0f);
  }
  double seconds_of_a_pass() const {
    const auto* lines = reinterpret_cast<const Line*>(memory_.get());
    const double since = now_seconds();
    const int64_t part = words_ / 8 / kStreams;
#pragma omp parallel
    {
      Line sums[kStreams]{};
#pragma omp for schedule(static) nowait
      for (int64_t i = 0; i < part; ++i)
        for (int64_t s = 0; s < kStreams; ++s) {
          __builtin_prefetch(&lines[s * part + i + kAhead]);
          sums[s] += lines[s * part + i];
        }
      asm volatile("" : : "m"(sums));
    }
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
  /// A thread reads several places at a time, each some lines ahead: one alone waits for memory.
  static constexpr int64_t kStreams = 8, kAhead = 16;
  using Line [[gnu::vector_size(64)]] = uint64_t;  // of the cache: loads as wide as the machine's
  int64_t words_;
  std::shared_ptr<float> memory_;
};

}  // namespace quintet
