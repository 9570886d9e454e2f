#include "runtime/mesh/collectives/collectives_nccl.h"

#include <nccl.h>

#include <array>
#include <deque>
#include <map>

#include "kernels/device.h"
#include "kernels/simt/cuda_check.h"
#include "runtime/base/check.h"
#include "runtime/base/shared_library.h"
#include "runtime/base/thread.h"
#include "runtime/mesh/collectives/watchdog.h"

namespace quintet {
namespace {

/// NCCL's functions. Linked, it would keep programs from starting where it is not installed, and
/// only ranks with a GPU each need it.
struct Nccl {
  const SharedLibrary library{
      {.name = "libnccl.so.2",
       .variable = "QUINTET_NCCL",
       .purpose = "ranks with a GPU each talk by NCCL",
       .remedy = "install NCCL 2.13 or newer (libnccl2) on every host, or run one rank"}};
  QT_LOADED(nccl, GetErrorString)
  QT_LOADED(nccl, GetLastError)
  QT_LOADED(nccl, GetUniqueId)
  QT_LOADED(nccl, CommInitRank)
  QT_LOADED(nccl, CommAbort)
  QT_LOADED(nccl, CommGetAsyncError)
  QT_LOADED(nccl, GroupStart)
  QT_LOADED(nccl, GroupEnd)
  QT_LOADED(nccl, AllReduce)
  QT_LOADED(nccl, AllGather)
  QT_LOADED(nccl, ReduceScatter)
  QT_LOADED(nccl, Broadcast)
  QT_LOADED(nccl, Send)
  QT_LOADED(nccl, Recv)

  void check(ncclResult_t code, const char* call) const {
    QT_CHECK_AS(ExitCode::kPeer, code == ncclSuccess, "NCCL: {}: {}; NCCL_DEBUG=INFO says more",
                call, GetErrorString(code));
  }
};
#define QT_NCCL_CALL(call) nccl_.check(nccl_.call, "nccl" #call)

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u32:
      return ncclUint32;
    case DType::i8:
      return ncclInt8;
    case DType::u8:
    case DType::boolean:
      return ncclUint8;
  }
  return ncclUint8;
}
ncclRedOp_t op_of(Reduction how) { return how == Reduction::sum ? ncclSum : ncclMax; }

cudaEvent_t record(cudaStream_t stream) {
  cudaEvent_t event;
  QT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  QT_CUDA(cudaEventRecord(event, stream));
  return event;
}

class NcclComm final : public Comm {
 public:
  NcclComm(std::unique_ptr<Comm> host, Watchdog& watchdog, Device& device)
      : host_(std::move(host)), watchdog_(watchdog), device_(device) {
    QT_CUDA(cudaGetDevice(&gpu_));
    QT_CUDA(cudaDeviceGetStreamPriorityRange(&lowest_, &highest_));
    poller_ = start_thread("to watch NCCL", [this] { poll(); });
  }
  ~NcclComm() override {
    closed_ = true;
    poller_.join();
    for (const Flight& flight : flights_) cudaEventDestroy(flight.done);
    for (auto& [key, ring] : rings_) {
      if (ring.comm != nullptr) nccl_.CommAbort(ring.comm);
      cudaStreamDestroy(ring.stream);
    }
  }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::vector<std::string>& hosts() const override { return host_->hosts(); }
  Device& device() const override { return device_; }
  Comm& host() override { return *host_; }
  std::unique_ptr<Comm> channel() override { return host_->channel(); }
  void set_step(int64_t step) override {
    step_ = step;
    host_->set_step(step);
  }

  Pending all_reduce(const Members& group, const void* from, void* to, int64_t count, DType dtype,
                     Reduction how) override {
    return start(group, "all_reduce", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(AllReduce(from, to, static_cast<size_t>(count), type_of(dtype), op_of(how), comm,
                             stream));
    });
  }
  Pending all_gather(const Members& group, const void* from, void* to, int64_t count,
                     DType dtype) override {
    return start(group, "all_gather", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(AllGather(from, to, static_cast<size_t>(count), type_of(dtype), comm, stream));
    });
  }
  Pending reduce_scatter(const Members& group, const void* from, void* to, int64_t count,
                         DType dtype, Reduction how) override {
    return start(group, "reduce_scatter", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(ReduceScatter(from, to, static_cast<size_t>(count), type_of(dtype), op_of(how),
                                 comm, stream));
    });
  }
  Pending all_to_all(const Members& group, const void* from, void* to, int64_t count,
                     DType dtype) override {
    const int n = static_cast<int>(group.ranks.size());
    const int64_t bytes = count * size_of(dtype);
    return start(group, "all_to_all", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(GroupStart());
      for (int i = 0; i < n; ++i) {
        QT_NCCL_CALL(Send(static_cast<const std::byte*>(from) + i * bytes,
                          static_cast<size_t>(count), type_of(dtype), i, comm, stream));
        QT_NCCL_CALL(Recv(static_cast<std::byte*>(to) + i * bytes, static_cast<size_t>(count),
                          type_of(dtype), i, comm, stream));
      }
      QT_NCCL_CALL(GroupEnd());
    });
  }
  Pending exchange(const Members& group, const void* from, Slices sends, void* to, Slices receives,
                   int64_t count, DType dtype) override {
    const int64_t element = size_of(dtype);
    return start(group, "all_to_all", count, [&](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(GroupStart());
      for (const Slice& slice : sends)
        QT_NCCL_CALL(Send(static_cast<const std::byte*>(from) + slice.first * element,
                          static_cast<size_t>(slice.count), type_of(dtype), slice.member, comm,
                          stream));
      for (const Slice& slice : receives)
        QT_NCCL_CALL(Recv(static_cast<std::byte*>(to) + slice.first * element,
                          static_cast<size_t>(slice.count), type_of(dtype), slice.member, comm,
                          stream));
      QT_NCCL_CALL(GroupEnd());
    });
  }
  Pending broadcast(const Members& group, void* data, int64_t count, DType dtype,
                    int root) override {
    return start(group, "broadcast", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(
          Broadcast(data, data, static_cast<size_t>(count), type_of(dtype), root, comm, stream));
    });
  }
  Pending send(const Members& group, const void* data, int64_t count, DType dtype,
               int to) override {
    return start(group, "send", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(Send(data, static_cast<size_t>(count), type_of(dtype), to, comm, stream));
    });
  }
  Pending receive(const Members& group, void* data, int64_t count, DType dtype, int from) override {
    return start(group, "receive", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      QT_NCCL_CALL(Recv(data, static_cast<size_t>(count), type_of(dtype), from, comm, stream));
    });
  }
  void barrier(const Members& group) override {
    device_.synchronize();
    Group(host_.get(), group.ranks, group.name).barrier();
  }

 private:
  /// A collective that the device has not finished.
  struct Flight {
    cudaEvent_t done;
    std::unique_ptr<Watchdog::Waiting> waiting;
  };

  cudaStream_t compute() const { return static_cast<cudaStream_t>(device_.stream().handle); }

  /// The ring or tree of a group and the stream that its collectives follow each other on.
  struct Ring {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
  };

  /// Its members' first use of it, all in the same order, makes it. In the background a group has another
  /// one, so that its sums stop neither itself nor other groups.
  Ring ring_of(const Members& group) {
    const std::lock_guard lock(mutex_);
    const std::pair key(group.ranks, group.background);
    const auto found = rings_.find(key);
    if (found != rings_.end()) return found->second;
    ncclUniqueId id{};
    if (group.self == 0) QT_NCCL_CALL(GetUniqueId(&id));
    Group(host_.get(), group.ranks, group.name)
        .broadcast(&id, static_cast<int64_t>(sizeof(id)), DType::u8, 0)
        .wait();
    Ring ring;
    QT_NCCL_CALL(CommInitRank(&ring.comm, static_cast<int>(group.ranks.size()), id, group.self));
    QT_CUDA(cudaStreamCreateWithPriority(&ring.stream, cudaStreamNonBlocking,
                                         group.background ? lowest_ : highest_));
    return rings_[key] = ring;
  }

  /// After what the device's stream has been given so far; wait() makes later work there wait.
  template <typename Work>
  Pending start(const Members& group, const char* name, int64_t count, const Work& work) {
    const auto [comm, stream] = ring_of(group);
    cudaEvent_t ready = record(compute());
    QT_CUDA(cudaStreamWaitEvent(stream, ready, 0));
    QT_CUDA(cudaEventDestroy(ready));
    work(comm, stream);
    cudaEvent_t done = record(stream);
    {
      const std::lock_guard lock(mutex_);
      flights_.push_back(
          {record(stream),
           std::make_unique<Watchdog::Waiting>(
               watchdog_, Activity{name, group.name, count, sequence_++, step_, group.ranks},
               false)});
    }
    return Pending([this, done] {
      QT_CUDA(cudaStreamWaitEvent(compute(), done, 0));
      QT_CUDA(cudaEventDestroy(done));
    });
  }

  /// Takes finished collectives off the watchdog's list and asks NCCL whether something broke.
  void poll() {
    cudaSetDevice(gpu_);
    while (!closed_) {
      {
        const std::lock_guard lock(mutex_);
        std::erase_if(flights_, [](const Flight& flight) {
          const bool done = cudaEventQuery(flight.done) == cudaSuccess;
          if (done) cudaEventDestroy(flight.done);
          return done;
        });
        for (auto& [key, ring] : rings_) {
          ncclResult_t state = ncclSuccess;
          if (nccl_.CommGetAsyncError(ring.comm, &state) == ncclSuccess && state == ncclSuccess)
            continue;
          if (state == ncclInProgress) continue;
          watchdog_.end(fmt::format("NCCL: {} ({})", nccl_.GetErrorString(state),
                                    nccl_.GetLastError(ring.comm)));
          nccl_.CommAbort(std::exchange(ring.comm, nullptr));
          return;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  const Nccl nccl_;
  std::unique_ptr<Comm> host_;
  Watchdog& watchdog_;
  Device& device_;
  int gpu_ = 0;
  int lowest_ = 0, highest_ = 0;  // priorities of streams
  int64_t sequence_ = 0;
  std::atomic<int64_t> step_{-1};
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, bool>, Ring>
      rings_;  // by ranks and whether in the background
  std::deque<Flight> flights_;
  std::atomic<bool> closed_{false};
  std::thread poller_;
};

}  // namespace

std::string gpu_identity() {
  int gpu = 0;
  std::array<char, 64> bus{};
  QT_CUDA(cudaGetDevice(&gpu));
  QT_CUDA(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), gpu));
  return bus.data();
}

std::unique_ptr<Comm> open_nccl(std::unique_ptr<Comm> host, Watchdog& watchdog, Device& device) {
  return std::make_unique<NcclComm>(std::move(host), watchdog, device);
}

}  // namespace quintet
