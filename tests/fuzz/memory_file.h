#pragma once
// A file without a disk, for readers that take a path.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "runtime/base/check.h"

namespace quintet::testing {

/// Holds the given bytes for as long as it lives.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("input", MFD_CLOEXEC)) { QT_ASSERT(fd_ >= 0); }
  MemoryFile(const uint8_t* data, size_t size) : MemoryFile() { set(data, size); }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  /// Replaces what it holds.
  void set(const uint8_t* data, size_t size) {
    QT_ASSERT(::ftruncate(fd_, 0) == 0 &&
              ::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace quintet::testing
