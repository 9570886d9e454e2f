#pragma once
// What collectives do, compared with plain loops, whatever carries them: threads, NCCL, a fake of
// it. A case is called on every rank of a comm and throws what is wrong.

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "runtime/mesh/collectives/collectives.h"

namespace quintet::testing {

/// How sums are taken: from the left over the group's ranks, bit for bit; or in any order, to rounding.
enum class Sums { from_the_left, rounded };

/// Of a rank; every rank has others, of different sizes.
std::vector<float> numbers(int rank, int64_t count);

void all_reduce_case(Comm& comm, int64_t count, Sums sums);
void blocks_case(Comm& comm, int64_t count,
                 Sums sums);                     // all-gather, reduce-scatter, all-to-all at once
void several_case(Comm& comm, Sums sums);        // several arrays in one
void exchange_case(Comm& comm);                  // uneven, of slices
void broadcast_case(Comm& comm, int64_t count);  // from every root
void bfloat16_case(Comm& comm);                  // sums are taken in float; of 4 ranks
void messages_case(Comm& comm);                  // send, receive, barrier, text
void groups_case(Comm& comm);  // rows and columns of a mesh; of an even number of ranks
/// Those of the above that the number of ranks admits, on arrays of these lengths.
void all_cases(Comm& comm, std::initializer_list<int64_t> counts, Sums sums);

}  // namespace quintet::testing
