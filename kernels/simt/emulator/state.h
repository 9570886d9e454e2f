#pragma once
// What a thread has under way. Internal to kernels/simt.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/simt/emulator/engine.h"

namespace quintet::emulated::simt::emulator {

struct Copy {
  void* dst;
  const void* src;
  size_t bytes;
  bool valid;
};
/// cp.async of a thread.
struct Copies {
  std::vector<Copy> open;                // not committed yet
  std::deque<std::vector<Copy>> groups;  // oldest first
};

}  // namespace quintet::emulated::simt::emulator
