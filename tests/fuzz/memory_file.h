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
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
    QT_ASSERT(fd_ >= 0 && ::write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace quintet::testing
