#pragma once
// How fast this rank's threads read the weights of a decoder's step: what bounds generation with few rows. The weights
// themselves, since not all memory of a machine is equally near.
//
//   const ReadBandwidth memory(network.step_work(rows).matrices);
//   const double bytes_per_second = memory.best_of(4);

#include <omp.h>

#include <algorithm>
#include <vector>

#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "runtime/base/clock.h"

namespace quintet {

class ReadBandwidth {
 public:
  /// Threads read several places at a time, each some lines ahead: one alone waits for memory. Or one each, where the
  /// processor's own prefetchers are faster if they are left alone.
  enum class Streams { many, one_each };

  explicit ReadBandwidth(std::vector<const PackedMatrix*> matrices)
      : matrices_(std::move(matrices)) {}

  double seconds_of_a_pass(Streams streams) const {
    const double since = now_seconds();
#pragma omp parallel
    for (const PackedMatrix* matrix : matrices_) {
      const PanelRange own = matrix->share(omp_get_thread_num(), omp_get_num_threads());
      if (own.count() == 0) continue;
      const auto* lines = reinterpret_cast<const Line*>(matrix->panel(own.begin));
      const int64_t count = own.count() * matrix->panel_bytes() / kLine;
      if (streams == Streams::many)
        read<8, 16>(lines, count);
      else
        read<1, 0>(lines, count);
    }
    return now_seconds() - since;
  }
  double bytes() const {
    int64_t bytes = 0;
    for (const PackedMatrix* matrix : matrices_) bytes += matrix->bytes();
    return static_cast<double>(bytes);
  }
  /// Bytes a second of the fastest of some passes in each way.
  double best_of(int passes) const {
    double best = 0;
    for (int i = 0; i < passes; ++i)
      for (const Streams streams : {Streams::many, Streams::one_each})
        best = std::max(best, bytes() / seconds_of_a_pass(streams));
    return best;
  }

 private:
  static constexpr int64_t kLine = 64;
  using Line [[gnu::vector_size(kLine)]] =
      uint64_t;  // of the cache: loads as wide as the machine's

  template <int64_t kPlaces, int64_t kAhead>
  static void read(const Line* lines, int64_t count) {
    const int64_t part = count / kPlaces;
    Line sums[kPlaces]{};
    for (int64_t i = 0; i < part; ++i)
      for (int64_t s = 0; s < kPlaces; ++s) {
        if (kAhead > 0) __builtin_prefetch(&lines[s * part + i + kAhead]);
        sums[s] += lines[s * part + i];
      }
    asm volatile("" : : "m"(sums));
  }

  std::vector<const PackedMatrix*> matrices_;
};

}  // namespace quintet
