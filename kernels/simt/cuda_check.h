#pragma once
// The check of what CUDA's functions return. Launches have one of their own, which names the kernel (launch.cu);
// destructors, which must not throw, have none.
//
//   QT_CUDA(cudaEventRecord(event, stream));

#include <cuda_runtime_api.h>

#include <string_view>

#include "runtime/base/check.h"

namespace quintet {

/// Throws kEnvironment with CUDA's reason if a call failed.
inline void check_cuda(cudaError_t status, std::string_view call) {
  QT_CHECK_AS(ExitCode::kEnvironment, status == cudaSuccess, "CUDA: {}: {} ({})", call,
              cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace quintet

#define QT_CUDA(call) ::quintet::check_cuda((call), #call)
