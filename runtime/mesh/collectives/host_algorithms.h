#pragma once
// The collectives of collectives_host.h as messages: which rank sends what to whom, and in which
// order what has come is added. MPI's own non-blocking ones are not used: Open MPI's all-gather
// sends every block to every rank, and none of them notices a rank that is in another collective.
//
// A gather among many ranks goes in rounds (Bruck et al., 1997): in round r a member gets from the
// one 2^r further on all that it has, so that n members send ceil(log2 n) times and not n - 1.

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/memory/memory.h"
#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mesh/collectives/transport.h"

namespace quintet::host {

/// One collective as its group's member `self` runs it.
struct Call {
  Transport* transport;
  Activity activity;
  int self;
  Traffic* traffic;  // counts the messages
  int size() const { return static_cast<int>(activity.ranks.size()); }
  int at(int member) const { return activity.ranks[static_cast<size_t>(member)]; }
  void exchange(std::span<const Message> sends, std::span<const Message> receives) const;
};

/// Memory for messages, which the allocator keeps for the next ones. It is none of the step's memory:
/// no meter counts it.
Buffer uncounted(int64_t bytes);

/// in: [bytes] of each member -> out: [size][bytes]. `in` may lie at its place inside `out`.
void gather(const Call& call, const void* in, void* out, int64_t bytes);
/// Returns when all members are in it.
void barrier(const Call& call);
/// in: [size][bytes], block i for member i -> out: [size][bytes], block i from member i.
void swap_blocks(const Call& call, void* in, void* out, int64_t bytes);
/// Slices of `in` to their members, into slices of `out`; elements of so many bytes.
void swap_slices(const Call& call, void* in, const Slices& sends, void* out, const Slices& receives,
                 int64_t element);
/// in: [size][count] -> out: [count], block `self` reduced in the order of the members.
void reduce_scatter(const Call& call, void* in, void* out, int64_t count, DType dtype,
                    Reduction how);
/// data: [count], reduced in place in the order of the members.
void all_reduce(const Call& call, void* data, int64_t count, DType dtype, Reduction how);
/// in: [bytes] of member `root` -> out: [bytes] of all, by a binomial tree.
void broadcast(const Call& call, const void* in, void* out, int64_t bytes, int root);

}  // namespace quintet::host
