#pragma once
// Where ops run: the CPU, a GPU, or a GPU that is emulated on the CPU. Tensors lie in the memory of the
// device that is current when they are made, and ops run its kernels: the one of the thread's context
// (runtime/base/execution_context.h), else that of the process.
//
//   Device::use(open_device("auto"));       // runtime/device/devices.h
//   Device& device = Device::current();
//   Buffer b = device.memory().allocate(bytes);
//   device.copy_in(b.get(), host, bytes);

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/device_counts.h"
#include "kernels/kernel.h"
#include "kernels/strided_copy.h"
#include "runtime/base/execution_context.h"
#include "runtime/base/memory/memory.h"

namespace quintet {

/// Thrown while something is recorded by what cannot be: a wait for the device, a copy of ordinary
/// memory.
class NotRecordable : public Bug {
 public:
  using Bug::Bug;
};

/// Work recorded once and repeated with the same memory; a CUDA graph on a GPU.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch() = 0;
};

struct GpuKernels;  // kernels/gpu/gpu_kernels.h: kernels that are not ops

/// Copies between a device's memory and pinned memory on a stream of their own, one after the other, beside the
/// device's stream. Ends before what it copies; its events are numbered from 0. Throws Error(kEnvironment) for a device
/// that failed, NotRecordable from copy() and wait() while work is recorded.
class CopyStream {
 public:
  virtual ~CopyStream() = default;
  /// After what the device's stream has been given so far, beside what it is given later.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// `event` is reached when the copies so far are made, whatever it stood for before.
  virtual void record(size_t event) = 0;
  /// The host waits until it is reached; not for one that was never recorded.
  virtual void wait(size_t event) = 0;
  /// What the device's stream is given later runs after the copies so far; the host does not wait.
  virtual void order() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  static Device& current();
  /// Makes it the process's. `device` must live until the process ends or has another one.
  static void use(Device& device);
  /// Makes a device this thread's for its lifetime.
  using Use = ContextMember<&ExecutionContext::device>;
  /// The CPU.
  static Device& cpu();

  /// "cpu", "cuda", "emulated", "abstract": for people; what a device can do the following say.
  virtual std::string kind() const = 0;
  /// For people: "NVIDIA H200, sm_90, 139.8 GiB"
  virtual std::string description() const = 0;
  /// Whether ordinary code can read its memory.
  virtual bool is_cpu() const { return false; }
  /// Whether what is written to its memory can be read again; if not, only sizes count.
  virtual bool memory_is_real() const { return true; }
  /// Whether record() works.
  virtual bool can_record() const { return false; }
  /// Whether it has products in 8-bit floating point, or, as a CPU does, takes float32's for them.
  virtual bool multiplies_float8() const { return true; }
  /// Whether NCCL reads and writes its memory.
  virtual bool supports_nccl() const { return false; }
  /// Kernels in the order of ops.def; empty on the CPU, whose kernels are in the op list itself.
  virtual std::span<const Kernel> ops() const = 0;
  /// Kernels outside the op list; throws Bug on the CPU.
  virtual const GpuKernels& kernels() const = 0;

  /// That it has in all, whoever uses it; 0: not known.
  virtual int64_t memory_bytes() const { return 0; }
  virtual Memory& memory() = 0;
  /// Memory of the host that the device copies from and to by itself: copies of it do not wait.
  virtual Buffer pinned(int64_t bytes);
  virtual Stream stream() const = 0;
  /// Ordered after the work queued so far; `copy_out` and `synchronize` wait for all of it and throw
  /// what went wrong on the device meanwhile: Error(kData) for bad data, Error(kEnvironment) for a
  /// device that failed.
  virtual void copy_in(void* to, const void* host, int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* from, int64_t bytes) = 0;
  /// Either side may be pinned memory; not waited for.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// Of its own memory; one launch on a GPU.
  virtual void copy(const StridedCopy& copy) = 0;
  /// From its memory into pinned memory, after what is queued so far and beside what is queued later: what
  /// changes `from` is queued after order_after_side_copies(), which makes no host wait.
  virtual void copy_aside(void* pinned, const void* from, int64_t bytes);
  virtual void order_after_side_copies() {}
  /// Waits until they are there; from any thread. Throws Error(kEnvironment) for a device that failed.
  virtual void finish_side_copies() {}
  virtual void fill(void* to, int byte, int64_t bytes) = 0;
  virtual void synchronize() = 0;
  /// Records `work` without running it. It has run once before (so that plans are there); what it
  /// allocates stays the recording's, results are there after a launch until the next. Throws
  /// NotRecordable if it waits for the device or copies ordinary memory, as copy_in and copy_out do.
  /// Here, where there are no graphs: always.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work);
  /// A new one, with so many events. Here, where there is one stream: its copies are made in that.
  virtual std::unique_ptr<CopyStream> copy_stream(size_t events);

  DeviceCounters& counters() { return counters_; }

 private:
  DeviceCounters counters_;
};

}  // namespace quintet
