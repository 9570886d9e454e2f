#pragma once
// Fibers of one host thread: stacks from a pool, switches by Boost.Context, told to
// AddressSanitizer and ThreadSanitizer where these are on. A fiber is never destroyed while its
// host thread lives.

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QT_SANITIZED 1
#else
#define QT_SANITIZED 0
#endif

namespace quintet::emulated::simt::emulator {

struct Fiber {
  void* context = nullptr;  // where to continue; null while running
  char* stack = nullptr;    // lowest address
  size_t size = 0;
  bool host = false;           // stands for the host thread's own stack
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* tsan = nullptr;        // ThreadSanitizer's
};

/// Runs on a fresh fiber and never returns.
using FiberMain = void (*)();

/// A parked fiber of this host thread, or a new one that will run `entry`.
Fiber* take_fiber(FiberMain entry);
/// Back to the pool; the fiber parks itself right after, by transfer().
void park_fiber(Fiber* fiber);
/// Forgets what the fiber was doing: its stack is reused from the top. Only for suspended fibers.
void abandon_fiber(Fiber* fiber, FiberMain entry);
#if QT_SANITIZED
void before_switch(Fiber* from, Fiber* to);
void after_switch(Fiber* from, Fiber* to);
#endif

/// Suspends `from`, which is running, and continues `to`. Returns when something continues `from`.
/// Inlined: the processor mispredicts every return after a switch, so there should be few.
[[gnu::always_inline]] inline void transfer(Fiber* from, Fiber* to) {
#if QT_SANITIZED
  before_switch(from, to);
#endif
  const auto t = boost::context::detail::jump_fcontext(to->context, from);
  auto* came_from = static_cast<Fiber*>(t.data);
  came_from->context = t.fctx;
#if QT_SANITIZED
  after_switch(came_from, from);
#endif
}

}  // namespace quintet::emulated::simt::emulator
