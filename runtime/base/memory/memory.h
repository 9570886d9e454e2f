#pragma once
// Caching allocator with accounting: freed blocks are kept and handed out again, so that a training
// step reuses the memory of the step before it. One per device; the host's hands out ordinary memory.
// On a GPU all work of a device is in one stream, so a block may be handed out again while the work
// that used it is still queued.
//
//   Buffer b = Memory::host().allocate(bytes);   // aligned, uninitialised
//   Memory::host().peak_bytes();

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/execution_context.h"

namespace quintet {

/// A block of memory; goes back to the allocator when its last owner lets go.
using Buffer = std::shared_ptr<std::byte>;

/// From one of several blocks of `bytes` to the next, where they lie side by side: the alignment of each is a GPU's.
constexpr int64_t side_by_side_stride(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// What a block holds, for the accounting that an out-of-memory error prints.
enum class MemoryKind { kActivations, kParameters, kGradients, kOptimizer, kScratch };
inline constexpr int kMemoryKinds = 5;

/// Blocks allocated by this thread during its lifetime count as `kind`.
class MemoryScope : ContextScope {
 public:
  explicit MemoryScope(MemoryKind kind);
};

/// Where an allocator's blocks come from.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// nullptr when there is no more.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* pointer, int64_t bytes) = 0;
  /// "ordinary memory", "cuda:0"
  virtual std::string name() const = 0;
  static MemorySource& host();
};

class Memory {
 public:
  /// The allocator of ordinary memory.
  static Memory& host();
  explicit Memory(MemorySource& source = MemorySource::host()) : source_(&source) {}

  /// Aligned to 64 bytes (256 on a GPU). When there is no more memory, gives cached blocks back and
  /// tries again, but not while an arena is open: a GPU that records can free nothing. Then throws
  /// OutOfMemory naming bytes wanted and in use, by kind.
  Buffer allocate(int64_t bytes);
  /// `count` blocks at distances of side_by_side_stride(bytes). Their memory comes back when nobody holds any of them.
  std::vector<Buffer> allocate_side_by_side(int64_t bytes, size_t count);

  /// Further blocks come from what `make` makes of the source so far, which also takes that one's blocks back.
  void change_source(const std::function<MemorySource*(MemorySource& before)>& make);

  int64_t used_bytes() const;  // held by live buffers
  int64_t peak_bytes() const;  // highest used_bytes since the last reset_peak
  void reset_peak();
  void release_cached();  // gives unused blocks back to the system
  /// "parameters 1.2 GiB, gradients ..., 3.4 GiB in all"
  std::string accounting() const;

  ~Memory();

  struct Block {
    std::byte* pointer = nullptr;
    int64_t capacity = 0;
  };

 private:
  friend class MemoryArena;
  using FreeBlocks = std::multimap<int64_t, std::byte*>;  // capacity -> block
  struct ArenaBlocks;
  std::pair<std::shared_ptr<ArenaBlocks>, bool> open_arena() const;
  Block take(FreeBlocks& from, int64_t capacity);
  void give_back(Block block, MemoryKind kind, const std::weak_ptr<ArenaBlocks>& arena);

  MemorySource* source_;
  mutable std::mutex mutex_;
  FreeBlocks cached_;
  std::shared_ptr<ArenaBlocks> arena_;  // the open one
  int64_t used_ = 0, peak_ = 0;
  std::array<int64_t, kMemoryKinds> by_kind_{};
};

/// Memory for work that is recorded and repeated. Until close(), the thread that opened it is handed out blocks
/// from the arena, again and again as they come back; nobody else is as long as it lives: what was recorded may
/// be repeated. All of them count as used. Blocks still held at its end come back later, as any.
class MemoryArena {
 public:
  explicit MemoryArena(Memory& memory);
  ~MemoryArena();
  MemoryArena(const MemoryArena&) = delete;
  MemoryArena& operator=(const MemoryArena&) = delete;

  void close();
  std::vector<Memory::Block> blocks() const;

 private:
  Memory& memory_;
  std::shared_ptr<Memory::ArenaBlocks> blocks_;
};

}  // namespace quintet
