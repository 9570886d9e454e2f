// The GPU as a Device: memory, the stream, copies, faults, the table of kernels.

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cast/cast_gpu.h"
#include "kernels/decode_attention/decode_attention_gpu.h"
#include "kernels/decode_matmul/small_batch_matmul_gpu.h"
#include "kernels/dequantize/dequantize_gpu.h"
#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/fp8/fp8_gpu.h"
#include "kernels/gpu/gpu_kernels.h"
#include "kernels/logits/logits_gpu.h"
#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/random/random_gpu.h"
#include "kernels/strided_copy/strided_copy_gpu.h"
#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/engine/device_memory.h"
#else
#include "kernels/simt/cuda_check.h"
#include "kernels/simt/host/cublaslt.h"
#endif
#include "kernels/simt/fault.cuh"
#include "runtime/device/gpu_ops.h"

namespace quintet::QT_GPU {
namespace {

[[noreturn]] void throw_fault(const FaultSlot& fault) {
  switch (static_cast<FaultCode>(fault.code)) {
    case FaultCode::kEmbedId:
      fail(ExitCode::kData,
           "embed: id {} at position {}: expected 0 to {}; does the vocabulary fit the model?",
           fault.value, fault.position, fault.limit - 1);
    case FaultCode::kTarget:
      fail(ExitCode::kData,
           "cross_entropy: target {} at position {}: expected 0 to {}; does the vocabulary fit the "
           "model?",
           fault.value, fault.position, fault.limit - 1);
    case FaultCode::kParameter:
      throw Bug(fmt::format(
          "adafactor: tile {} of a parameter of {} elements was written between two updates, and "
          "not by the "
          "optimizer: expected Parameters::refresh() after it; the update took a wrong step",
          fault.position, fault.value));
    case FaultCode::kNone:
      break;
  }
  throw Bug(fmt::format("fault code {} of the device is unknown", fault.code));
}

constexpr Kernel kOps[] = {
#define OP(name, rule, attributes, cost, vjp, phases) name##_gpu,
#include "runtime/op/ops.def"
#undef OP
};

constexpr GpuKernels kKernels{
#define GPU_KERNEL(name, ...) name##_gpu,
#include "kernels/gpu/gpu_kernels.def"
#undef GPU_KERNEL
};

#ifdef QUINTET_EMULATE

/// Separate blocks, so that AddressSanitizer sees their ends.
class Source final : public MemorySource {
 public:
  void* allocate(int64_t bytes) override {
    return bytes > (int64_t{1} << 40)
               ? nullptr
               : simt::emulator::allocate_device_memory(static_cast<size_t>(bytes));
  }
  void release(void* pointer, int64_t bytes) override {
    simt::emulator::release_device_memory(pointer, static_cast<size_t>(bytes));
  }
  std::string name() const override { return "the emulated GPU"; }
};

void move_bytes(void* to, const void* from, int64_t bytes, Stream) {
  if (bytes > 0) simt::emulator::queue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}
void fill_bytes(void* to, int byte, int64_t bytes, Stream) {
  if (bytes > 0) simt::emulator::queue([=] { std::memset(to, byte, static_cast<size_t>(bytes)); });
}
void wait(Stream) {}
Stream make_stream() { return {}; }
Buffer pinned_block(int64_t bytes) { return Memory::host().allocate(bytes); }

/// Made as late as they may be, so that work shows which does not wait for them before it reads what they write or
/// changes what they read.
class SideCopies {
 public:
  explicit SideCopies(size_t events) : events_(events) {}
  void add(void* to, const void* from, int64_t bytes, Stream) {
    const std::lock_guard lock(mutex_);
    copies_.push_back({to, from, static_cast<size_t>(bytes)});
  }
  void record(size_t event) {
    const std::lock_guard lock(mutex_);
    events_.at(event) = made_ + copies_.size();
  }
  void wait(size_t event) {
    const std::lock_guard lock(mutex_);
    make_until(events_.at(event));
  }
  void order(Stream) {
    const std::lock_guard lock(mutex_);
    make_until(made_ + copies_.size());
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  void make_until(size_t count) {
    const simt::emulator::DeviceMemoryAccess access;
    for (; made_ < count; ++made_, copies_.pop_front())
      if (const Copy& copy = copies_.front(); copy.bytes > 0)
        std::memcpy(copy.to, copy.from, copy.bytes);
  }
  std::mutex mutex_;
  std::deque<Copy> copies_;
  size_t made_ = 0;
  std::vector<size_t> events_;  // copies before each
};

/// Stand-in for a CUDA graph: launches, copies and products with the arguments they were given. What
/// is in its memory is lost before each launch: nothing may be left over from the last.
class Graph final : public Recording {
 public:
  Graph(Memory& memory, Stream, const std::function<void()>& work) : arena_(memory) {
    struct Recorder {
      explicit Recorder(std::vector<simt::emulator::Work>& to)
          : before(
                simt::emulator::set_recorder([&to](auto one) { to.push_back(std::move(one)); })) {}
      ~Recorder() { simt::emulator::set_recorder(std::move(before)); }
      std::function<void(simt::emulator::Work)> before;
    };
    const Recorder recorder(work_);
    work();
    arena_.close();
  }
  void launch() override {
    Device::current().counters().launch();
    simt::emulator::queue([this] {
      for (const Memory::Block& block : arena_.blocks())
        std::memset(block.pointer, 0xff, static_cast<size_t>(block.capacity));
      simt::emulator::replay(work_);
    });
  }

 private:
  MemoryArena arena_;
  std::vector<simt::emulator::Work> work_;
};

#else

class Source final : public MemorySource {
 public:
  void* allocate(int64_t bytes) override {
    void* pointer = nullptr;
    if (cudaMalloc(&pointer, static_cast<size_t>(bytes)) == cudaSuccess) return pointer;
    cudaGetLastError();
    return nullptr;
  }
  void release(void* pointer, int64_t) override { cudaFree(pointer); }
  std::string name() const override { return "the GPU"; }
};

cudaStream_t cuda_stream(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

void move_bytes(void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  check_cuda(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, cuda_stream(stream)),
      "copy");
}
void fill_bytes(void* to, int byte, int64_t bytes, Stream stream) {
  if (bytes > 0)
    check_cuda(cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), cuda_stream(stream)), "fill");
}
void wait(Stream stream) {
  check_cuda(cudaStreamSynchronize(cuda_stream(stream)), "a kernel failed");
}
Stream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  return {stream};
}

Buffer pinned_block(int64_t bytes) {
  void* pointer = nullptr;
  check_cuda(cudaHostAlloc(&pointer, static_cast<size_t>(bytes), cudaHostAllocDefault),
             "pinned memory");
  return {static_cast<std::byte*>(pointer), [](std::byte* p) { cudaFreeHost(p); }};
}

/// On a stream of their own, which copies while kernels run.
class SideCopies {
 public:
  explicit SideCopies(size_t events) : stream_(make_stream()), events_(events) {
    make(queued_), make(last_);
    for (cudaEvent_t& event : events_) make(event);
  }
  ~SideCopies() {
    cudaStreamSynchronize(cuda_stream(stream_));
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaEventDestroy(queued_);
    cudaEventDestroy(last_);
    cudaStreamDestroy(cuda_stream(stream_));
  }
  SideCopies(const SideCopies&) = delete;
  SideCopies& operator=(const SideCopies&) = delete;
  void add(void* to, const void* from, int64_t bytes, Stream after) {
    check_cuda(cudaEventRecord(queued_, cuda_stream(after)), "side copy");
    check_cuda(cudaStreamWaitEvent(cuda_stream(stream_), queued_), "side copy");
    move_bytes(to, from, bytes, stream_);
  }
  void record(size_t event) {
    check_cuda(cudaEventRecord(events_.at(event), cuda_stream(stream_)), "side copy");
  }
  void wait(size_t event) { check_cuda(cudaEventSynchronize(events_.at(event)), "side copy"); }
  void order(Stream later) {
    check_cuda(cudaEventRecord(last_, cuda_stream(stream_)), "side copy");
    check_cuda(cudaStreamWaitEvent(cuda_stream(later), last_), "side copy");
  }

 private:
  static void make(cudaEvent_t& event) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  }
  Stream stream_;
  cudaEvent_t queued_ = nullptr, last_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

class Graph final : public Recording {
 public:
  Graph(Memory& memory, Stream stream, const std::function<void()>& work)
      : stream_(cuda_stream(stream)), arena_(memory) {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "begin a graph");
    try {
      work();
    } catch (...) {
      if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    arena_.close();
    check_cuda(cudaStreamEndCapture(stream_, &graph), "end a graph");
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "make a graph");
  }
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() override {
    Device::current().counters().launch();
    check_cuda(cudaGraphLaunch(graph_, stream_), "launch a graph");
  }

 private:
  cudaStream_t stream_;
  MemoryArena arena_;
  cudaGraphExec_t graph_ = nullptr;
};

#endif

/// Which addresses are the host's, so that what a copy moves there is counted.
class PinnedBlocks {
 public:
  void add(const std::byte* pointer, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    ends_[pointer] = pointer + bytes;
  }
  void remove(const std::byte* pointer) {
    const std::lock_guard lock(mutex_);
    ends_.erase(pointer);
  }
  bool contain(const void* pointer) const {
    const std::lock_guard lock(mutex_);
    const auto after = ends_.upper_bound(static_cast<const std::byte*>(pointer));
    return after != ends_.begin() && pointer < std::prev(after)->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, const std::byte*> ends_;
};

class Gpu final : public Device {
 public:
  explicit Gpu(std::string description)
      : description_(std::move(description)), memory_(source_), stream_(make_stream()) {
    fault_ = memory_.allocate(sizeof(FaultSlot));
    seen_fault_ = pinned(sizeof(FaultSlot));
    fill(fault_.get(), 0, sizeof(FaultSlot));
  }
#ifdef QUINTET_EMULATE
  std::string kind() const override { return "emulated"; }
#else
  std::string kind() const override { return "cuda"; }
  bool supports_nccl() const override { return true; }
  int64_t memory_bytes() const override {
    size_t free = 0, all = 0;
    check_cuda(cudaMemGetInfo(&free, &all), "memory of the device");
    return static_cast<int64_t>(all);
  }
#endif
  bool multiplies_float8() const override { return simt::device().sm >= 89; }
  bool can_record() const override { return true; }
  std::string description() const override { return description_; }
  std::span<const Kernel> ops() const override { return kOps; }
  const GpuKernels& kernels() const override { return kKernels; }
  Memory& memory() override { return memory_; }
  Stream stream() const override { return stream_; }
  void copy_in(void* to, const void* host, int64_t bytes) override {
    if (is_recording_) throw NotRecordable("a copy of ordinary memory cannot be recorded");
    counters().copy();
    move_bytes(to, host, bytes, stream_);
  }
  void copy_out(void* host, const void* from, int64_t bytes) override {
    counters().copy(bytes);
    move_bytes(host, from, bytes, stream_);
    synchronize();
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    counters().copy(pinned_->contain(to) ? bytes : 0);
    move_bytes(to, from, bytes, stream_);
  }
  void copy(const StridedCopy& copy) override { copy_strided_gpu(copy, stream_); }
  void copy_aside(void* to, const void* from, int64_t bytes) override {
    counters().copy(bytes);
    side_copies_.add(to, from, bytes, stream_);
    side_copies_.record(0);
  }
  void order_after_side_copies() override { side_copies_.order(stream_); }
  void finish_side_copies() override { side_copies_.wait(0); }
  std::unique_ptr<CopyStream> copy_stream(size_t events) override {
    return std::make_unique<Copies>(*this, events);
  }
  void fill(void* to, int byte, int64_t bytes) override { fill_bytes(to, byte, bytes, stream_); }
  void synchronize() override {
    if (is_recording_) throw NotRecordable("a wait for the device cannot be recorded");
    counters().wait();
    // Into pinned memory: this copy waits for nothing, the stream's end is waited for once.
    move_bytes(seen_fault_.get(), fault_.get(), sizeof(FaultSlot), stream_);
    wait(stream_);
    FaultSlot fault;
    std::memcpy(&fault, seen_fault_.get(), sizeof fault);
    if (fault.code == 0) return;
    fill(fault_.get(), 0, sizeof fault);
    throw_fault(fault);
  }
  Buffer pinned(int64_t bytes) override {
    Buffer block = pinned_block(bytes);
    pinned_->add(block.get(), bytes);
    return {block.get(), [block, all = pinned_](std::byte* p) { all->remove(p); }};
  }
  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    struct During {
      bool& is;
      explicit During(bool& flag) : is(flag) { is = true; }
      ~During() { is = false; }
    };
    const During during(is_recording_);
    return std::make_unique<Graph>(memory_, stream_, work);
  }
  FaultSlot* fault() const { return reinterpret_cast<FaultSlot*>(fault_.get()); }

 private:
  class Copies final : public CopyStream {
   public:
    Copies(Gpu& gpu, size_t events) : gpu_(gpu), copies_(events) {}
    void copy(void* to, const void* from, int64_t bytes) override {
      if (gpu_.is_recording_) throw NotRecordable("a copy on another stream cannot be recorded");
      gpu_.counters().copy(gpu_.pinned_->contain(to) ? bytes : 0);
      copies_.add(to, from, bytes, gpu_.stream_);
    }
    void record(size_t event) override { copies_.record(event); }
    void wait(size_t event) override {
      if (gpu_.is_recording_) throw NotRecordable("a wait for a copy cannot be recorded");
      gpu_.counters().wait();
      copies_.wait(event);
    }
    void order() override { copies_.order(gpu_.stream_); }

   private:
    Gpu& gpu_;
    SideCopies copies_;
  };

  std::string description_;
  Source source_;
  Memory memory_;
  Stream stream_;
  std::shared_ptr<PinnedBlocks> pinned_ = std::make_shared<PinnedBlocks>();
  Buffer fault_, seen_fault_;
  SideCopies side_copies_{1};
  bool is_recording_ = false;
};

}  // namespace

namespace simt {
FaultSlot* fault_slot() {
  auto* gpu = dynamic_cast<Gpu*>(&quintet::Device::current());
  QT_ASSERT(gpu != nullptr);
  return gpu->fault();
}
}  // namespace simt

#ifdef QUINTET_EMULATE

std::unique_ptr<Device> open_device(int sm) {
  simt::emulator::set_sm(sm);
  return std::make_unique<Gpu>(fmt::format("emulated GPU, sm_{}", sm));
}

#else

std::string versions() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  return fmt::format("CUDA driver {}.{}, runtime {}.{}", driver / 1000, driver % 1000 / 10,
                     runtime / 1000, runtime % 1000 / 10);
}

std::unique_ptr<Device> open_device(int ordinal) {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  QT_CHECK_AS(
      ExitCode::kEnvironment, driver != 0,
      "--device=cuda: no NVIDIA driver answers; install one for CUDA {}.{} or use --device=cpu",
      runtime / 1000, runtime % 1000 / 10);
  QT_CHECK_AS(
      ExitCode::kEnvironment, status != cudaErrorInsufficientDriver,
      "--device=cuda: the driver supports CUDA {}.{}, this build needs {}.{}; update the driver",
      driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  QT_CHECK_AS(ExitCode::kEnvironment, status == cudaSuccess && count > 0,
              "--device=cuda: no GPU found ({}); use --device=cpu", cudaGetErrorString(status));
  QT_CHECK_AS(ExitCode::kEnvironment, ordinal < count, "--device=cuda:{}: this machine has {} GPUs",
              ordinal, count);
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "device properties");
  const int sm = properties.major * 10 + properties.minor;
  QT_CHECK_AS(ExitCode::kEnvironment, sm >= 80,
              "--device=cuda: {} has compute capability {}.{}, 8.0 (A100) or newer is needed; use "
              "--device=cpu",
              properties.name, properties.major, properties.minor);
  check_cuda(cudaSetDevice(ordinal), "set device");
  return std::make_unique<Gpu>(
      fmt::format("{}, sm_{}, {:.1f} GiB", properties.name, sm,
                  static_cast<double>(properties.totalGlobalMem) / (1 << 30)));
}

void load_libraries() { simt::cublaslt(); }

#endif

}  // namespace quintet::QT_GPU
