#pragma once
// Places for the blocks of work that is done again: what the work took the first time, and when it gave it back,
// says how small one block can be that has room for all of it. A pool that knows nothing of what comes keeps
// blocks of sizes that do not return.
//
//   MemoryTrace trace(memory);
//   work();
//   const MemoryPlacement placement = place_blocks(trace.close());
//   const MemoryPlacement::Use use(placement);
//   MemoryArena arena(memory);   // of one block of placement.bytes
//   work();

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/memory/memory.h"

namespace quintet {

/// Events are blocks taken and blocks given back, numbered from 0. `end`: of its return; of a block that is still
/// held at the end of the work, the number of events.
struct BlockLife {
  int64_t bytes = 0, begin = 0, end = 0;
  bool operator==(const BlockLife&) const = default;
};

struct MemoryPlacement {
  struct Place {
    int64_t bytes = 0, offset = 0;
  };
  std::vector<Place> places;  // in the order in which the work takes them
  int64_t bytes = 0;          // of all: the highest end

  /// Arenas that this thread opens during its lifetime have one block for all of these. Where the work takes
  /// something else, or takes a place before it is given back, the arena has further blocks.
  class Use {
   public:
    explicit Use(const MemoryPlacement& placement);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const MemoryPlacement* before_;
  };
  /// This thread's; null: none.
  static const MemoryPlacement* current();
};

/// Offsets such that blocks which live at the same time do not overlap: those of the moment when most is held lie
/// side by side, in the order in which they are taken; of the others the largest come first, each into the
/// smallest gap that it fits into.
MemoryPlacement place_blocks(std::span<const BlockLife> blocks);

/// What this thread takes of a memory until close().
class MemoryTrace {
 public:
  explicit MemoryTrace(Memory& memory);
  ~MemoryTrace();
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;

  /// In the order in which they were taken; sizes are rounded as an arena places them.
  std::vector<BlockLife> close();

  /// What is taken during its lifetime, to find out how to do the work, is not part of the work.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    MemoryTrace* before_;
  };

  /// A block of a trace; tells it that the block goes back.
  class Block {
   public:
    Block() = default;
    void end() const;

   private:
    friend class MemoryTrace;
    struct Lives;
    std::weak_ptr<Lives> lives_;
    size_t index_ = 0;
  };
  /// Of this thread's trace, if it has one of this memory.
  static Block begin(const Memory& memory, int64_t bytes);

 private:
  const Memory& memory_;
  std::shared_ptr<Block::Lives> lives_;
  MemoryTrace* before_;
};

}  // namespace quintet
