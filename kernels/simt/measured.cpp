#include "kernels/simt/measured.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include "kernels/simt/fastest.h"
#include "runtime/base/cache_folder.h"

namespace quintet::cuda::simt {
namespace {

/// All that a decision depends on besides the problem.
std::string library_name() {
  int device = 0, driver = 0;
  cudaDeviceProp properties{};
  cudaGetDevice(&device);
  cudaGetDeviceProperties(&properties, device);
  cudaDriverGetVersion(&driver);
  return fmt::format("{}, {} multiprocessors, driver {}, cuBLASLt {}", properties.name,
                     properties.multiProcessorCount, driver, cublasLtGetVersion());
}

}  // namespace

Measured::Measured() {
  if (std::getenv("QUINTET_DETERMINISTIC") == nullptr)
    kept_.emplace(cache_folder(), library_name());
}

Measured& Measured::instance() {
  static Measured measured;
  return measured;
}

bool Measured::may_measure(cudaStream_t stream) const {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &capturing);
  return kept_.has_value() && capturing == cudaStreamCaptureStatusNone;
}

float shortest(cudaStream_t stream, const std::function<bool()>& run) {
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  float least = std::numeric_limits<float>::infinity();
  for (int repeat = 0; repeat < 4; ++repeat) {
    cudaEventRecord(start, stream);
    if (!run()) break;
    cudaEventRecord(stop, stream);
    cudaEventSynchronize(stop);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, start, stop);
    if (repeat > 0) least = std::min(least, milliseconds);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return least;
}

void run_fastest(Stream stream, const std::string& problem,
                 std::initializer_list<std::function<void()>> ways) {
  static std::map<std::string, size_t> chosen;
  Measured& measured = Measured::instance();
  auto* const handle = static_cast<cudaStream_t>(stream.handle);
  auto found = chosen.find(problem);
  if (found == chosen.end()) {
    const std::string kept = measured.find(problem);
    size_t best = kept.size() == 1 ? static_cast<unsigned char>(kept[0]) : ways.size();
    if (best >= ways.size()) {
      best = 0;
      if (!measured.may_measure(handle)) return ways.begin()[0]();
      float least = std::numeric_limits<float>::infinity();
      for (size_t i = 0; i < ways.size(); ++i) {
        const float time = shortest(handle, [&] { return ways.begin()[i](), true; });
        if (time < least) least = time, best = i;
      }
      measured.add(problem, std::string(1, static_cast<char>(best)));
    }
    found = chosen.emplace(problem, best).first;
  }
  ways.begin()[found->second]();
  measured.save_when_due();
}

}  // namespace quintet::cuda::simt
