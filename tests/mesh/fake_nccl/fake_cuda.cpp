#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "cuda_runtime_api.h"
#include "fake_stream.h"

namespace {

/// Whether an event's last record has been reached.
struct Mark {
  bool captured = false;         // of a recording, and nobody else's
  FakeStream* stream = nullptr;  // of a recording, behind so many works of it
  int after = 0;
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
  void reset() {
    const std::lock_guard lock(mutex);
    reached = false;
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
std::atomic<int> synchronizations{0};
FakeCapture capture{[] { return false; }, [](std::function<void()> work) { work(); }};
std::mutex forked_mutex;
std::set<FakeStream*> forked;  // by recordings

}  // namespace

int fake_device_synchronizations() { return synchronizations; }
void break_fake_cuda(bool is_broken) { broken = is_broken; }
void set_fake_capture(const FakeCapture& of_device) { capture = of_device; }
int fake_unjoined_streams() {
  const std::lock_guard lock(forked_mutex);
  return static_cast<int>(std::ranges::count_if(
      forked, [](const FakeStream* stream) { return stream->joined < stream->recorded; }));
}

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
cudaError_t cudaDeviceSynchronize() {
  ++synchronizations;
  return cudaSuccess;
}
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
  {
    const std::lock_guard lock(forked_mutex);
    forked.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto mark = event->mark;
  if (mark->captured && !capture.is_recording()) return cudaErrorCapturedEvent;
  const auto wait = [mark] { mark->wait(); };
  if (stream == nullptr) {
    if (mark->stream != nullptr) mark->stream->joined = std::max(mark->stream->joined, mark->after);
    capture.queue(wait);
    return cudaSuccess;
  }
  if (mark->captured && !stream->is_recorded()) {
    stream->capture = &capture;
    stream->recorded = stream->joined = 0;
    const std::lock_guard lock(forked_mutex);
    forked.insert(stream);
  }
  stream->add(wait);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new FakeEvent;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const auto mark = event->mark = std::make_shared<Mark>();
  const auto reach = [mark] { mark->reach(); };
  const bool recorded = stream == nullptr ? capture.is_recording() : stream->is_recorded();
  if (!recorded) {
    stream == nullptr ? reach() : stream->run_later(reach);
    return cudaSuccess;
  }
  mark->captured = flags != cudaEventRecordExternal;
  mark->stream = stream;
  if (stream != nullptr) mark->after = stream->recorded;
  capture.queue([mark, stream, reach] {
    mark->reset();  // each launch comes to it anew
    stream == nullptr ? reach() : stream->run_later(reach);
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (broken) return cudaErrorIllegalAddress;
  if (event->mark->captured) return cudaErrorCapturedEvent;
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
