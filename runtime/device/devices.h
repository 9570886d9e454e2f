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

}  // namespace quintet
