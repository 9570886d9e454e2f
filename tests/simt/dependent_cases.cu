// Kernels of one stream that overlap.

#include "tests/simt/device_array.cuh"
#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/emulator.h"
#endif

namespace quintet::QT_GPU {
namespace {

enum Fault { kReadsEarly = 1, kReadsThroughEarly, kWritesEarly, kNeverWaits, kSomeNeverWait };
constexpr int kBlocks = 3, kThreads = 64, kElements = kBlocks * kThreads;

/// y = x + 1, which no early kernel may see too early.
__global__ void add_one(const float* x, float* y) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i] + 1.0f;
}

/// z = y * weights, and the x that y was made of is overwritten.
__global__ void scale(const float* weights, const float* y, float* z, float* x, int fault) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float weight = weights[i];
  const float early = fault == kReadsEarly ? y[i] : 0.0f;
  if (fault == kWritesEarly) x[i] = 0.0f;
  simt::start_next();
  if (fault != kNeverWaits && (fault != kSomeNeverWait || threadIdx.x % 2 == 0))
    simt::wait_for_previous();
  z[i] = (fault == kReadsEarly ? early : y[i]) * weight;
  x[i] = 0.0f;
}

/// out = sum of a block's z + y, which the kernel before the last one wrote.
__global__ void sum(const float* y, const float* z, float* out, int fault) {
  auto terms = simt::shared<float>(0, kThreads);
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float early = fault == kReadsThroughEarly ? y[i] : 0.0f;
  simt::start_next();
  simt::wait_for_previous();
  terms[threadIdx.x] = z[i];
  __syncthreads();
  float total = fault == kReadsThroughEarly ? early : y[i];
  for (int t = 0; t < kThreads; ++t) total += terms[t];
  out[i] = total;
}

/// Queues kernels; in the emulator they are recorded first, as only then they overlap.
template <typename Launches>
void queued(const Launches& launches) {
#ifdef QUINTET_EMULATE
  std::vector<simt::emulator::Work> work;
  simt::emulator::set_recorder([&](auto one) { work.push_back(std::move(one)); });
  launches();
  simt::emulator::set_recorder(nullptr);
  simt::emulator::replay(work);
#else
  launches();
#endif
}

std::vector<float> overlapped(const std::vector<float>& x, const std::vector<float>& weights,
                              int fault) {
  DeviceArray<float> in(x), by(weights);
  auto y = results(kElements), z = results(kElements), out = results(kElements);
  queued([&] {
    simt::Launch how{.grid = kBlocks, .block = kThreads};
    simt::launch(add_one, how, in.get(), y.get());
    how.early = true;
    simt::launch(scale, how, by.get(), y.get(), z.get(), in.get(), fault);
    how.shared = kThreads * sizeof(float);
    simt::launch(sum, how, y.get(), z.get(), out.get(), fault);
  });
  return out.host();
}

}  // namespace

void add_dependent_cases(simt_test::Cases& out) {
  const auto x = values(kElements, 31), weights = values(kElements, 32);
  std::vector<float> expected(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    expected[i] = x[i] + 1.0f;
    const size_t first = i / kThreads * kThreads;
    for (size_t t = first; t < first + kThreads; ++t) expected[i] += (x[t] + 1.0f) * weights[t];
  }
  out.push_back({"kernels that overlap",
                 90,
                 0,
                 expected,
                 [=](int fault) { return overlapped(x, weights, fault); },
                 {"read before the wait", "read of the kernel before the last, before the wait",
                  "write before the wait", "no wait", "no wait in some threads"}});
}

}  // namespace quintet::QT_GPU
