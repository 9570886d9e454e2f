#pragma once
// Memory that each matrix product of cuBLASLt may use while it runs: the most that its algorithms ask for on Hopper.

#include <cstdint>

namespace quintet {

inline constexpr int64_t kProductWorkspace = 64 << 20;  // bytes

}  // namespace quintet
