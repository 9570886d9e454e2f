// Whether a GPU answers; only for the program that runs the cases on one.
#ifndef QUINTET_EMULATE
#include <cuda_runtime.h>

namespace quintet::cuda {

int capability_of_gpu() {
  int count = 0, major = 0, minor = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess) return 0;
  return 10 * major + minor;
}

}  // namespace quintet::cuda
#endif
