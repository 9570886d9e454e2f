#pragma once
// What measurements on the GPU at hand decided, kept from process to process
// (matmul/kept_algorithms.h).

#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/matmul/kept_algorithms.h"

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

/// Milliseconds of the fastest of three runs, after one that does not count; infinite if `run` says
/// that it cannot.
float shortest(cudaStream_t stream, const std::function<bool()>& run);

}  // namespace quintet::cuda::simt
