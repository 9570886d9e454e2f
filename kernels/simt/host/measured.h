#pragma once
// What measurements on the GPU at hand decided, kept from process to process
// (tuning/kept_algorithms.h).

#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/tuning/kept_algorithms.h"

namespace quintet::cuda::simt {

class Measured {
 public:
  /// The process's.
  static Measured& instance();

  /// Not with QUINTET_DETERMINISTIC in the environment, nor while the stream records a graph.
  bool may_measure(cudaStream_t stream) const;
  /// What was decided for `problem`, one line; empty: nothing.
  std::string find(const std::string& problem) const { return kept_ ? kept_->find(problem) : ""; }
  void add(const std::string& problem, std::string_view bytes) { kept_->add(problem, bytes); }
  void save_when_due() {
    if (kept_) kept_->save_when_due();
  }

 private:
  Measured();
  std::optional<KeptAlgorithms> kept_;  // deterministic: none
};

/// The i of 0 .. count - 1 whose run(i) takes the least time: the best of three runs, after one
/// that does not count. run says false for what it cannot do; 0 if that is all of them.
size_t fastest_of(cudaStream_t stream, size_t count, const std::function<bool(size_t)>& run);

}  // namespace quintet::cuda::simt
