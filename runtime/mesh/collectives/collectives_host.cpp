#include "runtime/mesh/collectives/collectives_host.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/mesh/collectives/host_algorithms.h"
#include "runtime/mesh/collectives/work_queue.h"

namespace quintet {
namespace {

using host::Call;

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

  Pending all_reduce(const Members& group, const CollectiveArrays& arrays, DType dtype,
                     Reduction how) override {
    if (arrays.size() > 1)
      return packed(arrays, dtype, 1, 1, [&](const CollectiveArray& all) {
        return all_reduce(group, {all}, dtype, how);
      });
    const auto& [from, to, count] = arrays[0];
    return start(group, "all_reduce", from, count, to, count, count, dtype,
                 [dtype, how, count = count](const Call& call, void* in, void* out) {
                   if (in != out) std::memcpy(out, in, static_cast<size_t>(count * size_of(dtype)));
                   host::all_reduce(call, out, count, dtype, how);
                 });
  }
  Pending all_gather(const Members& group, const CollectiveArrays& arrays, DType dtype) override {
    if (arrays.size() > 1)
      return packed(arrays, dtype, 1, ranks(group),
                    [&](const CollectiveArray& all) { return all_gather(group, {all}, dtype); });
    const auto& [from, to, count] = arrays[0];
    return start(group, "all_gather", from, count, to, count * ranks(group), count, dtype,
                 [dtype, count = count](const Call& call, void* in, void* out) {
                   host::gather(call, in, out, count * size_of(dtype));
                 });
  }
  Pending reduce_scatter(const Members& group, const CollectiveArrays& arrays, DType dtype,
                         Reduction how) override {
    if (arrays.size() > 1)
      return packed(arrays, dtype, ranks(group), 1, [&](const CollectiveArray& all) {
        return reduce_scatter(group, {all}, dtype, how);
      });
    const auto& [from, to, count] = arrays[0];
    return start(group, "reduce_scatter", from, count * ranks(group), to, count, count, dtype,
                 [dtype, how, count = count](const Call& call, void* in, void* out) {
                   host::reduce_scatter(call, in, out, count, dtype, how);
                 });
  }
  Pending all_to_all(const Members& group, const void* from, void* to, int64_t count,
                     DType dtype) override {
    return start(group, "all_to_all", from, count * ranks(group), to, count * ranks(group), count,
                 dtype, [=](const Call& call, void* in, void* out) {
                   host::swap_blocks(call, in, out, count * size_of(dtype));
                 });
  }
  Pending exchange(const Members& group, const void* from, Slices sends, void* to, Slices receives,
                   int64_t count, DType dtype) override {
    const int64_t in_count = end_of(sends), out_count = end_of(receives);
    return start(group, "all_to_all", from, in_count, to, out_count, count, dtype,
                 [=, sends = std::move(sends), receives = std::move(receives)](
                     const Call& call, void* in, void* out) {
                   host::swap_slices(call, in, sends, out, receives, size_of(dtype));
                 });
  }
  Pending broadcast(const Members& group, void* data, int64_t count, DType dtype,
                    int root) override {
    return start(group, "broadcast", data, group.self == root ? count : 0, data, count, count,
                 dtype, [=](const Call& call, void* in, void* out) {
                   host::broadcast(call, in, out, count * size_of(dtype), root);
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
    start(group, "barrier", nullptr, 0, nullptr, 0, 1, DType::u8,
          [](const Call& call, void*, void*) { host::barrier(call); })
        .wait();
  }

 private:
  using Work = std::function<void(const Call&, void* in, void* out)>;

  static int64_t ranks(const Members& group) { return static_cast<int64_t>(group.ranks.size()); }

  Buffer room(int64_t bytes) const {
    return device_.is_cpu() ? host::uncounted(bytes) : device_.memory().allocate(bytes);
  }

  // Of more bytes a copy costs more than messages of their own.
  static constexpr int64_t kPackedBytes = 8 << 20;

  /// Several arrays behind each other as one: [from_blocks][arrays] -> [to_blocks][arrays], and back into
  /// each.
  template <typename Collective>
  Pending packed(const CollectiveArrays& arrays, DType dtype, int64_t from_blocks,
                 int64_t to_blocks, const Collective& collective) {
    const int64_t element = size_of(dtype), count = total_count(arrays), row = count * element;
    if (row * std::max(from_blocks, to_blocks) > kPackedBytes) {
      auto each = std::make_shared<std::vector<Pending>>();
      for (const CollectiveArray& array : arrays) each->push_back(collective(array));
      return Pending([each] {
        for (Pending& pending : *each) pending.wait();
      });
    }
    const Buffer in = room(from_blocks * row);
    const Buffer out = from_blocks == to_blocks ? in : room(to_blocks * row);
    // Of [blocks][count] of an array, at `array`, where it lies in [blocks][arrays].
    const auto copies = [=](int64_t blocks, int64_t bytes, void* array, std::byte* all) {
      return StridedCopy{.to = all,
                         .from = array,
                         .bytes = bytes,
                         .counts = {1, blocks},
                         .to_strides = {0, row},
                         .from_strides = {0, bytes}};
    };
    int64_t at = 0;
    for (const CollectiveArray& array : arrays) {
      const int64_t bytes = array.count * element;
      device_.copy(copies(from_blocks, bytes, const_cast<void*>(array.from), in.get() + at));
      at += bytes;
    }
    auto pending = std::make_shared<Pending>(collective({in.get(), out.get(), count}));
    return Pending([=, this, sent = in] {  // both stay until the others have them
      pending->wait();
      int64_t begin = 0;
      for (const CollectiveArray& array : arrays) {
        const int64_t bytes = array.count * element;
        const StridedCopy there = copies(to_blocks, bytes, array.to, out.get() + begin);
        device_.copy({.to = array.to,
                      .from = there.to,
                      .bytes = bytes,
                      .counts = there.counts,
                      .to_strides = there.from_strides,
                      .from_strides = there.to_strides});
        begin += bytes;
      }
    });
  }

  /// Puts `work` into the queue. A GPU's `in` is copied to ordinary memory now, `out` from it by
  /// wait().
  Pending start(const Members& group, const char* name, const void* in, int64_t in_count, void* out,
                int64_t out_count, int64_t count, DType dtype, Work work) {
    const Call call{transport_.get(),
                    {name, group.name, count, sequence_++, step_, group.ranks},
                    group.self,
                    &traffic()};
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

  /// Elements up to the end of the last slice.
  static int64_t end_of(const Slices& slices) {
    int64_t end = 0;
    for (const Slice& slice : slices) end = std::max(end, slice.first + slice.count);
    return end;
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
