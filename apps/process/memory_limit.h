#pragma once
// Limits of a process's memory: ulimit -v (address space) and -d (data). What a run needs is
// compared with them before it begins.
//
//   prepare_memory();                                            // first in main
//   require_memory({.tensors = ..., .saving = ...}, "training");  // exit 4 with the need, if it is too much

#include <cstdint>
#include <string>

namespace quintet {

/// Makes the process fit for a limit, where there is one: threads share an arena of malloc instead
/// of 64 MiB of addresses each, and the main thread has its stack from the start.
void prepare_memory();

/// An exception that leaves a thread, or the making of a static object, ends the process with that exception's
/// exit code, memory that is refused with 4. Allocates nothing.
void report_uncaught_exceptions();

/// Bytes that a piece of work takes at most, beyond what the process has now.
struct MemoryNeed {
  int64_t tensors = 0;    // parameters, optimizer state, gradients, activations
  int64_t saving = 0;     // the copy that is written while training goes on
  int64_t threads = 0;    // stacks
  int64_t libraries = 0;  // oneDNN, HDF5, buffers
  int64_t bytes() const { return tensors + saving + threads + libraries; }
};

/// Whether the process has a limit of its own.
bool memory_is_limited();

/// Bytes that these limits leave to it; without limits the largest number.
int64_t memory_left();

/// Throws kEnvironment naming the need, its parts, the limit and what to do unless `need` fits.
void require_memory(const MemoryNeed& need, const std::string& work);

/// Bytes of the process that are in memory.
int64_t resident_bytes();

/// Bytes of `count` stacks of threads.
int64_t bytes_of_stacks(int64_t count);

}  // namespace quintet
