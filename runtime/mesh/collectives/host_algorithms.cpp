#include "runtime/mesh/collectives/host_algorithms.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/mesh/collectives/reduce.h"

namespace quintet::host {
namespace {

// A reduction works through its array in pieces of so many bytes a rank: what is received and not
// yet added stays small.
constexpr int64_t kPieceBytes = 4 << 20;
// So few ranks gather in one round.
constexpr int kFewRanks = 8;
// All-reduces of so few bytes take as long as their messages wait, not as their bytes travel: of
// an array among few ranks; of all ranks' arrays among many.
constexpr int64_t kSmallBytes = 16 << 10, kSmallBytesTogether = 1 << 20;

std::byte* block(void* data, int64_t index, int64_t bytes) {
  return static_cast<std::byte*>(data) + index * bytes;
}

/// Adds the bytes of the parts [first, first + count), round the end, as messages with `rank`.
void add_parts(std::vector<Message>& messages, int rank, void* data,
               const std::vector<int64_t>& ends, int first, int count) {
  const int n = static_cast<int>(ends.size()), last = first % n + count;
  const auto begin_of = [&](int part) {
    return part == 0 ? 0 : ends[static_cast<size_t>(part - 1)];
  };
  const auto add = [&](int from, int to) {
    const int64_t bytes = begin_of(to) - begin_of(from);
    if (bytes > 0) messages.push_back({rank, block(data, begin_of(from), 1), bytes});
  };
  add(first % n, std::min(last, n));
  if (last > n) add(0, last - n);
}

/// data: the parts of all members one after another, of which each has its own; ends: where they end,
/// in bytes. Afterwards all have all.
void gather_parts(const Call& call, void* data, const std::vector<int64_t>& ends) {
  const int n = call.size();
  std::vector<Message> sends, receives;
  if (n <= kFewRanks) {
    for (int i = 0; i < n; ++i) {
      if (i == call.self) continue;
      add_parts(sends, call.at(i), data, ends, call.self, 1);
      add_parts(receives, call.at(i), data, ends, i, 1);
    }
    return call.exchange(sends, receives);
  }
  for (int distance = 1; distance < n; distance *= 2) {
    const int parts = std::min(distance, n - distance), next = (call.self + distance) % n;
    sends.clear();
    receives.clear();
    add_parts(sends, call.at((call.self + n - distance) % n), data, ends, call.self, parts);
    add_parts(receives, call.at(next), data, ends, next, parts);
    call.exchange(sends, receives);
  }
}

/// Receives every member's piece [begin, begin + counts[self]) of block `self` and reduces.
/// Member i's piece to send lies at from(i) and has counts[i] elements.
template <typename From>
void reduce_piece(const Call& call, const From& from, const std::vector<int64_t>& counts, void* to,
                  DType dtype, Reduction how) {
  const int64_t bytes = counts[static_cast<size_t>(call.self)] * size_of(dtype);
  const Buffer scratch = uncounted(bytes * call.size());
  std::vector<Message> sends, receives;
  std::vector<const void*> blocks;
  for (int i = 0; i < call.size(); ++i) {
    if (i == call.self) {
      blocks.push_back(from(i));
      continue;
    }
    std::byte* space = block(scratch.get(), i, bytes);
    blocks.push_back(space);
    sends.push_back({call.at(i), from(i), counts[static_cast<size_t>(i)] * size_of(dtype)});
    receives.push_back({call.at(i), space, bytes});
  }
  call.exchange(sends, receives);
  reduce_blocks(blocks, to, counts[static_cast<size_t>(call.self)], dtype, how);
}

/// One gather in place of two exchanges, of which each member sends more: the same sums in the same
/// order.
void gather_and_reduce(const Call& call, void* data, int64_t count, DType dtype, Reduction how) {
  const int64_t bytes = count * size_of(dtype);
  std::vector<std::byte> all(static_cast<size_t>(bytes * call.size()));
  gather(call, data, all.data(), bytes);
  std::vector<const void*> blocks;
  for (int i = 0; i < call.size(); ++i) blocks.push_back(block(all.data(), i, bytes));
  reduce_blocks(blocks, data, count, dtype, how);
}

bool is_small(int64_t bytes, int64_t ranks) {
  return ranks <= kFewRanks ? bytes <= kSmallBytes : bytes * ranks <= kSmallBytesTogether;
}

}  // namespace

Buffer uncounted(int64_t bytes) {
  const ContextMember<&ExecutionContext::meter> no_meter(static_cast<MemoryMeter*>(nullptr));
  const MemoryScope scope(MemoryKind::kScratch);
  return Memory::host().allocate(bytes);
}

void Call::exchange(std::span<const Message> sends, std::span<const Message> receives) const {
  traffic->add_messages(static_cast<int64_t>(sends.size()));
  transport->exchange(sends, receives, activity);
}

void gather(const Call& call, const void* in, void* out, int64_t bytes) {
  void* const own = block(out, call.self, bytes);
  if (in != own) std::memcpy(own, in, static_cast<size_t>(bytes));
  std::vector<int64_t> ends;
  for (int i = 1; i <= call.size(); ++i) ends.push_back(i * bytes);
  gather_parts(call, out, ends);
}

void barrier(const Call& call) {
  std::vector<uint8_t> marks(static_cast<size_t>(call.size()));
  gather(call, &marks[static_cast<size_t>(call.self)], marks.data(), 1);
}

void swap_blocks(const Call& call, void* in, void* out, int64_t bytes) {
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

void swap_slices(const Call& call, void* in, const Slices& sends, void* out, const Slices& receives,
                 int64_t element) {
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

void reduce_scatter(const Call& call, void* in, void* out, int64_t count, DType dtype,
                    Reduction how) {
  const int64_t element = size_of(dtype), piece = kPieceBytes / element;
  for (int64_t begin = 0; begin < count; begin += piece) {
    const std::vector<int64_t> counts(static_cast<size_t>(call.size()),
                                      std::min(piece, count - begin));
    reduce_piece(
        call, [&](int i) { return block(in, i * count + begin, element); }, counts,
        block(out, begin, element), dtype, how);
  }
}

void all_reduce(const Call& call, void* data, int64_t count, DType dtype, Reduction how) {
  const int64_t element = size_of(dtype), n = call.size();
  if (is_small(count * element, n)) return gather_and_reduce(call, data, count, dtype, how);
  const int64_t piece = kPieceBytes / element * n;
  for (int64_t begin = 0; begin < count; begin += piece) {  // each member's part, then all parts
    const int64_t length = std::min(piece, count - begin);
    std::vector<int64_t> counts, ends;
    for (int64_t i = 0; i < n; ++i) {
      ends.push_back(length * (i + 1) / n * element);
      counts.push_back(length * (i + 1) / n - length * i / n);
    }
    std::byte* const first = block(data, begin, element);
    const auto part = [&](int i) { return block(first, length * i / n, element); };
    reduce_piece(call, part, counts, part(call.self), dtype, how);
    gather_parts(call, first, ends);
  }
}

void broadcast(const Call& call, const void* in, void* out, int64_t bytes, int root) {
  const int n = call.size(), place = (call.self - root + n) % n;
  if (place == 0 && in != out) std::memcpy(out, in, static_cast<size_t>(bytes));
  for (int distance = 1; distance < n; distance *= 2) {  // who has it sends it so much further on
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

}  // namespace quintet::host
