#pragma once
// Device memory that NCCL can register: NVLink SHARP, InfiniBand and copies between GPUs then read and write
// tensors where they lie. Collectives that are recorded (CUDA graphs) register theirs by themselves
// (NCCL_GRAPH_REGISTER); eager ones go through NCCL's own buffers.

#include "runtime/base/memory/memory.h"

namespace quintet {

/// From now on blocks of 2 MiB and more of `memory`, a GPU's, come from ncclMemAlloc, or from where they came
/// before if that has none; smaller ones stay, since its blocks are multiples of 2 MiB. NCCL before 2.19 has no
/// such function: nothing changes. Throws kEnvironment where NCCL cannot be loaded.
void allocate_by_nccl(Memory& memory);

}  // namespace quintet
