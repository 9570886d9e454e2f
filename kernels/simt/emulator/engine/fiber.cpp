#include "kernels/simt/emulator/engine/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <memory>
#include <vector>

#include "runtime/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace quintet::emulated::simt::emulator {
namespace {

namespace context = boost::context::detail;

#if QT_SANITIZED
constexpr size_t kStack = 512 << 10;
#else
constexpr size_t kStack = 128 << 10;
#endif
constexpr size_t kGuard = 4096;
constexpr size_t kColour =
    4096;  // stacks start at different offsets, or they would share cache sets

/// Frames that nobody leaves any more are no longer marked on the stack.
void forget_frames([[maybe_unused]] Fiber* fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber->stack, fiber->size);
#endif
}

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer's clocks, merged at every switch, are as long as it knows fibers, and it knows
// 8,192 at most: so many of its fibers stand for all of ours, which take turns on one thread. Not
// one alone: its list of calls has room for some thousand fibers' each.
constexpr size_t kTsanFibers = 16;
#endif

struct Pool {
  std::vector<std::unique_ptr<Fiber>> all;
  std::vector<Fiber*> parked;
  ~Pool() {
#if defined(__SANITIZE_THREAD__)
    for (size_t i = 0; i < std::min(all.size(), kTsanFibers); ++i) {
      __tsan_destroy_fiber(all[i]->tsan);
    }
#endif
    for (const auto& fiber : all) {
      forget_frames(fiber.get());  // the memory will be another thread's
      munmap(fiber->stack - kGuard, kStack + kGuard);
    }
  }
};
thread_local Pool pool;

void first(context::transfer_t t);

// The entry of fibers about to start; they read it once.
thread_local FiberMain entry_point = nullptr;

void arm(Fiber* fiber, size_t number) {
  char* top = fiber->stack + kStack - (number * 192) % kColour;
  fiber->context = context::make_fcontext(top, static_cast<size_t>(top - fiber->stack), first);
}

#if defined(__SANITIZE_THREAD__)
void* tsan_fiber(size_t number) {
  return number < kTsanFibers ? __tsan_create_fiber(0) : pool.all[number % kTsanFibers]->tsan;
}

/// Calls that abandoned fibers never return from stay on ThreadSanitizer's lists, which it copies
/// at every allocation: its fibers are made anew as soon as none of ours has anything to return to.
void forget_calls() {
  if (pool.parked.size() < pool.all.size()) return;
  for (size_t number = 0; number < pool.all.size(); ++number) {
    Fiber* fiber = pool.all[number].get();
    if (number < kTsanFibers) __tsan_destroy_fiber(fiber->tsan);
    fiber->tsan = tsan_fiber(number);
    arm(fiber, number);
  }
}
#endif

void first(context::transfer_t t) {
  auto* from = static_cast<Fiber*>(t.data);
  from->context = t.fctx;
#if QT_SANITIZED
  after_switch(from, nullptr);
#endif
  entry_point();
}

}  // namespace

Fiber* take_fiber(FiberMain entry) {
  entry_point = entry;
  if (!pool.parked.empty()) {
    Fiber* fiber = pool.parked.back();
    pool.parked.pop_back();
    return fiber;
  }
  void* memory = mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  QT_CHECK_AS(ExitCode::kEnvironment, memory != MAP_FAILED,
              "emulator: no memory for the stack of fiber {}", pool.all.size());
  mprotect(memory, kGuard, PROT_NONE);
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = static_cast<char*>(memory) + kGuard;
  fiber->size = kStack;
  const size_t number = pool.all.size();
#if defined(__SANITIZE_THREAD__)
  fiber->tsan = tsan_fiber(number);
#endif
  arm(fiber.get(), number);
  pool.all.push_back(std::move(fiber));
  return pool.all.back().get();
}

void park_fiber(Fiber* fiber) { pool.parked.push_back(fiber); }

void abandon_fiber(Fiber* fiber, FiberMain entry) {
  entry_point = entry;
  forget_frames(fiber);
#if defined(__SANITIZE_ADDRESS__)
  fiber->fake_stack = nullptr;
#endif
  size_t number = 0;
  while (pool.all[number].get() != fiber) ++number;
  arm(fiber, number);
  park_fiber(fiber);
#if defined(__SANITIZE_THREAD__)
  forget_calls();
#endif
}

#if QT_SANITIZED
void before_switch([[maybe_unused]] Fiber* from, [[maybe_unused]] Fiber* to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->size);
#endif
#if defined(__SANITIZE_THREAD__)
  if (!from->tsan) from->tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->tsan, 0);
#endif
}

void after_switch([[maybe_unused]] Fiber* from, [[maybe_unused]] Fiber* to) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(to ? to->fake_stack : nullptr, &bottom, &size);
  if (from->host) {  // only the sanitizer knows that stack
    from->stack = static_cast<char*>(const_cast<void*>(bottom));
    from->size = size;
  }
#endif
}
#endif

}  // namespace quintet::emulated::simt::emulator
