#pragma once
// Working memory of a kernel that outlives the call: fresh pages cost more than the arithmetic of
// small chunks (about 0.1 ms a MiB). Each slot of each thread grows to the largest size asked for.
//
//   float* products = scratch(Scratch::kProducts, rows * depth);   // uninitialised, 64-byte aligned
//
// A slot's contents are lost when the same thread asks for it again; kernels never call each other
// while they use one.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/memory/huge_pages.h"

namespace quintet::cpu {

enum class Scratch : size_t { kProducts, kGateProducts, kGrads, kGateGrads, kSums, kHeads, kCount };

inline float* scratch(Scratch slot, int64_t elements) {
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  struct Block {
    std::unique_ptr<float, Free> memory;
    int64_t elements = 0;
  };
  thread_local std::array<Block, static_cast<size_t>(Scratch::kCount)> blocks;
  Block& block = blocks[static_cast<size_t>(slot)];
  if (block.elements < elements || block.memory == nullptr) {
    const int64_t unit = elements * 4 < kHugePage ? 64 : kHugePage;
    const int64_t bytes = (elements * 4 + unit) / unit * unit;
    block.memory.reset();
    block.memory.reset(static_cast<float*>(allocate_on_huge_pages(bytes)));
    block.elements = block.memory == nullptr ? 0 : bytes / 4;
    QT_CHECK_AS(ExitCode::kEnvironment, block.memory != nullptr,
                "no memory for {} bytes of working space", bytes);
  }
  return block.memory.get();
}

}  // namespace quintet::cpu
