#pragma once
// What the CPU's kernels compute with: their numbers differ in the last bits between instruction sets.

#include <string>

namespace quintet::cpu {

/// "AVX3+AMX, oneDNN 2.7.2 with its instruction set 0x1ff": Highway's best here, AMX, and what oneDNN is allowed
/// (ONEDNN_MAX_CPU_ISA).
std::string instruction_set();

}  // namespace quintet::cpu
