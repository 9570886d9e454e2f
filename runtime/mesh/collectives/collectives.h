#pragma once
// Ranks that talk to each other. A Comm is one rank's end of a job: threads of this process
// (run_ranks, for tests), processes under mpirun (open_mpi), or GPUs (NCCL); a Group is some of its
// ranks in a fixed order, normally those along axes of a mesh (mesh.h).
//
//   const Group& model = mesh.group({"model"});
//   Pending sum = model.all_reduce(data, count, DType::f32, Reduction::sum);
//   ...                                      // other work; the buffers must stay
//   sum.wait();
//
// Pointers are to memory of the comm's device. All members of a group call the same collectives in
// the same order. All get the same bits of a sum. In which order it is taken depends on the carrier:
//
//   MPI, threads   that of the group's ranks, from the left; 16-bit floats in float32, rounded once:
//                  the same ranks give the same bits, however many hosts they are on
//   NCCL           that of the ring or tree which the library chooses for the size, the group and the
//                  links; 16-bit floats may be rounded at every hop: near the above, not equal to it
//
// Ranks that share a GPU talk by MPI. Knows nothing of tensors or layouts.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"

namespace quintet {

class Device;

enum class Reduction { sum, max };

/// A collective under way. Its buffers belong to it until wait() has returned.
class [[nodiscard]] Pending {
 public:
  /// One that is done.
  Pending() = default;
  explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}
  Pending(Pending&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept;
  /// Waits, silently, if nobody has.
  ~Pending();
  /// Returns when the result is there (on a GPU: when work queued from now on sees it); again: at
  /// once. Throws Error(kPeer) naming rank, host, collective and step if a rank is dead or hangs.
  void wait();

 private:
  std::function<void()> wait_;
};

/// What was sent: one place, which `quintet bench layouts` and `quintet plan` read.
class Traffic {
 public:
  struct Entry {
    int64_t calls = 0;
    int64_t bytes = 0;  // sent by this rank
    bool operator==(const Entry&) const = default;
  };
  using Table = std::map<std::pair<std::string, std::string>, Entry>;  // {collective, group}
  void add(const std::string& collective, const std::string& group, int64_t bytes);
  /// `times` the calls of another table, as a difference of two.
  void add(const Table& table, int64_t times);
  Table table() const;
  /// Messages that this rank sent to others through ordinary memory; NCCL's are not known.
  void add_messages(int64_t count) { messages_ += count; }
  int64_t messages() const { return messages_; }
  void reset();
  /// Bytes each of n ranks sends for a collective over an array of `bytes` (before a reduce-scatter
  /// or all-to-all, after an all-gather): (n-1)/n of it, twice that for an all-reduce.
  static int64_t sent(const std::string& collective, int64_t bytes, int n);

 private:
  mutable std::mutex mutex_;
  Table table_;
  std::atomic<int64_t> messages_ = 0;
};

/// A part of an uneven exchange: `count` elements at `first` of an array, for or from a member.
struct Slice {
  int member = 0;
  int64_t first = 0, count = 0;
};
using Slices = std::vector<Slice>;

/// An array of a collective that takes several at once: `count` elements as in that of one array.
struct CollectiveArray {
  const void* from;
  void* to;
  int64_t count;
};
using CollectiveArrays = std::vector<CollectiveArray>;
int64_t total_count(const CollectiveArrays& arrays);

/// Collectives that are part of what a device records (Device::record): each launch repeats them. Goes
/// after what was recorded and before its comm.
class RecordedCollectives {
 public:
  virtual ~RecordedCollectives() = default;
  /// Called as the last of what is recorded: all that was started is ordered before its end.
  virtual void close() = 0;
  /// Calls `launch`, which launches what was recorded, as a step's collectives are called: they are
  /// counted, watched and compared between ranks.
  virtual void launch(const std::function<void()>& launch) = 0;
};

class Group;

/// One rank's end of a job. Used by one thread at a time.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Host name of every rank.
  virtual const std::vector<std::string>& hosts() const = 0;
  /// A channel of its own between the same ranks, for collectives of another thread, whose order
  /// against this one's is not fixed; in ordinary memory. Called by all ranks.
  virtual std::unique_ptr<Comm> channel() = 0;
  /// Where pointers given to its collectives point.
  virtual Device& device() const = 0;
  /// The same ranks for data in ordinary memory; this one if the device is the CPU.
  virtual Comm& host() = 0;
  /// All ranks, in order.
  Group world();

  /// For messages: the training step this rank is in.
  virtual void set_step(int64_t) {}
  /// Seconds since the last call that the device's stream stood still for collectives, of those that are
  /// over. 0 where the host waits for them, which ExecutionContext::waited counts.
  virtual double take_stalled_seconds() { return 0; }
  /// Until it is closed or goes, collectives are recorded and not called; they have been called once
  /// before. All ranks of a group record the same or none does. nullptr: collectives wait on the host.
  virtual std::unique_ptr<RecordedCollectives> record() { return nullptr; }
  Traffic& traffic() { return *traffic_; }

 protected:
  friend class Group;
  // `members`: comm ranks of the group, this one at `self`; arguments as in Group; more than one
  // member and count > 0.
  struct Members {
    const std::vector<int>& ranks;
    int self;
    const std::string& name;
    bool background, in_step;
  };
  virtual Pending all_reduce(const Members&, const CollectiveArrays&, DType, Reduction) = 0;
  virtual Pending all_gather(const Members&, const CollectiveArrays&, DType) = 0;
  virtual Pending reduce_scatter(const Members&, const CollectiveArrays&, DType, Reduction) = 0;
  virtual Pending all_to_all(const Members&, const void* from, void* to, int64_t count, DType) = 0;
  virtual Pending exchange(const Members&, const void* from, Slices sends, void* to,
                           Slices receives, int64_t count, DType) = 0;
  virtual Pending broadcast(const Members&, void* data, int64_t count, DType, int root) = 0;
  virtual Pending send(const Members&, const void* data, int64_t count, DType, int to) = 0;
  virtual Pending receive(const Members&, void* data, int64_t count, DType, int from) = 0;
  virtual void barrier(const Members&) = 0;

 private:
  std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
};

/// Some ranks of a comm in a fixed order. Making one needs no communication. A group of one needs
/// no comm: its collectives copy.
class Group {
 public:
  /// `ranks` are comm's, this one among them; `name` is for messages and Traffic ("data,model").
  Group(Comm* comm, std::vector<int> ranks, std::string name);
  /// This rank alone.
  Group() : Group(nullptr, {0}, "") {}

  int size() const { return static_cast<int>(ranks_.size()); }
  int rank() const { return self_; }  // position of this rank
  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }  // of the comm
  Comm* comm() const { return comm_; }
  /// The same ranks for data in ordinary memory.
  Group on_host() const { return {comm_ == nullptr ? nullptr : &comm_->host(), ranks_, name_}; }
  /// The same ranks for what nobody waits for soon, gradients' sums: other collectives overtake it where
  /// the carrier can (NCCL, on a stream of its own).
  Group in_background() const {
    Group group = *this;
    group.background_ = true;
    return group;
  }

  /// The same ranks, whose collectives other groups of the name do not call at the same steps: they are not
  /// compared between all ranks of the job.
  Group out_of_step() const {
    Group group = *this;
    group.in_step_ = false;
    return group;
  }

  // Counts are elements; [size][count] means one block of count elements for each member, in order.
  /// from: [count] -> to: [count], the sum or maximum over all members, the same bits on each. They may
  /// be the same.
  Pending all_reduce(const void* from, void* to, int64_t count, DType dtype,
                     Reduction how = Reduction::sum) const;
  Pending all_reduce(void* data, int64_t count, DType dtype, Reduction how = Reduction::sum) const {
    return all_reduce(data, data, count, dtype, how);
  }
  /// from: [count] of each member -> to: [size][count]. `from` may lie at its place inside `to`.
  Pending all_gather(const void* from, void* to, int64_t count, DType dtype) const;
  /// from: [size][count] -> to: [count], block number rank() reduced over all members.
  Pending reduce_scatter(const void* from, void* to, int64_t count, DType dtype,
                         Reduction how = Reduction::sum) const;
  // Several arrays in one collective: one wait for the others' messages. Each gets the bits that it
  // would get alone, but for NCCL's sums.
  Pending all_reduce(const CollectiveArrays& arrays, DType dtype,
                     Reduction how = Reduction::sum) const;
  Pending all_gather(const CollectiveArrays& arrays, DType dtype) const;
  Pending reduce_scatter(const CollectiveArrays& arrays, DType dtype,
                         Reduction how = Reduction::sum) const;
  /// from: [size][count], block i for member i -> to: [size][count], block i from member i.
  Pending all_to_all(const void* from, void* to, int64_t count, DType dtype) const;
  /// An all-to-all whose blocks differ in size: the slices of `from` go to their members and arrive in
  /// the slices of `to`, those between two members in order; a member's own are copied. `count`, the
  /// same for all members: how many elements `from` has at most. What Traffic counts is the even
  /// all-to-all of so many, since what really travels is for the data to say and not for a plan.
  Pending exchange(const void* from, Slices sends, void* to, Slices receives, int64_t count,
                   DType dtype) const;
  /// data: [count] of member `root` -> of all.
  Pending broadcast(void* data, int64_t count, DType dtype, int root) const;
  Pending send(const void* data, int64_t count, DType dtype, int to) const;
  Pending receive(void* data, int64_t count, DType dtype, int from) const;
  /// Returns when all members have called it.
  void barrier() const;

 private:
  bool alone(const void* from, void* to, int64_t count, DType dtype) const;
  bool alone(const CollectiveArrays& arrays, DType dtype) const;
  void record(const char* collective, int64_t bytes) const;
  void record(const char* collective, const CollectiveArrays& arrays, int64_t element) const;
  Comm::Members members() const { return {ranks_, self_, name_, background_, in_step_}; }

  Comm* comm_;
  std::vector<int> ranks_;
  int self_ = 0;
  std::string name_;
  bool background_ = false, in_step_ = true;
};

/// Text of every member of a group, in order; for what is small: names, verdicts, addresses.
std::vector<std::string> gather_text(const Group& group, const std::string& text);

}  // namespace quintet
