#pragma once
// What the work of a thread runs with: its device and mesh, what records it, what counts it. Whoever
// runs the work owns these, a Trainer for its steps, so that several models share a process and a
// thread without meeting.
//
//   StepLog log;
//   const StepLog::Use use(log);               // a ContextMember<&ExecutionContext::log>
//   ExecutionContext::current().log->section("forward");
//
// Knows what it points at by name only.

#include <cstddef>

namespace quintet {

class Backward;
class Device;
class GatherCache;
class KeptProducts;
class MemoryMeter;
class Profile;
class Sharding;
class StepClock;
class StepFeeds;
class StepKeys;
class StepLog;
class Tape;
class Turns;
enum class MemoryKind;

struct ExecutionContext {
  Device* device = nullptr;            // nullptr: the process's (Device::use)
  const Sharding* sharding = nullptr;  // nullptr: one rank has every array
  Tape* tape = nullptr;                // ops append themselves; nullptr while none records
  Tape* region_of = nullptr;           // its region runs unrecorded, to be computed again (remat)
  KeptProducts* kept_products = nullptr;  // of a region that is computed again but for these
  Backward* backward = nullptr;           // runs gradients
  GatherCache* gather_cache = nullptr;    // of the trainer whose step this is
  Turns* turns = nullptr;                 // of work that others take turns with
  size_t turn = 0;                        // which of them this is
  StepFeeds* feeds = nullptr;             // what is read of the batch, while a step is recorded
  StepKeys* keys = nullptr;               // random keys, likewise
  Profile* profile = nullptr;             // time and bytes of each op
  StepClock* clock = nullptr;             // of a step that is planned
  StepLog* log = nullptr;                 // what is done, op by op
  double* waited = nullptr;               // seconds waited for collectives are added to it
  const MemoryMeter* meter = nullptr;     // counts what is allocated
  MemoryKind memory_kind{};               // what is allocated counts as this

  /// This thread's. A thread starts with none of these.
  static const ExecutionContext& current();
  /// Whether gradients run: sums over ranks may then stay open, the tape takes them.
  bool in_backward() const {
    return backward != nullptr && tape == nullptr && region_of == nullptr;
  }
};

namespace internal {
inline constexpr ExecutionContext kNoContext;
inline constinit thread_local const ExecutionContext* current_context = &kNoContext;
}  // namespace internal

inline const ExecutionContext& ExecutionContext::current() { return *internal::current_context; }

/// A context that is this thread's for the scope's lifetime. Scopes end in reverse order.
class ContextScope {
 public:
  explicit ContextScope(const ExecutionContext& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  ExecutionContext context_;
  const ExecutionContext* previous_;
};

/// The thread's context with another value of one member, a pointer.
template <auto member>
class ContextMember;

template <typename T, T* ExecutionContext::*member>
class ContextMember<member> : ContextScope {
 public:
  explicit ContextMember(T* value) : ContextScope(with(value)) {}
  explicit ContextMember(T& value) : ContextMember(&value) {}

 private:
  static ExecutionContext with(T* value) {
    ExecutionContext context = ExecutionContext::current();
    context.*member = value;
    return context;
  }
};

}  // namespace quintet
