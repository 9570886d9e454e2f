#pragma once
// Devices by the name users give them (--device).

#include <memory>
#include <string>

#include "kernels/device.h"

namespace quintet {

/// "cpu"; "cuda" or "cuda:1"; "auto": a GPU if one answers, else the CPU; "emulated" or
/// "emulated:80": a GPU emulated on the CPU, for tests. Makes it the current device for the rest of the process.
/// Throws a usage error for other names, Error(kEnvironment) saying what is missing when a GPU was
/// asked for and there is none, and when the build has no CUDA.
Device& use_device(const std::string& name);

/// What its numbers depend on beside the program, for people too: "CPU with AVX3_ZEN4, oneDNN 2.7.2 with
/// AVX512_CORE_BF16"; "NVIDIA H200, sm_90, 139.8 GiB, CUDA driver 12.4, runtime 13.0".
std::string arithmetic_of(const Device& device);

}  // namespace quintet
