#pragma once
// As much of CUDA's runtime as kernels/simt/host/gemm_cublaslt.cpp and autotuner.cpp use: the host, with a clock that the
// fake cuBLASLt moves on.
// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's

#include <cstddef>

enum cudaError_t { cudaSuccess = 0, cudaErrorLaunchFailure = 719 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
using cudaStream_t = void*;
using cudaEvent_t = double*;
struct cudaDeviceProp {
  char name[256];
  int multiProcessorCount;
};
inline constexpr int CUDART_VERSION = 13000;

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDriverGetVersion(int* version);
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop);
// NOLINTEND(readability-identifier-naming)
