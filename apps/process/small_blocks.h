#pragma once
// Small blocks of malloc's that a thread has deleted, held for its next `new`s of that size. The C library holds seven of
// a size and passes the others through its lists of free chunks, while encoding one text makes and deletes hundreds of
// objects of a few sizes: an eighth of the time of SentencePiece's data pipeline.
//
//   constinit thread_local SmallBlocks small_blocks;
//   void* block = small_blocks.take(bytes);          // null: none is held
//   if (!small_blocks.keep(block)) std::free(block);
//
// A thread holds at most kSizes * kMost blocks, 255 KiB; its end frees them. Whatever is held, each block is one of malloc's,
// so that blocks may be deleted by another thread than the one that made them, and be given to `free`.

#include <malloc.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace quintet {

class SmallBlocks {
 public:
  static constexpr size_t kMost = 128;  // of a size

  /// A block of at least `bytes`; null if none is held.
  void* take(size_t bytes) {
    const size_t size = bytes <= kLeast ? 0 : (bytes - kLeast + kStep - 1) / kStep;
    if (size >= kSizes) return nullptr;
    Stack& stack = stacks_[size];
    Block* block = stack.top;
    if (block == nullptr) return nullptr;
    stack.top = block->below;
    --stack.count;
    return block;
  }

  /// False: the block is not small, or enough of its size are held, or the thread has ended; the caller frees it.
  bool keep(void* block) {
    const size_t bytes = malloc_usable_size(block);
    if (bytes < kLeast || bytes >= kLeast + kSizes * kStep) return false;  // 0: of null
    Stack& stack = stacks_[(bytes - kLeast) / kStep];
    if (stack.count >= kMost) return false;
    static thread_local const AtThreadEnd release{*this};
    stack.top = new (block) Block{stack.top};
    ++stack.count;
    return true;
  }

 private:
  static constexpr size_t kLeast = 24, kStep = 16,
                          kSizes = 15;  // glibc's blocks: 24, 40, .. 248 bytes
  struct Block {
    Block* below;
  };
  struct Stack {
    Block* top = nullptr;
    size_t count = 0;
  };
  struct AtThreadEnd {
    SmallBlocks& blocks;
    ~AtThreadEnd() {
      for (Stack& stack : blocks.stacks_) {
        stack.count = kMost;  // what is deleted from now on is freed at once
        while (Block* block = stack.top) {
          stack.top = block->below;
          std::free(block);
        }
      }
    }
  };
  std::array<Stack, kSizes> stacks_{};
};

}  // namespace quintet
