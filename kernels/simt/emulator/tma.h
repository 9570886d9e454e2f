#pragma once
// The TMA engine as the emulator does it; see kernels/simt/tma.cuh.

#include <array>
#include <cstdint>

namespace quintet::emulated::simt {
struct TensorMap;  // kernels/simt/tensor_map.h
}

namespace quintet::emulated::simt::emulator {

using Coordinates = std::array<int, 5>;

/// ranks: 0, or the blocks of the cluster that receive the box.
void tensor_load(void* dst, const TensorMap& map, uint64_t* bar, const Coordinates& at, int rank,
                 uint16_t ranks);
void tensor_store(const TensorMap& map, const void* src, const Coordinates& at, int rank, bool add);
void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* bar);
void bulk_store(void* dst, const void* src, uint32_t bytes, bool add);
void store_commit();
/// All but the newest `groups` groups of this thread have read, or have been written.
void store_wait(int groups, bool read_only);

}  // namespace quintet::emulated::simt::emulator
