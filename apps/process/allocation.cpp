// malloc, its family and mmap, of the `quintet` program alone: memory that is refused ends it with
// exit code 4 and a sentence, whichever library asked. HDF5, oneDNN and others use the null pointer
// that they get, which is a SIGSEGV, or end in code 1. Our own code learns of it as ever: new
// throws bad_alloc, memalign and aligned_alloc give null.

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "apps/process/small_blocks.h"
#include "runtime/base/check.h"
#include "runtime/base/memory/out_of_memory.h"

extern "C" {
// The C library's own, until the next ones are known.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
}

namespace {

/// The function of this name behind ours: the C library's, or that of a preloaded allocator.
template <class Function>
class Next {
 public:
  constexpr Next(const char* name, Function* meanwhile) : name_(name), meanwhile_(meanwhile) {}
  Function* get() {
    if (Function* known = next_.load(std::memory_order_relaxed)) return known;
    static thread_local bool asking = false;  // dlsym may allocate
    if (asking) return meanwhile_;
    asking = true;
    auto* found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
    asking = false;
    next_.store(found != nullptr ? found : meanwhile_, std::memory_order_relaxed);
    return next_.load(std::memory_order_relaxed);
  }

 private:
  const char* name_;
  Function* meanwhile_;
  std::atomic<Function*> next_{nullptr};
};

constinit Next<void*(size_t)> next_malloc("malloc", __libc_malloc);
constinit Next<void*(size_t, size_t)> next_calloc("calloc", __libc_calloc);
constinit Next<void*(void*, size_t)> next_realloc("realloc", __libc_realloc);
constinit Next<int(void**, size_t, size_t)> next_posix_memalign("posix_memalign", nullptr);

constinit thread_local quintet::SmallBlocks small_blocks;

constexpr size_t kAbsurd = size_t{1} << 40;  // no library that means it asks for so much

/// Allocates nothing.
void refused(size_t bytes) {
  if (!quintet::refused_memory_ends_program) return;
  char text[200];
  const int length = std::snprintf(
      text, sizeof(text),
      "error: out of memory: a library wanted %zu bytes; raise the limit (ulimit -v, -d), or use a "
      "smaller batch, more microbatches or shorter lengths\n",
      bytes);
  (void)!write(STDERR_FILENO, text, static_cast<size_t>(length));
  _exit(static_cast<int>(quintet::ExitCode::kEnvironment));
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) {
  void* block = next_malloc.get()(bytes);
  if (block == nullptr && bytes > 0 && bytes < kAbsurd) refused(bytes);
  return block;
}

void* calloc(size_t count, size_t bytes) {
  void* block = next_calloc.get()(count, bytes);
  size_t all = 0;
  if (block == nullptr && !__builtin_mul_overflow(count, bytes, &all) && all > 0 && all < kAbsurd)
    refused(all);
  return block;
}

void* realloc(void* old, size_t bytes) {
  void* block = next_realloc.get()(old, bytes);
  if (block == nullptr && bytes > 0 && bytes < kAbsurd) refused(bytes);
  return block;
}

int posix_memalign(void** block, size_t alignment, size_t bytes) {
  const int error = next_posix_memalign.get()(block, alignment, bytes);
  if (error == ENOMEM && bytes < kAbsurd) refused(bytes);
  return error;
}

/// Code that is made as it runs (oneDNN) lies in memory of its own. A library that asks for very
/// much, for large pages or for shared memory, has another way.
void* mmap64(void* at, size_t bytes, int protection, int flags, int file, off64_t offset) {
  constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS,
                kPlain = kPrivate | MAP_NORESERVE | MAP_STACK;
  constexpr size_t kMuch = size_t{64} << 20;
  const long result = syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
  if (result == -1 && errno == ENOMEM && (flags & kPrivate) == kPrivate && (flags & ~kPlain) == 0 &&
      protection != PROT_NONE && bytes < kMuch)
    refused(bytes);
  return reinterpret_cast<void*>(result);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap64(at, bytes, protection, flags, file, offset);
}

}  // extern "C"

void* operator new(size_t bytes) {
  if (void* block = small_blocks.take(bytes)) return block;
  while (true) {
    if (void* block = next_malloc.get()(bytes > 0 ? bytes : 1)) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void operator delete(void* block) noexcept {
  if (!small_blocks.keep(block)) std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }
