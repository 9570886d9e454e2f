#include "kernels/simt/host/autotuner.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>

#include "kernels/simt/cuda_check.h"
#include "kernels/simt/host/cublaslt.h"
#include "kernels/simt/host/variants.h"
#include "runtime/base/files/cache_folder.h"
#include "runtime/base/memory/placement.h"

namespace quintet::cuda::simt {
namespace {

/// All that a decision depends on besides the problem.
std::string library_name() {
  int device = 0, driver = 0;
  cudaDeviceProp properties{};
  QT_CUDA(cudaGetDevice(&device));
  QT_CUDA(cudaGetDeviceProperties(&properties, device));
  QT_CUDA(cudaDriverGetVersion(&driver));
  return fmt::format("{}, {} multiprocessors, driver {}, cuBLASLt {}", properties.name,
                     properties.multiProcessorCount, driver, cublaslt().GetVersion());
}

class Event {
 public:
  Event() { QT_CUDA(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { QT_CUDA(cudaEventRecord(event_, stream)); }
  /// Waits for this event. Milliseconds between the two.
  float since(const Event& start) const {
    float milliseconds = 0;
    QT_CUDA(cudaEventSynchronize(event_));
    QT_CUDA(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return milliseconds;
  }

 private:
  cudaEvent_t event_{};
};

}  // namespace

Autotuner::Autotuner() {
  if (std::getenv("QUINTET_DETERMINISTIC") == nullptr)
    cache_.emplace(cache_folder(), library_name());
}

Autotuner& Autotuner::instance() {
  static Autotuner autotuner;
  return autotuner;
}

bool Autotuner::may_measure(cudaStream_t stream) const {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  QT_CUDA(cudaStreamIsCapturing(stream, &capturing));
  return cache_.has_value() && capturing == cudaStreamCaptureStatusNone;
}

size_t fastest_of(cudaStream_t stream, size_t count, const std::function<bool(size_t)>& run) {
  const MemoryTrace::Pause pause;  // it is done once
  Event start, stop;
  size_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < count; ++i)
    for (int repeat = 0; repeat < 4; ++repeat) {
      start.record(stream);
      if (!run(i)) break;
      stop.record(stream);
      const float milliseconds = stop.since(start);
      if (repeat > 0 && milliseconds < least) least = milliseconds, best = i;
    }
  return best;
}

void run_fastest_variant(Stream stream, const std::string& problem, Variants variants) {
  if (const auto* forced = forced_variant(variants)) return (*forced)();
  Autotuner& autotuner = Autotuner::instance();
  auto* const handle = static_cast<cudaStream_t>(stream.handle);
  const std::string cached = autotuner.find(problem);
  size_t best = cached.size() == 1 ? static_cast<unsigned char>(cached[0]) : variants.size();
  if (best >= variants.size()) {
    best = 0;
    if (autotuner.may_measure(handle)) {
      best = fastest_of(handle, variants.size(),
                        [&](size_t i) { return variants.begin()[i](), true; });
      autotuner.add(problem, std::string(1, static_cast<char>(best)));
    }
  }
  variants.begin()[best]();
  autotuner.save_when_due();
}

}  // namespace quintet::cuda::simt
