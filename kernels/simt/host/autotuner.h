#pragma once
// The autotuner: what measurements on the GPU at hand decided, cached from process to process
// (tuning/algorithm_cache.h).

#include <cuda_runtime.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/tuning/algorithm_cache.h"

namespace quintet::cuda::simt {

/// For any number of threads.
class Autotuner {
 public:
  /// The process's.
  static Autotuner& instance();

  /// Not with QUINTET_DETERMINISTIC in the environment, nor while the stream records a graph.
  bool may_measure(cudaStream_t stream) const;
  /// What was decided for `problem`, one line; empty: nothing.
  std::string find(const std::string& problem) const {
    const std::lock_guard lock(mutex_);
    return cache_ ? cache_->find(problem) : "";
  }
  void add(const std::string& problem, std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    cache_->add(problem, bytes);
  }
  void save_when_due() {
    const std::lock_guard lock(mutex_);
    if (cache_) cache_->save_when_due();
  }

 private:
  Autotuner();
  mutable std::mutex mutex_;
  std::optional<AlgorithmCache> cache_;  // deterministic: none
};

/// The i of 0 .. count - 1 whose run(i) takes the least time: the best of three runs, after one
/// that does not count. run says false for what it cannot do; 0 if that is all of them.
size_t fastest_of(cudaStream_t stream, size_t count, const std::function<bool(size_t)>& run);

}  // namespace quintet::cuda::simt
