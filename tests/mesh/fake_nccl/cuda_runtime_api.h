#pragma once
// As much of CUDA's runtime as NCCL's collectives and memory use, made of threads: a stream runs
// its work in a thread of its own, in order; the null stream is whoever calls. Device memory is ordinary.
// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's

#include <cstddef>
#include <functional>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorCapturedEvent = 907
};
struct FakeStream;
struct FakeEvent;
using cudaStream_t = FakeStream*;
using cudaEvent_t = FakeEvent*;
inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2,
                          cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventRecordDefault = 0, cudaEventRecordExternal = 1;

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);
/// Calls of cudaDeviceSynchronize since the program started.
int fake_device_synchronizations();
/// Whether kernels have failed: events say so.
void break_fake_cuda(bool broken);

/// What records the work of a device whose stream is the null stream.
struct FakeCapture {
  bool (*is_recording)();                     // on the calling thread
  void (*queue)(std::function<void()> work);  // runs work of the null stream, or records it
};
/// A stream that waits for an event of a recording is recorded, too.
void set_fake_capture(const FakeCapture& capture);
/// Streams with work of their last recording that its device's stream does not wait for: CUDA refuses it.
int fake_unjoined_streams();
// NOLINTEND(readability-identifier-naming)
