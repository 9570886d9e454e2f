#pragma once
// A lack of memory that says what it was for. Whoever can go on with less should treat it as
// std::bad_alloc: it is neither the device's fault nor a setting's.
//
//   if (p == MAP_FAILED) throw OutOfMemory(fmt::format("cannot get {} MB of memory", size));

#include <atomic>
#include <string>

#include "runtime/base/check.h"

namespace quintet {

class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& message) : Error(ExitCode::kEnvironment, message) {}
};

/// Whether memory that a library is refused ends the `quintet` program (apps/process/allocation.cpp): HDF5
/// and oneDNN use the null pointer they get. A server that runs has them behind it, and what it
/// lacks memory for is a request.
inline std::atomic<bool> refused_memory_ends_program{true};

}  // namespace quintet
