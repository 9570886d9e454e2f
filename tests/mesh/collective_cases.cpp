#include "tests/mesh/collective_cases.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/mesh/mesh.h"

namespace quintet::testing {
namespace {

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, bfloat16>) return DType::bf16;
  return DType::i64;
}

/// Numbers in the memory of a comm's device.
template <typename T>
class OnDevice {
 public:
  OnDevice(Comm& comm, const std::vector<T>& values)
      : device_(comm.device()), count_(values.size()), memory_(device_.memory().allocate(bytes())) {
    device_.copy_in(memory_.get(), values.data(), bytes());
  }
  /// Zeros.
  OnDevice(Comm& comm, int64_t count)
      : OnDevice(comm, std::vector<T>(static_cast<size_t>(count))) {}
  T* data() const { return static_cast<T*>(static_cast<void*>(memory_.get())); }
  int64_t count() const { return static_cast<int64_t>(count_); }
  DType dtype() const { return dtype_of<T>(); }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    device_.copy_out(values.data(), memory_.get(), bytes());
    return values;
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(T)); }
  Device& device_;
  size_t count_;
  Buffer memory_;
};

std::vector<int> all(const Comm& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The sum from the left over `members`, as the contract says.
std::vector<float> sum_of(const std::vector<int>& members, int64_t count) {
  std::vector<float> total = numbers(members[0], count);
  for (size_t m = 1; m < members.size(); ++m) {
    const auto x = numbers(members[m], count);
    for (size_t i = 0; i < x.size(); ++i) total[i] += x[i];
  }
  return total;
}

/// `want`: from the left. What rounding may differ by follows from the sizes of numbers().
void expect_sums(const char* what, std::span<const float> found, std::span<const float> want,
                 Sums sums) {
  for (size_t i = 0; i < want.size(); ++i)
    QT_CHECK_AS(ExitCode::kBug,
                sums == Sums::from_the_left ? std::memcmp(&found[i], &want[i], sizeof(float)) == 0
                                            : std::abs(found[i] - want[i]) <= 1e-4F,
                "{}: element {} is {}, expected {}", what, i, found[i], want[i]);
}

template <typename T>
void expect_equal(const char* what, const std::vector<T>& found, const std::vector<T>& want) {
  QT_CHECK_AS(ExitCode::kBug, found.size() == want.size(), "{}: {} elements, expected {}", what,
              found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    QT_CHECK_AS(ExitCode::kBug, found[i] == want[i], "{}: element {} is {}, expected {}", what, i,
                static_cast<double>(found[i]), static_cast<double>(want[i]));
}

std::vector<float> slice(const std::vector<float>& from, int block, int64_t count) {
  const auto begin = from.begin() + block * count;
  return {begin, begin + count};
}

}  // namespace

std::vector<float> numbers(int rank, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<float>(i) * 0.7f + static_cast<float>(rank)) *
           std::pow(10.0f, static_cast<float>(rank % 3));
  return x;
}

void all_reduce_case(Comm& comm, int64_t count, Sums sums) {
  const OnDevice<float> x(comm, numbers(comm.rank(), count));
  comm.world().all_reduce(x.data(), count, DType::f32).wait();
  expect_sums("all_reduce", x.host(), sum_of(all(comm), count), sums);
  const OnDevice<float> largest(comm, numbers(comm.rank(), count));
  comm.world().all_reduce(largest.data(), count, DType::f32, Reduction::max).wait();
  std::vector<float> want = numbers(0, count);
  for (int r = 1; r < comm.size(); ++r) {
    const auto theirs = numbers(r, count);
    for (size_t i = 0; i < want.size(); ++i) want[i] = std::max(want[i], theirs[i]);
  }
  expect_equal("all_reduce of maxima", largest.host(), want);
}

void blocks_case(Comm& comm, int64_t count, Sums sums) {
  const Group world = comm.world();
  const int self = comm.rank(), ranks = comm.size();
  const OnDevice<float> own(comm, numbers(self, count));
  const OnDevice<float> everything(comm, numbers(self, ranks * count));
  const OnDevice<float> gathered(comm, ranks * count), scattered(comm, count),
      swapped(comm, ranks * count);
  Pending gather = world.all_gather(own.data(), gathered.data(), count, DType::f32);
  Pending scatter = world.reduce_scatter(everything.data(), scattered.data(), count, DType::f32);
  Pending swap = world.all_to_all(everything.data(), swapped.data(), count, DType::f32);
  swap.wait();
  scatter.wait();
  gather.wait();
  expect_sums("reduce_scatter", scattered.host(),
              slice(sum_of(all(comm), ranks * count), self, count), sums);
  const std::vector<float> all_gathered = gathered.host(), all_swapped = swapped.host();
  for (int r = 0; r < ranks; ++r) {
    expect_equal("all_gather", slice(all_gathered, r, count), numbers(r, count));
    expect_equal("all_to_all", slice(all_swapped, r, count),
                 slice(numbers(r, ranks * count), self, count));
  }
}

// Member r has two slices for member s, of (r + 2 s) % 3 and of s elements, in this order; they arrive
// the last sender's first.
void several_case(Comm& comm, Sums sums) {
  const Group world = comm.world();
  const auto n = static_cast<int64_t>(comm.size());
  const std::vector<int64_t> counts = {3, 0, 500};
  std::vector<OnDevice<float>> own, sum, every, part;
  CollectiveArrays sums_of, gathers, scatters;
  for (const int64_t count : counts) {
    own.emplace_back(comm, numbers(comm.rank(), count));
    sum.emplace_back(comm, numbers(comm.rank(), count * n));
    every.emplace_back(comm, count * n);
    part.emplace_back(comm, count);
    sums_of.push_back({sum.back().data(), sum.back().data(), count * n});
    gathers.push_back({own.back().data(), every.back().data(), count});
    scatters.push_back({every.back().data(), part.back().data(), count});
  }
  Pending gather = world.all_gather(gathers, DType::f32);
  Pending reduce = world.all_reduce(sums_of, DType::f32);
  gather.wait();
  reduce.wait();
  world.reduce_scatter(scatters, DType::f32).wait();
  for (size_t i = 0; i < counts.size(); ++i) {
    std::vector<float> blocks, times;
    for (int rank = 0; rank < comm.size(); ++rank) {
      const auto block = numbers(rank, counts[i]);
      blocks.insert(blocks.end(), block.begin(), block.end());
    }
    for (const float x : numbers(comm.rank(), counts[i])) {
      float total = x;
      for (int64_t rank = 1; rank < n; ++rank) total += x;
      times.push_back(total);
    }
    expect_equal("all_gather of several", every[i].host(), blocks);
    expect_sums("all_reduce of several", sum[i].host(), sum_of(all(comm), counts[i] * n), sums);
    expect_sums("reduce_scatter of several", part[i].host(), times, sums);
  }
}

void exchange_case(Comm& comm) {
  const int self = comm.rank(), ranks = comm.size();
  const auto lengths = [](int from, int to) {
    return std::array<int64_t, 2>{(from + 2 * to) % 3, to};
  };
  Slices sends, receives;
  int64_t sent = 0, received = 0;
  for (const size_t part : {0u, 1u})
    for (int to = 0; to < ranks; ++to) {
      sends.push_back({to, sent, lengths(self, to)[part]});
      sent += sends.back().count;
    }
  for (int from = ranks - 1; from >= 0; --from)
    for (const size_t part : {0u, 1u}) {
      receives.push_back({from, received, lengths(from, self)[part]});
      received += receives.back().count;
    }
  std::vector<float> have(static_cast<size_t>(sent)), want;
  for (const Slice& slice : sends)
    for (int64_t i = 0; i < slice.count; ++i)
      have[static_cast<size_t>(slice.first + i)] =
          static_cast<float>(1000 * self + 100 * slice.member + i);
  for (const Slice& slice : receives)
    for (int64_t i = 0; i < slice.count; ++i)
      want.push_back(static_cast<float>(1000 * slice.member + 100 * self + i));
  const OnDevice<float> from(comm, have), to(comm, received);
  comm.world().exchange(from.data(), sends, to.data(), receives, 100, DType::f32).wait();
  expect_equal("exchange", to.host(), want);
}

void broadcast_case(Comm& comm, int64_t count) {
  for (int root = 0; root < comm.size(); ++root) {
    const OnDevice<float> x(comm, numbers(comm.rank(), count));
    comm.world().broadcast(x.data(), count, DType::f32, root).wait();
    expect_equal("broadcast", x.host(), numbers(root, count));
  }
}

void bfloat16_case(Comm& comm) {
  const OnDevice<bfloat16> x(
      comm, std::vector<bfloat16>(100, bfloat16(comm.rank() == 0 ? 256.0f : 0.75f)));
  comm.world().all_reduce(x.data(), 100, DType::bf16).wait();
  const std::vector<bfloat16> found = x.host();
  for (const bfloat16 y : found)  // each 0.75 alone is lost
    QT_CHECK_AS(ExitCode::kBug, static_cast<float>(y) == 258.0f, "bfloat16: {}, expected 258",
                static_cast<float>(y));
}

void messages_case(Comm& comm) {
  const Group world = comm.world();
  const int last = comm.size() - 1;
  const OnDevice<int64_t> x(comm, std::vector<int64_t>{comm.rank()});
  if (comm.rank() == last) world.send(x.data(), 1, DType::i64, 0).wait();
  if (comm.rank() == 0) {
    world.receive(x.data(), 1, DType::i64, last).wait();
    expect_equal("receive", x.host(), {last});
  }
  world.barrier();
  const auto texts =
      gather_text(world.on_host(), std::string(static_cast<size_t>(comm.rank()), 'x'));
  for (size_t i = 0; i < texts.size(); ++i)
    QT_CHECK_AS(ExitCode::kBug, texts[i] == std::string(i, 'x'), "text of rank {}: '{}'", i,
                texts[i]);
}

void groups_case(Comm& comm) {
  const Mesh mesh({{"data", comm.size() / 2}, {"model", 2}}, &comm);
  const int self = comm.rank();
  const OnDevice<float> sum(comm, numbers(self, 100));
  mesh.group({"model"}).all_reduce(sum.data(), 100, DType::f32).wait();
  expect_sums("all_reduce over model", sum.host(), sum_of({self / 2 * 2, self / 2 * 2 + 1}, 100),
              Sums::from_the_left);  // of two the order is the same
  const Group& data = mesh.group({"data"});
  const OnDevice<float> own(comm, numbers(self, 100)), gathered(comm, 100 * data.size());
  data.all_gather(own.data(), gathered.data(), 100, DType::f32).wait();
  for (int i = 0; i < data.size(); ++i)
    expect_equal("all_gather over data", slice(gathered.host(), i, 100),
                 numbers(data.ranks()[static_cast<size_t>(i)], 100));
}

void all_cases(Comm& comm, std::initializer_list<int64_t> counts, Sums sums) {
  for (const int64_t count : counts) {
    all_reduce_case(comm, count, sums);
    blocks_case(comm, count, sums);
    broadcast_case(comm, count);
  }
  messages_case(comm);
  several_case(comm, sums);
  exchange_case(comm);
  if (comm.size() % 2 == 0) groups_case(comm);
  if (comm.size() == 4) bfloat16_case(comm);
}

}  // namespace quintet::testing
