#include "runtime/mesh/collectives/collectives_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>

#include "kernels/device.h"
#include "kernels/gpu/gpu_kernels.h"
#include "kernels/simt/cuda_check.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/thread.h"
#include "runtime/mesh/collectives/nccl_library.h"
#include "runtime/mesh/collectives/watchdog.h"

namespace quintet {
namespace {

struct Nccl {
  const SharedLibrary library{kNccl};
  QT_LOADED(nccl, GetVersion)
  QT_LOADED(nccl, GetErrorString)
  QT_LOADED(nccl, GetLastError)
  QT_LOADED(nccl, GetUniqueId)
  QT_LOADED(nccl, CommInitRankConfig)
  QT_LOADED(nccl, CommSplit)
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
constexpr std::chrono::milliseconds kPoll(2);
constexpr size_t kMostStalls = 1 << 14;
constexpr int64_t kOrderSteps = 16, kMostIssued = 8 << 20;  // steps, bytes

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

/// `how`: cudaEventRecordExternal while `stream` is recorded: at each launch anew.
cudaEvent_t event_on(cudaStream_t stream, unsigned flags = cudaEventDisableTiming,
                     unsigned how = cudaEventRecordDefault) {
  cudaEvent_t event;
  QT_CUDA(cudaEventCreateWithFlags(&event, flags));
  QT_CUDA(cudaEventRecordWithFlags(event, stream, how));
  return event;
}

/// Work queued on `later` from now on comes after what `earlier` has been given so far.
void order(cudaStream_t earlier, cudaStream_t later) {
  const cudaEvent_t event = event_on(earlier);
  QT_CUDA(cudaStreamWaitEvent(later, event, 0));
  QT_CUDA(cudaEventDestroy(event));
}

/// Between what the device did before a collective's result was needed, and after it was there.
struct Stall {
  cudaEvent_t begin, end;
  void destroy() const {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  double seconds() const {
    float milliseconds = 0;
    QT_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    return milliseconds / 1e3;
  }
};

/// What a device comes to: an event, or a word that it has counted up to `launch`.
struct Mark {
  cudaEvent_t event = nullptr;
  std::shared_ptr<uint32_t> word = nullptr;
  uint32_t launch = 0;

  bool is_set() const { return event != nullptr || word != nullptr; }
  /// Once it is reached it is set no more.
  bool reach() {
    if (word != nullptr ? std::atomic_ref(*word).load() < launch : !is_over(event)) return false;
    clear();
    return true;
  }
  void clear() {
    if (event != nullptr) cudaEventDestroy(event);
    *this = {};
  }
  static bool is_over(cudaEvent_t event) {
    const cudaError_t state = cudaEventQuery(event);
    QT_CHECK_AS(ExitCode::kPeer, state == cudaSuccess || state == cudaErrorNotReady,
                "CUDA: {} ({})", cudaGetErrorString(state), cudaGetErrorName(state));
    return state == cudaSuccess;
  }
};

/// What is repeated by each launch of a recording (a CUDA graph). No event of it can be asked for: the
/// device counts words of pinned memory up.
struct Repeated {
  struct Call {
    std::string ring;  // empty: it is not compared
    Activity activity;
    std::shared_ptr<uint32_t> started, done;
  };
  std::vector<Call> calls = {};
  std::set<cudaStream_t> streams = {};
  std::vector<Stall> stalls = {};
  Traffic::Table traffic = {};  // of a launch
  uint32_t launches = 0;
  cudaEvent_t over = nullptr;  // the last launch; null once its stalls are counted

  Repeated() = default;
  ~Repeated() {
    for (const Stall& stall : stalls) stall.destroy();
    if (over != nullptr) cudaEventDestroy(over);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  Call& add(std::string ring, Activity activity, Device& device) {
    constexpr size_t kWords = 1024;
    if (calls.size() * 2 % kWords == 0) {
      constexpr int64_t kBytes = kWords * sizeof(uint32_t);
      words_ = device.pinned(kBytes);
      std::fill_n(words_.get(), kBytes, std::byte{0});
    }
    auto* const word = reinterpret_cast<uint32_t*>(words_.get()) + calls.size() * 2 % kWords;
    return calls.emplace_back(std::move(ring), std::move(activity),
                              std::shared_ptr<uint32_t>(words_, word),
                              std::shared_ptr<uint32_t>(words_, word + 1));
  }
  /// Of the last launch, once it is over: seconds that the device stood still.
  double take_stalled_seconds() {
    if (over == nullptr || !Mark::is_over(over)) return 0;
    cudaEventDestroy(std::exchange(over, nullptr));
    double total = 0;
    for (const Stall& stall : stalls) total += stall.seconds();
    return total;
  }

 private:
  Buffer words_;
};

class NcclComm final : public Comm {
 public:
  NcclComm(std::unique_ptr<Comm> host, Watchdog& watchdog, Device& device, NcclOptions options)
      : host_(std::move(host)), watchdog_(watchdog), device_(device), options_(std::move(options)) {
    QT_CUDA(cudaGetDevice(&gpu_));
    QT_CUDA(cudaDeviceGetStreamPriorityRange(&lowest_, &highest_));
    poller_ = start_thread("to watch NCCL", [this] { poll(); });
  }
  ~NcclComm() override {
    closed_ = true;
    poller_.join();
    abort_all();
    for (Flight& flight : flights_) {
      flight.ready.clear();
      flight.done.clear();
    }
    for (const Stall& stall : stalls_) stall.destroy();
    for (auto& [key, ring] : rings_) cudaStreamDestroy(ring.stream);
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
    if (++steps_ % kOrderSteps == 0) check_order();
  }

  double take_stalled_seconds() override {
    double total = std::exchange(stalled_, 0);
    if (launched_ != nullptr) total += launched_->take_stalled_seconds();
    for (; !stalls_.empty(); stalls_.pop_front()) {
      if (cudaEventQuery(stalls_.front().end) == cudaErrorNotReady) break;
      total += stalls_.front().seconds();
      stalls_.front().destroy();
    }
    return total;
  }

  std::unique_ptr<RecordedCollectives> record() override {
    QT_ASSERT(recorded_ == nullptr);
    return std::make_unique<Recorded>(*this);
  }

  Pending all_reduce(const Members& group, const CollectiveArrays& arrays, DType dtype,
                     Reduction how) override {
    return start_each(group, "all_reduce", arrays,
                      [=, this](const CollectiveArray& a, ncclComm_t comm, cudaStream_t stream) {
                        return nccl_.AllReduce(a.from, a.to, static_cast<size_t>(a.count),
                                               type_of(dtype), op_of(how), comm, stream);
                      });
  }
  Pending all_gather(const Members& group, const CollectiveArrays& arrays, DType dtype) override {
    return start_each(group, "all_gather", arrays,
                      [=, this](const CollectiveArray& a, ncclComm_t comm, cudaStream_t stream) {
                        return nccl_.AllGather(a.from, a.to, static_cast<size_t>(a.count),
                                               type_of(dtype), comm, stream);
                      });
  }
  Pending reduce_scatter(const Members& group, const CollectiveArrays& arrays, DType dtype,
                         Reduction how) override {
    return start_each(group, "reduce_scatter", arrays,
                      [=, this](const CollectiveArray& a, ncclComm_t comm, cudaStream_t stream) {
                        return nccl_.ReduceScatter(a.from, a.to, static_cast<size_t>(a.count),
                                                   type_of(dtype), op_of(how), comm, stream);
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
      await(comm, nccl_.GroupEnd(), "ncclGroupEnd");
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
      await(comm, nccl_.GroupEnd(), "ncclGroupEnd");
    });
  }
  Pending broadcast(const Members& group, void* data, int64_t count, DType dtype,
                    int root) override {
    return start(group, "broadcast", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      await(comm,
            nccl_.Broadcast(data, data, static_cast<size_t>(count), type_of(dtype), root, comm,
                            stream),
            "ncclBroadcast");
    });
  }
  Pending send(const Members& group, const void* data, int64_t count, DType dtype,
               int to) override {
    return start(group, "send", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      await(comm, nccl_.Send(data, static_cast<size_t>(count), type_of(dtype), to, comm, stream),
            "ncclSend");
    });
  }
  Pending receive(const Members& group, void* data, int64_t count, DType dtype, int from) override {
    return start(group, "receive", count, [=, this](ncclComm_t comm, cudaStream_t stream) {
      await(comm, nccl_.Recv(data, static_cast<size_t>(count), type_of(dtype), from, comm, stream),
            "ncclRecv");
    });
  }
  void barrier(const Members& group) override {
    device_.synchronize();
    Group(host_.get(), group.ranks, group.name).barrier();
  }

 private:
  /// A collective that the device has not finished. `ready`: it has come to it; not set once it has.
  struct Flight {
    Mark ready, done;
    std::unique_ptr<Watchdog::Waiting> waiting;
  };

  class Recorded final : public RecordedCollectives {
   public:
    explicit Recorded(NcclComm& comm) : comm_(comm) {
      comm_.recorded_ = repeated_;
      repeated_->traffic = comm_.traffic().table();
    }
    ~Recorded() override { leave(); }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;
    void close() override {
      for (cudaStream_t stream : repeated_->streams) order(stream, comm_.compute());
      leave();
    }
    void launch(const std::function<void()>& launch) override { comm_.launch(repeated_, launch); }

   private:
    /// What was called meanwhile did not happen yet.
    void leave() {
      if (comm_.recorded_ == nullptr) return;
      comm_.recorded_ = nullptr;
      Traffic called;
      called.add(comm_.traffic().table(), 1);
      called.add(repeated_->traffic, -1);
      repeated_->traffic = called.table();
      comm_.traffic().add(repeated_->traffic, -1);
    }
    NcclComm& comm_;
    std::shared_ptr<Repeated> repeated_ = std::make_shared<Repeated>();
  };

  cudaStream_t compute() const { return static_cast<cudaStream_t>(device_.stream().handle); }

  /// The ring or tree of a group and the stream that its collectives follow each other on.
  struct Ring {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
  };

  /// All ranks that have a GPU, on the host.
  Group all_ranks() { return {host_.get(), options_.ranks, "GPUs"}; }

  /// Returns when `comm` has done what it was asked for and answered with `code`: it does not block.
  void await(ncclComm_t comm, ncclResult_t code, const char* call) const {
    for (; code == ncclInProgress; std::this_thread::sleep_for(kPoll))
      QT_NCCL_CALL(CommGetAsyncError(comm, &code));
    nccl_.check(code, call);
  }
  /// The same of a communicator that is being made; one that takes too long is given up.
  void await_start(ncclComm_t comm, ncclResult_t code, const char* call,
                   const std::string& over) const {
    const double begin = now_seconds();
    for (; code == ncclInProgress; std::this_thread::sleep_for(kPoll)) {
      if (options_.init_timeout > 0 && now_seconds() - begin > options_.init_timeout) {
        nccl_.CommAbort(comm);
        fail(
            ExitCode::kEnvironment,
            "NCCL: {} over {} is not done after {:.0f} s (--init_timeout): rank {} on {} waits for "
            "GPUs or links of other ranks; NCCL_DEBUG=INFO says which",
            call, over, options_.init_timeout, rank(), hosts()[static_cast<size_t>(rank())]);
      }
      QT_NCCL_CALL(CommGetAsyncError(comm, &code));
    }
    nccl_.check(code, call);
  }

  ncclComm_t make_world() {
    ncclUniqueId id{};
    const Group all = all_ranks();
    if (all.rank() == 0) QT_NCCL_CALL(GetUniqueId(&id));
    all.broadcast(&id, static_cast<int64_t>(sizeof(id)), DType::u8, 0).wait();
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 1;
    const ncclResult_t code = nccl_.CommInitRankConfig(&comm, all.size(), id, all.rank(), &config);
    await_start(comm, code, "ncclCommInitRankConfig", "all GPUs");
    return comm;
  }

  /// A part of the world that shares its connections and buffers; in the background, where it runs at
  /// the same time, one of its own. All ranks with a GPU make theirs at once: groups along axes of a mesh
  /// are such.
  ncclComm_t split_world(const Members& group) {
    const std::string name = name_of(group);
    const std::vector<std::string> names = gather_text(all_ranks(), name);
    for (size_t i = 0; i < names.size(); ++i)
      QT_CHECK_AS(ExitCode::kPeer, names[i] == name,
                  "collectives out of order: rank {} begins to use {}, rank {} on {} {}", rank(),
                  name, options_.ranks[i], hosts()[static_cast<size_t>(options_.ranks[i])],
                  names[i]);
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = group.background ? 0 : 1;
    const ncclResult_t code =
        nccl_.CommSplit(world_, group.ranks.front(), group.self, &comm, &config);
    await_start(world_, code, "ncclCommSplit", name);
    ncclResult_t state = ncclSuccess;
    QT_NCCL_CALL(CommGetAsyncError(comm, &state));
    await_start(comm, state, "ncclCommSplit", name);
    return comm;
  }

  static std::string name_of(const Members& group) {
    return group.background ? group.name + " in the background" : group.name;
  }

  static std::string compared_name_of(const Members& group) {
    return group.in_step ? name_of(group) : "";
  }

  /// Its members' first use of it, all in the same order, makes it. In the background a group has another
  /// one, so that its sums stop neither itself nor other groups.
  Ring ring_of(const Members& group) {
    const std::pair key(group.ranks, group.background);
    {
      const std::lock_guard lock(mutex_);
      QT_CHECK_AS(ExitCode::kPeer, !aborted_, "NCCL: its communicators were given up");
      const auto found = rings_.find(key);
      if (found != rings_.end()) return found->second;
    }
    if (recorded_ != nullptr)
      throw NotRecordable(
          fmt::format("the first collective over {} cannot be recorded", name_of(group)));
    if (world_ == nullptr) {
      ncclComm_t world = make_world();
      const std::lock_guard lock(mutex_);
      world_ = world;
    }
    const bool is_world = group.ranks == options_.ranks && !group.background;
    Ring ring{.comm = is_world ? world_ : split_world(group)};
    QT_CUDA(cudaStreamCreateWithPriority(&ring.stream, cudaStreamNonBlocking,
                                         group.background ? lowest_ : highest_));
    const std::lock_guard lock(mutex_);
    return rings_[key] = ring;
  }

  /// After what the device's stream has been given so far; wait() makes later work there wait.
  template <typename Work>
  Pending start(const Members& group, const char* name, int64_t count, const Work& work) {
    const auto [comm, stream] = ring_of(group);
    Activity activity{name, group.name, count, sequence_, step_, group.ranks};
    if (recorded_ != nullptr) {
      const Repeated::Call& call =
          recorded_->add(compared_name_of(group), std::move(activity), device_);
      recorded_->streams.insert(stream);
      order(compute(), stream);
      device_.kernels().count_up(call.started.get(), {stream});
      work(comm, stream);
      cudaEvent_t done = event_on(stream);
      device_.kernels().count_up(call.done.get(), {stream});  // nobody waits for it
      return wait_in_recording(done);
    }
    ++sequence_;
    note_order(compared_name_of(group), activity);
    // Before the launch, which may block.
    auto waiting = std::make_unique<Watchdog::Waiting>(watchdog_, activity, false);
    cudaEvent_t ready = event_on(compute());
    QT_CUDA(cudaStreamWaitEvent(stream, ready, 0));
    work(comm, stream);
    cudaEvent_t done = event_on(stream);
    watch({.event = ready}, {.event = event_on(stream)}, std::move(waiting));
    return Pending([this, done] {
      const Stall stall = wait_on_device(done, cudaEventRecordDefault);
      const std::lock_guard lock(mutex_);
      stalls_.push_back(stall);
      if (stalls_.size() <= kMostStalls) return;  // more than a step's: nobody asks for them
      stalls_.front().destroy();
      stalls_.pop_front();
    });
  }

  Stall wait_on_device(cudaEvent_t done, unsigned how) const {
    const cudaEvent_t begin = event_on(compute(), cudaEventDefault, how);
    QT_CUDA(cudaStreamWaitEvent(compute(), done, 0));
    QT_CUDA(cudaEventDestroy(done));
    return {begin, event_on(compute(), cudaEventDefault, how)};
  }

  /// Whoever waits once the recording is closed or given up has nothing to wait for.
  Pending wait_in_recording(cudaEvent_t done) {
    return Pending([this, done, repeated = recorded_] {
      if (recorded_ != repeated)
        cudaEventDestroy(done);
      else
        repeated->stalls.push_back(wait_on_device(done, cudaEventRecordExternal));
    });
  }

  void watch(Mark ready, Mark done, std::unique_ptr<Watchdog::Waiting> waiting) {
    const std::lock_guard lock(mutex_);
    waiting->set_started(false);
    flights_.push_back({std::move(ready), std::move(done), std::move(waiting)});
  }

  void count_stalls() {
    if (launched_ != nullptr) stalled_ += std::exchange(launched_, nullptr)->take_stalled_seconds();
  }

  /// A launch of a recording: its collectives are called.
  void launch(const std::shared_ptr<Repeated>& repeated, const std::function<void()>& launch) {
    count_stalls();
    ++repeated->launches;
    for (const auto& [ring, called, started, done] : repeated->calls) {
      Activity activity = called;
      activity.sequence = sequence_++;
      activity.step = step_;
      note_order(ring, activity);
      watch({.word = started, .launch = repeated->launches},
            {.word = done, .launch = repeated->launches},
            std::make_unique<Watchdog::Waiting>(watchdog_, activity, false));
    }
    traffic().add(repeated->traffic, 1);
    launch();
    if (repeated->over != nullptr) cudaEventDestroy(repeated->over);
    repeated->over = event_on(compute());
    launched_ = repeated;
  }

  /// Several arrays are a group, which NCCL launches as one kernel, each where it lies.
  template <typename Call>
  Pending start_each(const Members& group, const char* name, const CollectiveArrays& arrays,
                     const Call& call) {
    return start(group, name, total_count(arrays), [&](ncclComm_t comm, cudaStream_t stream) {
      if (arrays.size() == 1) return await(comm, call(arrays[0], comm, stream), name);
      QT_NCCL_CALL(GroupStart());
      for (const CollectiveArray& array : arrays) nccl_.check(call(array, comm, stream), name);
      await(comm, nccl_.GroupEnd(), "ncclGroupEnd");
    });
  }

  /// What all ranks must call alike, on each ring by itself.
  void note_order(const std::string& ring, const Activity& activity) {
    if (ring.empty()) return;
    std::string& calls = issued_[ring];
    if (std::ssize(calls) > kMostIssued) calls.clear();  // work without steps
    calls += fmt::format("{} over {} of {} elements, step {}\n", activity.collective, ring,
                         activity.count, activity.step);
  }

  /// Every kOrderSteps steps: ranks that called different collectives are found, also where sizes were
  /// alike and NCCL took one for the other.
  void check_order() {
    const Group all = all_ranks();
    std::string texts;
    for (const auto& [ring, calls] : issued_) texts += calls;
    issued_.clear();
    std::vector<int64_t> hashes(options_.ranks.size());
    const auto own = static_cast<int64_t>(fnv1a<uint64_t>(texts));
    all.all_gather(&own, hashes.data(), 1, DType::i64).wait();
    const auto different = std::ranges::find_if(hashes, [&](int64_t h) { return h != hashes[0]; });
    if (different == hashes.end()) return;
    const auto other = static_cast<size_t>(different - hashes.begin());
    const auto calls = gather_text(all, texts);
    const std::string &a = calls[0], &b = calls[other];
    const auto differ = static_cast<size_t>(
        std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    const size_t line = differ == 0 ? 0 : a.rfind('\n', differ - 1) + 1;
    const auto line_at = [&](const std::string& text) {
      return line < text.size() ? text.substr(line, text.find('\n', line) - line)
                                : std::string("nothing more");
    };
    fail(ExitCode::kPeer, "collectives out of order: rank {} on {} called {}; rank {} on {} {}",
         options_.ranks[0], hosts()[static_cast<size_t>(options_.ranks[0])], line_at(a),
         options_.ranks[other], hosts()[static_cast<size_t>(options_.ranks[other])], line_at(b));
  }

  /// Parts before the whole that they share with.
  void abort_all() {
    aborted_ = true;
    for (auto& [key, ring] : rings_)
      if (ring.comm != world_) nccl_.CommAbort(ring.comm);
    if (world_ != nullptr) nccl_.CommAbort(world_);
    for (auto& [key, ring] : rings_) ring.comm = nullptr;
    world_ = nullptr;
  }

  /// Tells the watchdog which collectives the device has come to, and which it has finished.
  void look_at_flights() {
    for (auto flight = flights_.begin(); flight != flights_.end();) {
      if (flight->ready.is_set() && flight->ready.reach()) flight->waiting->set_started(true);
      const bool done = !flight->ready.is_set() && flight->done.reach();
      flight = done ? flights_.erase(flight) : flight + 1;
    }
  }

  /// What is wrong with CUDA or NCCL, or empty.
  std::string look() {
    try {
      look_at_flights();
    } catch (const Error& error) {
      return error.what();
    }
    for (const auto& [key, ring] : rings_) {
      if (ring.comm == nullptr) continue;
      ncclResult_t state = ncclSuccess;
      if (const ncclResult_t asked = nccl_.CommGetAsyncError(ring.comm, &state);
          asked != ncclSuccess)
        state = asked;
      if (state != ncclSuccess && state != ncclInProgress)
        return fmt::format("NCCL: {} ({})", nccl_.GetErrorString(state),
                           nccl_.GetLastError(ring.comm));
    }
    return "";
  }

  /// Ends the job at the first thing that is wrong: one rank's communicators that broke leave the others
  /// waiting on the device for ever.
  void poll() {
    cudaSetDevice(gpu_);
    while (!closed_) {
      {
        const std::lock_guard lock(mutex_);
        if (const std::string wrong = look(); !wrong.empty()) {
          watchdog_.end(wrong);
          abort_all();
          return;
        }
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

  const Nccl nccl_;
  std::unique_ptr<Comm> host_;
  Watchdog& watchdog_;
  Device& device_;
  const NcclOptions options_;
  int gpu_ = 0;
  int lowest_ = 0, highest_ = 0;  // priorities of streams
  int64_t sequence_ = 0, steps_ = 0;
  std::atomic<int64_t> step_{-1};
  std::map<std::string, std::string> issued_;  // by ring: collectives since their order was checked
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, bool>, Ring>
      rings_;                   // by ranks and whether in the background
  ncclComm_t world_ = nullptr;  // all GPUs; of a ring, too
  bool aborted_ = false;
  std::deque<Flight> flights_;
  std::deque<Stall> stalls_;
  std::shared_ptr<Repeated> recorded_, launched_;  // now; last
  double stalled_ = 0;                             // of launches before the last
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

std::string nccl_version() {
  const Nccl nccl;
  int code = 0;
  nccl.check(nccl.GetVersion(&code), "ncclGetVersion");
  return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

std::unique_ptr<Comm> open_nccl(std::unique_ptr<Comm> host, Watchdog& watchdog, Device& device,
                                NcclOptions options) {
  return std::make_unique<NcclComm>(std::move(host), watchdog, device, std::move(options));
}

}  // namespace quintet
