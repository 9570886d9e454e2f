#pragma once
// Launching a kernel, and what the host asks about the device.

#include <utility>

#include "kernels/kernel.h"
#include "kernels/simt/language.cuh"

namespace quintet::QT_GPU::simt {

/// How a kernel is launched. `cluster` is the number of blocks (along x) that form a cluster.
/// Cooperative: all blocks are resident together, so that grid_sync() may be called.
struct Launch {
  dim3 grid = 1;
  dim3 block = 1;
  size_t shared = 0;  // bytes of dynamic shared memory
  Stream stream = {};
  unsigned cluster = 1;
  bool cooperative = false;
  bool early = false;     // may begin before the kernel before it has ended: dependent.cuh
  const char* name = "";  // for messages; the place of the launch is always named
  const char* file = __builtin_FILE();
  int line = __builtin_LINE();
};

struct Device {
  int sm = 80;  // 10 * major + minor of the compute capability; sm_90a code runs on 90 alone
  int multiprocessors = 1;  // of the device (a small number in the emulator)
  size_t shared_limit = 0;  // bytes of dynamic shared memory a block may have
};

/// The current device; its properties are read once. Throws an environment error without a device.
const Device& device();

}  // namespace quintet::QT_GPU::simt

#ifdef QUINTET_EMULATE

#include <memory>
#include <tuple>
#include <type_traits>

namespace quintet::emulated::simt {
namespace emulator {
/// A kernel bound to its arguments, called once for each thread.
struct Body {
  void (*call)(const void* bound);
  std::shared_ptr<const void> bound;
};
void queue_launch(const Launch& launch, Body body);
}  // namespace emulator

/// Runs `kernel` for every thread; returns when all have ended, or records it. Throws what a thread
/// threw, and Bug for deadlocks and accesses out of bounds.
template <typename... P, typename... A>
void launch(void (*kernel)(P...), const Launch& how, A&&... args) {
  struct Bound {
    void (*kernel)(P...);
    std::tuple<std::decay_t<P>...> args;
  };
  const Bound bound{kernel, {static_cast<std::decay_t<P>>(args)...}};
  emulator::queue_launch(how, {[](const void* b) {
                                 const auto& it = *static_cast<const Bound*>(b);
                                 std::apply(it.kernel, it.args);
                               },
                               std::make_shared<const Bound>(bound)});
}
}  // namespace quintet::emulated::simt

#else

namespace quintet::cuda::simt {

/// The launch itself, outside the template: limits raised, attributes set, errors thrown.
void launch_raw(const void* kernel, const Launch& how, void** args);

template <typename... P, typename... A>
void launch(void (*kernel)(P...), const Launch& how, A&&... args) {
  [&](P... converted) {
    void* pointers[sizeof...(P) + 1] = {const_cast<void*>(static_cast<const void*>(&converted))...};
    launch_raw(reinterpret_cast<const void*>(kernel), how, pointers);
  }(static_cast<P>(args)...);
}

}  // namespace quintet::cuda::simt
#endif
