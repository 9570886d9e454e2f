#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "cuda_runtime_api.h"
#include "fake_stream.h"

namespace {

/// Whether an event's last record has been reached.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::steady_clock::time_point when;
  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    when = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
};

std::atomic<bool> broken{false};

}  // namespace

void break_fake_cuda(bool is_broken) { broken = is_broken; }

struct FakeEvent {
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();
};

const char* cudaGetErrorString(cudaError_t) { return "fake"; }
const char* cudaGetErrorName(cudaError_t) { return "fake"; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  std::memset(id, 0, static_cast<size_t>(length));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new FakeStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(stream->mutex);
    stream->closed = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto wait = [mark = event->mark] { mark->wait(); };
  stream == nullptr ? wait() : stream->add(wait);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new FakeEvent;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto reach = [mark = event->mark] { mark->reach(); };
  stream == nullptr ? reach() : stream->add(reach);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (broken) return cudaErrorIllegalAddress;
  return event->mark->is_reached() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->mark->is_reached() || !end->mark->is_reached()) return cudaErrorNotReady;
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->mark->when - begin->mark->when).count();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
