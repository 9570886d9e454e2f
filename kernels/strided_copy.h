#pragma once
// Copies of many runs of bytes in one go: a block of an array out of it, into it, or its parts one
// after the other (what a collective along a dimension takes and gives).
//
//   // columns [8, 12) of a float32 [rows, 32], packed:
//   device.copy({.to = packed, .from = matrix + 8, .bytes = 4 * 4, .counts = {1, rows},
//                .to_strides = {0, 4 * 4}, .from_strides = {0, 32 * 4}});

#include <array>
#include <cstdint>

namespace quintet {

/// Run (i, j) of counts[0] x counts[1] runs of `bytes` goes from `from` + i * from_strides[0] + j *
/// from_strides[1] to the like place after `to`; strides in bytes. Written runs do not overlap each
/// other or what is read.
struct StridedCopy {
  void* to;
  const void* from;
  int64_t bytes;
  std::array<int64_t, 2> counts, to_strides, from_strides;
};

/// On the CPU.
void copy_strided_cpu(const StridedCopy& copy);

}  // namespace quintet
