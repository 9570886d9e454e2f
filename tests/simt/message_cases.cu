// Kernels that fail in a known way, for emulator_test.cpp.

#ifdef QUINTET_EMULATE

#include <functional>
#include <map>
#include <string>

#include "kernels/simt/emulator/emulator.h"
#include "kernels/vectors/vectors.cuh"
#include "tests/simt/device_array.cuh"

namespace quintet::emulated {
namespace {

__global__ void stuck() {
  if (blockIdx.x == 2 && threadIdx.x >= 64) return;
  __syncthreads();
}
__global__ void named() {
  if (threadIdx.x < 32) simt::named_barrier_sync(3, 96);
}
__global__ void waits() {
  auto bars = simt::shared<uint64_t>(0, 2);
  simt::mbarrier_init(bars + 1, 2);
  simt::mbarrier_arrive_expect_tx(bars + 1, 64);
  simt::mbarrier_wait(bars + 1, 0);
}
__global__ void bounds() {
  auto x = simt::shared<float>(0, 8);
  x[threadIdx.x + blockIdx.x] = 1;
}
__global__ void window() { simt::shared<float>(16, 8)[0] = 1; }
__global__ void masks() { __shfl_xor_sync(threadIdx.x < 16 ? 0x0000ffffu : 0xffffffffu, 1, 1); }
__global__ void functions() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __ballot_sync(0xffffffffu, 1);
}
__global__ void caller() { __shfl_sync(1u, 1, 0); }
__global__ void words(const float* x) {
  uint32_t loaded[4];
  load_words(x + (reinterpret_cast<uintptr_t>(x) % 16 == 0 ? 1 : 0), loaded);
}
__global__ void aligned(const float* x) { simt::cp_async_16(simt::shared<float>(0, 8) + 1, x); }
__global__ void uninitialised() { simt::mbarrier_arrive(simt::shared<uint64_t>(0, 1)); }
__global__ void arrivals() {
  auto bar = simt::shared<uint64_t>(0, 1);
  simt::mbarrier_init(bar, 1);
  simt::mbarrier_arrive(bar, 2);
}
__global__ void nothing() { __syncthreads(); }
__global__ void cooperative() { simt::grid_sync(); }
__global__ void order(int* next, int* out) {
  out[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  __syncthreads();
  out[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}
__global__ void add(float* x, float y) { *x += y; }
__global__ void follows() {
  __syncthreads();
  simt::wait_for_previous();
  __syncthreads();
}
/// One that fails, with a kernel behind it that has begun and waits for it.
void fail_ahead() {
  std::vector<simt::emulator::Work> work;
  simt::emulator::set_recorder([&](auto one) { work.push_back(std::move(one)); });
  simt::launch(bounds, {.grid = 2, .block = 8, .shared = 64});
  simt::launch(follows, {.grid = 3, .block = 96, .early = true});
  simt::emulator::set_recorder(nullptr);
  simt::emulator::replay(work);
}

}  // namespace

std::string message_of(const std::string& what) {
  std::vector<float> x(16);
  const std::map<std::string, std::function<void()>> kernels = {
      {"deadlock",
       [] { simt::launch(stuck, {.grid = dim3(3, 2, 1), .block = 96, .name = "stuck"}); }},
      {"named", [] { simt::launch(named, {.block = 96}); }},
      {"mbarrier", [] { simt::launch(waits, {.block = 1, .shared = 16}); }},
      {"bounds", [] { simt::launch(bounds, {.grid = 2, .block = 8, .shared = 64}); }},
      {"window", [] { simt::launch(window, {.block = 1, .shared = 32}); }},
      {"masks", [] { simt::launch(masks, {.block = 32}); }},
      {"functions", [] { simt::launch(functions, {.block = 32}); }},
      {"caller", [] { simt::launch(caller, {.block = 2}); }},
      {"aligned", [&] { simt::launch(aligned, {.block = 1, .shared = 32}, x.data()); }},
      {"words", [&] { simt::launch(words, {.block = 1}, x.data()); }},
      {"uninitialised", [] { simt::launch(uninitialised, {.block = 1, .shared = 8}); }},
      {"arrivals", [] { simt::launch(arrivals, {.block = 1, .shared = 8}); }},
      {"limit", [] { simt::launch(nothing, {.block = 1, .shared = 300000}); }},
      {"cooperative", [] { simt::launch(cooperative, {.block = 1}); }},
      {"early", [] { simt::launch(nothing, {.block = 1, .early = true}); }},
      {"ahead", fail_ahead},
      {"nothing", [] { simt::launch(nothing, {.grid = 3, .block = 96}); }},
  };
  simt::emulator::set_seed(0);
  try {
    kernels.at(what)();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

std::vector<int> order_of_threads() {
  std::vector<int> out(2 * 3 * 64);
  int next = 0;
  simt::launch(order, {.grid = 3, .block = 64}, &next, out.data());
  return out;
}

std::vector<float> recorded() {
  std::vector<simt::emulator::Work> work;
  float x = 0;
  std::vector<float> seen;
  simt::emulator::set_recorder([&](auto one) { work.push_back(std::move(one)); });
  simt::launch(add, {}, &x, 2.0f);
  simt::launch(add, {}, &x, 3.0f);
  simt::emulator::set_recorder(nullptr);
  seen.push_back(x);
  simt::emulator::replay(work);
  seen.push_back(x);
  seen.push_back(x);
  return seen;
}

}  // namespace quintet::emulated

#endif
