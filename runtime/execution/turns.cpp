#include "runtime/execution/turns.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <exception>
#include <utility>
#include <vector>

#include "runtime/base/execution_context.h"

namespace quintet {

/// Whose turn it is.
class Turns {
 public:
  void run(std::span<const std::function<void()>> works) {
    std::vector<Fiber> fibers;
    for (size_t i = 0; i < works.size(); ++i) fibers.push_back(fiber_of(works[i], i));
    for (bool any = true; std::exchange(any, false);)
      for (Fiber& fiber : fibers) {
        if (!fiber) continue;
        switch_to(fiber);
        if (error_) {
          fibers.clear();
          std::rethrow_exception(error_);
        }
        any |= static_cast<bool>(fiber);
      }
  }
  void leave() { switch_to(caller_); }

 private:
  using Fiber = boost::context::fiber;
  static constexpr size_t kStack = 1 << 20;

  /// Until that one switches back. A context belongs to a stack.
  static void switch_to(Fiber& other) {
    const ExecutionContext* const context = internal::current_context;
    other = std::move(other).resume();
    internal::current_context = context;
  }
  Fiber fiber_of(const std::function<void()>& work, size_t index) {
    return {std::allocator_arg, boost::context::protected_fixedsize_stack(kStack),
            [this, &work, index](Fiber&& caller) {
              caller_ = std::move(caller);
              ExecutionContext context = ExecutionContext::current();
              context.turns = this;
              context.turn = index;
              const ContextScope scope(context);
              try {
                work();
              } catch (const boost::context::detail::forced_unwind&) {
                throw;  // its stack is let go of
              } catch (...) {
                error_ = std::current_exception();
              }
              return std::move(caller_);
            }};
  }

  Fiber caller_;
  std::exception_ptr error_;
};

void run_in_turns(std::span<const std::function<void()>> works) { Turns().run(works); }

void take_turn() {
  if (Turns* turns = ExecutionContext::current().turns) turns->leave();
}

}  // namespace quintet
