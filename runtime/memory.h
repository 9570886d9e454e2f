#pragma once
// Caching host allocator with accounting: freed blocks are kept and handed out again, so that a
// training step reuses the pages of the step before it.
//
//   Buffer b = Memory::host().allocate(bytes);   // 64-byte aligned, uninitialised
//   Memory::host().peak_bytes();

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace quintet {

/// A block of memory; goes back to the allocator when its last owner lets go.
using Buffer = std::shared_ptr<std::byte>;

class Memory {
 public:
  /// The allocator of ordinary memory.
  static Memory& host();

  /// Throws ExitCode::kEnvironment naming bytes wanted and in use when there is no more memory.
  Buffer allocate(int64_t bytes);

  int64_t used_bytes() const;  // held by live buffers
  int64_t peak_bytes() const;  // highest used_bytes since the last reset_peak
  void reset_peak();
  void release_cached();  // gives unused blocks back to the system

  ~Memory();

 private:
  struct Block {
    std::byte* pointer;
    int64_t capacity;
  };
  Block take_cached(int64_t capacity);
  void give_back(Block block);

  mutable std::mutex mutex_;
  std::multimap<int64_t, std::byte*> cached_;  // capacity -> block
  int64_t used_ = 0, peak_ = 0;
};

}  // namespace quintet
