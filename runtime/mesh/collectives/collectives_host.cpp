#include "runtime/mesh/collectives/collectives_host.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/mesh/collectives/reduce.h"
#include "runtime/mesh/collectives/work_queue.h"

namespace quintet {
namespace {

// A reduction works through its array in pieces of so many bytes a rank: what is received and not
// yet added stays small.
constexpr int64_t kPieceBytes = 4 << 20;
// All-reduces of so few bytes among so few ranks take as long as their messages wait, not as their
// bytes travel.
constexpr int64_t kSmallBytes = 16 << 10, kFewRanks = 8;

class HostComm final : public Comm {
 public:
  HostComm(std::unique_ptr<Transport> transport, Device& device)
      : transport_(std::move(transport)), device_(device) {
    if (!device.is_cpu()) host_ = host_comm(transport_->channel(), Device::cpu());
  }
  int rank() const override { return transport_->rank(); }
  int size() const override { return static_cast<int>(hosts().size()); }
  const std::vector<std::string>& hosts() const override { return transport_->hosts(); }
  Device& device() const override { return device_; }
  Comm& host() override { return host_ ? *host_ : *this; }
  std::unique_ptr<Comm> channel() override {
    return host_comm(transport_->channel(), Device::cpu());
  }
  void set_step(int64_t step) override { step_ = step; }

  Pending all_reduce(const Members& group, const void* from, void* to, int64_t count, DType dtype,
                     Reduction how) override {
    return start(group, "all_reduce", from, count, to, count, count, dtype,
                 [=](const Call& call, void* in, void* out) {
                   if (in != out) std::memcpy(out, in, static_cast<size_t>(count * size_of(dtype)));
                   reduce_and_gather(call, out, count, dtype, how);
                 });
  }
  Pending all_gather(const Members& group, const void* from, void* to, int64_t count,
                     DType dtype) override {
    return start(group, "all_gather", from, count, to, count * ranks(group), count, dtype,
                 [=](const Call& call, void* in, void* out) {
                   gather(call, in, out, count * size_of(dtype));
                 });
  }
  Pending reduce_scatter(const Members& group, const void* from, void* to, int64_t count,
                         DType dtype, Reduction how) override {
    return start(group, "reduce_scatter", from, count * ranks(group), to, count, count, dtype,
                 [=](const Call& call, void* in, void* out) {
                   scatter_sums(call, in, out, count, dtype, how);
                 });
  }
  Pending all_to_all(const Members& group, const void* from, void* to, int64_t count,
                     DType dtype) override {
    return start(group, "all_to_all", from, count * ranks(group), to, count * ranks(group), count,
                 dtype, [=](const Call& call, void* in, void* out) {
                   swap_blocks(call, in, out, count * size_of(dtype));
                 });
  }
  Pending exchange(const Members& group, const void* from, Slices sends, void* to, Slices receives,
                   int64_t count, DType dtype) override {
    const int64_t in_count = end_of(sends), out_count = end_of(receives);
    return start(group, "all_to_all", from, in_count, to, out_count, count, dtype,
                 [=, sends = std::move(sends), receives = std::move(receives)](
                     const Call& call, void* in, void* out) {
                   swap_slices(call, in, sends, out, receives, size_of(dtype));
                 });
  }
  Pending broadcast(const Members& group, void* data, int64_t count, DType dtype,
                    int root) override {
    return start(group, "broadcast", data, group.self == root ? count : 0, data, count, count,
                 dtype, [=](const Call& call, void* in, void* out) {
                   spread(call, in, out, count * size_of(dtype), root);
                 });
  }
  Pending send(const Members& group, const void* data, int64_t count, DType dtype,
               int to) override {
    return start(group, "send", data, count, nullptr, 0, count, dtype,
                 [=](const Call& call, void* in, void*) {
                   const Message message{call.at(to), in, count * size_of(dtype)};
                   call.exchange({&message, 1}, {});
                 });
  }
  Pending receive(const Members& group, void* data, int64_t count, DType dtype, int from) override {
    return start(group, "receive", nullptr, 0, data, count, count, dtype,
                 [=](const Call& call, void*, void* out) {
                   const Message message{call.at(from), out, count * size_of(dtype)};
                   call.exchange({}, {&message, 1});
                 });
  }
  void barrier(const Members& group) override {
    std::vector<uint8_t> marks(static_cast<size_t>(ranks(group)));
    start(group, "barrier", nullptr, 0, nullptr, 0, 1, DType::u8,
          [&](const Call& call, void*, void*) { gather(call, &marks[call.self], marks.data(), 1); })
        .wait();
  }

 private:
  /// One collective as its group's member `self` runs it.
  struct Call {
    Transport* transport;
    Activity activity;
    int self;
    int size() const { return static_cast<int>(activity.ranks.size()); }
    int at(int member) const { return activity.ranks[static_cast<size_t>(member)]; }
    void exchange(std::span<const Message> sends, std::span<const Message> receives) const {
      transport->exchange(sends, receives, activity);
    }
  };
  using Work = std::function<void(const Call&, void* in, void* out)>;

  static int64_t ranks(const Members& group) { return static_cast<int64_t>(group.ranks.size()); }

  /// Puts `work` into the queue. A GPU's `in` is copied to ordinary memory now, `out` from it by
  /// wait().
  Pending start(const Members& group, const char* name, const void* in, int64_t in_count, void* out,
                int64_t out_count, int64_t count, DType dtype, Work work) {
    const Call call{
        transport_.get(), {name, group.name, count, sequence_++, step_, group.ranks}, group.self};
    void* host_in = const_cast<void*>(in);
    void* host_out = out;
    Buffer staged_in, staged_out;
    const int64_t out_bytes = out_count * size_of(dtype);
    if (!device_.is_cpu()) {
      staged_in = device_.pinned(std::max<int64_t>(in_count * size_of(dtype), 1));
      if (in_count > 0) {
        device_.copy_out(staged_in.get(), in, in_count * size_of(dtype));
        device_.counters().stage_out(in_count * size_of(dtype));
      }
      host_in = staged_in.get();
      staged_out = in == out ? staged_in : device_.pinned(std::max<int64_t>(out_bytes, 1));
      host_out = staged_out.get();
    }
    // The staged blocks live until the work is done, whoever still waits for it.
    auto task = queue_.put([=, staged = std::array{staged_in, staged_out}, work = std::move(work)] {
      work(call, host_in, host_out);
    });
    return Pending([=, this, task = std::move(task)] {
      queue_.wait(task);
      if (!staged_out || out_bytes == 0) return;
      device_.copy_in(out, staged_out.get(), out_bytes);
      device_.counters().stage_in(out_bytes);
    });
  }

  static std::byte* block(void* data, int64_t index, int64_t bytes) {
    return static_cast<std::byte*>(data) + index * bytes;
  }

  static void gather(const Call& call, void* in, void* out, int64_t bytes) {
    if (in != block(out, call.self, bytes))
      std::memcpy(block(out, call.self, bytes), in, static_cast<size_t>(bytes));
    std::vector<Message> sends, receives;
    for (int i = 0; i < call.size(); ++i) {
      if (i == call.self) continue;
      sends.push_back({call.at(i), in, bytes});
      receives.push_back({call.at(i), block(out, i, bytes), bytes});
    }
    call.exchange(sends, receives);
  }

  static void swap_blocks(const Call& call, void* in, void* out, int64_t bytes) {
    QT_ASSERT(in != out);
    std::memcpy(block(out, call.self, bytes), block(in, call.self, bytes),
                static_cast<size_t>(bytes));
    std::vector<Message> sends, receives;
    for (int i = 0; i < call.size(); ++i) {
      if (i == call.self) continue;
      sends.push_back({call.at(i), block(in, i, bytes), bytes});
      receives.push_back({call.at(i), block(out, i, bytes), bytes});
    }
    call.exchange(sends, receives);
  }

  /// Elements up to the end of the last slice.
  static int64_t end_of(const Slices& slices) {
    int64_t end = 0;
    for (const Slice& slice : slices) end = std::max(end, slice.first + slice.count);
    return end;
  }

  static void swap_slices(const Call& call, void* in, const Slices& sends, void* out,
                          const Slices& receives, int64_t element) {
    std::vector<Message> local[2], away[2];  // sent, received
    const auto sort = [&](const Slices& slices, void* data, size_t side) {
      for (const Slice& slice : slices)
        if (slice.count > 0)
          (slice.member == call.self ? local : away)[side].push_back(
              {call.at(slice.member), block(data, slice.first, element), slice.count * element});
    };
    sort(sends, in, 0);
    sort(receives, out, 1);
    QT_ASSERT(local[0].size() == local[1].size());
    for (size_t i = 0; i < local[0].size(); ++i)
      std::memcpy(local[1][i].data, local[0][i].data, static_cast<size_t>(local[0][i].bytes));
    call.exchange(away[0], away[1]);
  }

  /// Receives every member's piece [begin, begin + counts[self]) of block `self` and reduces.
  /// Member i's piece to send lies at from(i) and has counts[i] elements.
  template <typename From>
  static void reduce_piece(const Call& call, const From& from, const std::vector<int64_t>& counts,
                           void* to, DType dtype, Reduction how, std::vector<std::byte>& scratch) {
    const int64_t bytes = counts[static_cast<size_t>(call.self)] * size_of(dtype);
    scratch.resize(static_cast<size_t>(bytes * call.size()));
    std::vector<Message> sends, receives;
    std::vector<const void*> blocks;
    for (int i = 0; i < call.size(); ++i) {
      if (i == call.self) {
        blocks.push_back(from(i));
        continue;
      }
      std::byte* space = block(scratch.data(), i, bytes);
      blocks.push_back(space);
      sends.push_back({call.at(i), from(i), counts[static_cast<size_t>(i)] * size_of(dtype)});
      receives.push_back({call.at(i), space, bytes});
    }
    call.exchange(sends, receives);
    reduce_blocks(blocks, to, counts[static_cast<size_t>(call.self)], dtype, how);
  }

  static void scatter_sums(const Call& call, void* in, void* out, int64_t count, DType dtype,
                           Reduction how) {
    const int64_t element = size_of(dtype), piece = kPieceBytes / element;
    std::vector<std::byte> scratch;
    // Over `in` itself no block may be overwritten before it was sent.
    std::vector<std::byte> result(static_cast<size_t>(count * element));
    for (int64_t begin = 0; begin < count; begin += piece) {
      const std::vector<int64_t> counts(static_cast<size_t>(call.size()),
                                        std::min(piece, count - begin));
      reduce_piece(
          call, [&](int i) { return block(in, i * count + begin, element); }, counts,
          block(result.data(), begin, element), dtype, how, scratch);
    }
    std::memcpy(out, result.data(), result.size());
  }

  /// One exchange in place of two, of which each member sends more: the same sums in the same order.
  static void gather_and_reduce(const Call& call, void* data, int64_t count, DType dtype,
                                Reduction how) {
    const int64_t bytes = count * size_of(dtype);
    std::vector<std::byte> scratch(static_cast<size_t>(bytes * call.size()));
    std::vector<Message> sends, receives;
    std::vector<const void*> blocks;
    for (int i = 0; i < call.size(); ++i) {
      std::byte* space = block(scratch.data(), i, bytes);
      blocks.push_back(i == call.self ? data : space);
      if (i == call.self) continue;
      sends.push_back({call.at(i), data, bytes});
      receives.push_back({call.at(i), space, bytes});
    }
    call.exchange(sends, receives);
    reduce_blocks(blocks, data, count, dtype, how);
  }

  /// Each member reduces its part of a piece, then gets the other parts.
  static void reduce_and_gather(const Call& call, void* data, int64_t count, DType dtype,
                                Reduction how) {
    const int64_t element = size_of(dtype), n = call.size();
    if (count * element <= kSmallBytes && n <= kFewRanks)
      return gather_and_reduce(call, data, count, dtype, how);
    const int64_t piece = kPieceBytes / element * n;
    std::vector<std::byte> scratch;
    for (int64_t begin = 0; begin < count; begin += piece) {
      const int64_t length = std::min(piece, count - begin);
      std::vector<int64_t> counts, origins;
      for (int64_t i = 0; i < n; ++i) {
        origins.push_back(begin + length * i / n);
        counts.push_back(begin + length * (i + 1) / n - origins.back());
      }
      const auto part = [&](int i) {
        return block(data, origins[static_cast<size_t>(i)], element);
      };
      std::byte* local = part(call.self);
      reduce_piece(call, part, counts, local, dtype, how, scratch);
      std::vector<Message> sends, receives;
      for (int i = 0; i < call.size(); ++i) {
        if (i == call.self) continue;
        sends.push_back({call.at(i), local, counts[static_cast<size_t>(call.self)] * element});
        receives.push_back({call.at(i), part(i), counts[static_cast<size_t>(i)] * element});
      }
      call.exchange(sends, receives);
    }
  }

  /// A binomial tree: in round r, members that have the data send to those 2^r further on.
  static void spread(const Call& call, void* in, void* out, int64_t bytes, int root) {
    const int n = call.size(), place = (call.self - root + n) % n;
    if (place == 0 && in != out) std::memcpy(out, in, static_cast<size_t>(bytes));
    for (int distance = 1; distance < n; distance *= 2) {
      const auto member = [&](int p) { return call.at((p + root) % n); };
      if (place < distance && place + distance < n) {
        const Message message{member(place + distance), out, bytes};
        call.exchange({&message, 1}, {});
      } else if (place >= distance && place < 2 * distance) {
        const Message message{member(place - distance), out, bytes};
        call.exchange({}, {&message, 1});
      }
    }
  }

  std::unique_ptr<Transport> transport_;
  Device& device_;
  std::unique_ptr<Comm> host_;
  int64_t sequence_ = 0, step_ = -1;
  WorkQueue queue_;  // last: its thread ends before what it uses
};

}  // namespace

std::unique_ptr<Comm> host_comm(std::unique_ptr<Transport> transport, Device& device) {
  return std::make_unique<HostComm>(std::move(transport), device);
}

std::string to_string(const Activity& activity) {
  return fmt::format("{} over {} of {} elements (collective {}{})", activity.collective,
                     activity.group, activity.count, activity.sequence,
                     activity.step < 0 ? std::string() : fmt::format(", step {}", activity.step));
}

}  // namespace quintet
