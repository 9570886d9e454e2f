#include "runtime/base/memory/memory.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/memory/huge_pages.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/base/memory/out_of_memory.h"

extern "C" [[gnu::weak]] void __asan_init();  // there if a part of the program is instrumented

namespace quintet {
namespace {

constexpr int64_t kAlign = 64;
// What the accounting calls blocks of an arena that nobody holds at the moment.
constexpr auto kResting = static_cast<size_t>(MemoryKind::kActivations);

// Under AddressSanitizer nothing is rounded and nothing cached: it knows every block's bounds and end.
bool exact() { return __asan_init != nullptr; }

/// Rounded so that blocks of nearly equal tensors are interchangeable: 1/8 of the size is lost at
/// most.
int64_t capacity_for(int64_t bytes) {
  if (exact()) return std::max<int64_t>(bytes, 1);
  int64_t unit = kAlign;
  while (unit * 16 < bytes) unit *= 2;
  return std::max<int64_t>((bytes + unit - 1) / unit * unit, kAlign);
}

class HostSource final : public MemorySource {
 public:
  void* allocate(int64_t bytes) override { return allocate_on_huge_pages(bytes); }
  void release(void* pointer, int64_t) override { std::free(pointer); }
  std::string name() const override { return "ordinary memory"; }
};

/// Lets go of a block.
struct Release {
  MemoryKind kind;
  int64_t bytes;
  std::shared_ptr<MemoryMeter::State> meter;                                // may be null
  std::function<void(MemoryKind from, std::optional<MemoryKind> to)> move;  // to nothing: back

  void operator()(std::byte*) const {
    if (meter != nullptr) meter->add(kind, -bytes);
    move(kind, std::nullopt);
  }
};

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

void count_as(const Buffer& block, MemoryKind kind) {
  auto* release = std::get_deleter<Release>(block);
  if (release == nullptr || release->kind == kind) return;
  if (release->meter != nullptr) release->meter->move(release->kind, kind, release->bytes);
  release->move(release->kind, kind);
  release->kind = kind;
}

MemoryScope::MemoryScope(MemoryKind kind)
    : ContextScope([&] {
        ExecutionContext context = ExecutionContext::current();
        context.memory_kind = kind;
        return context;
      }()) {}

MemorySource& MemorySource::host() {
  static auto* source = new HostSource;  // like the memory below, never destroyed
  return *source;
}

Memory& Memory::host() {
  static auto* memory = new Memory;  // tensors may outlive static destructors
  return *memory;
}

Memory::~Memory() { release_cached(); }

void Memory::change_source(const std::function<MemorySource*(MemorySource& before)>& make) {
  source_ = make(*source_);
}

struct Memory::ArenaBlocks {
  std::thread::id owner = std::this_thread::get_id();
  FreeBlocks free;
  std::vector<Block> all;
};

Buffer Memory::allocate(int64_t bytes) {
  QT_ASSERT(bytes >= 0);
  const int64_t capacity = capacity_for(bytes);
  const ExecutionContext& context = ExecutionContext::current();
  const MemoryKind kind = context.memory_kind;
  const auto [arena, is_recording] = open_arena();
  Block block = arena != nullptr ? take(arena->free, capacity) : Block{};
  const bool of_arena = block.pointer != nullptr;
  if (!of_arena) block = take(cached_, capacity);
  if (block.pointer == nullptr) {
    block = {static_cast<std::byte*>(source_->allocate(capacity)), capacity};
    if (block.pointer == nullptr && !is_recording) {
      release_cached();
      block.pointer = static_cast<std::byte*>(source_->allocate(capacity));
    }
    if (block.pointer == nullptr)
      throw OutOfMemory(fmt::format(
          "out of memory on {}{}: {} bytes wanted, in use: {}; use a smaller batch, more "
          "microbatches or remat",
          source_->name(), is_recording ? " while work is recorded" : "", bytes, accounting()));
  }
  {
    std::lock_guard lock(mutex_);
    if (of_arena) {
      by_kind_[kResting] -= block.capacity;
    } else {
      used_ += block.capacity;
      if (arena != nullptr) arena->all.push_back(block);
    }
    by_kind_[static_cast<size_t>(kind)] += block.capacity;
    peak_ = std::max(peak_, used_);
  }
  const auto meter = context.meter != nullptr ? context.meter->state() : nullptr;
  if (meter != nullptr) meter->add(kind, bytes);
  const auto move = [this, block, home = std::weak_ptr<ArenaBlocks>(arena)](
                        MemoryKind from, std::optional<MemoryKind> to) {
    if (!to) return give_back(block, from, home);
    const std::lock_guard lock(mutex_);
    by_kind_[static_cast<size_t>(from)] -= block.capacity;
    by_kind_[static_cast<size_t>(*to)] += block.capacity;
  };
  return Buffer(block.pointer, Release{kind, bytes, meter, move});
}

/// The calling thread's, and whether there is any.
std::pair<std::shared_ptr<Memory::ArenaBlocks>, bool> Memory::open_arena() const {
  const std::lock_guard lock(mutex_);
  const bool is_mine = arena_ != nullptr && arena_->owner == std::this_thread::get_id();
  return {is_mine ? arena_ : nullptr, arena_ != nullptr};
}

Memory::Block Memory::take(FreeBlocks& from, int64_t capacity) {
  std::lock_guard lock(mutex_);
  const auto found = from.lower_bound(capacity);
  if (found == from.end() || found->first > capacity + capacity / 8) return {};
  const Block block{found->second, found->first};
  from.erase(found);
  return block;
}

void Memory::give_back(Block block, MemoryKind kind, const std::weak_ptr<ArenaBlocks>& home) {
  std::lock_guard lock(mutex_);
  by_kind_[static_cast<size_t>(kind)] -= block.capacity;
  if (const auto arena = home.lock()) {
    by_kind_[kResting] += block.capacity;
    arena->free.emplace(block.capacity, block.pointer);
    return;
  }
  used_ -= block.capacity;
  if (exact())
    source_->release(block.pointer, block.capacity);
  else
    cached_.emplace(block.capacity, block.pointer);
}

MemoryArena::MemoryArena(Memory& memory)
    : memory_(memory), blocks_(std::make_shared<Memory::ArenaBlocks>()) {
  const std::lock_guard lock(memory.mutex_);
  QT_ASSERT(memory.arena_ == nullptr);
  memory.arena_ = blocks_;
}

MemoryArena::~MemoryArena() {
  close();
  Memory::FreeBlocks free;
  {
    const std::lock_guard lock(memory_.mutex_);
    free = std::move(blocks_->free);
    for (const auto& [capacity, pointer] : free) memory_.by_kind_[kResting] -= capacity;
    for (const auto& [capacity, pointer] : free) memory_.used_ -= capacity;
    if (!exact()) memory_.cached_.merge(free);
    blocks_.reset();
  }
  for (const auto& [capacity, pointer] : free) memory_.source_->release(pointer, capacity);
}

void MemoryArena::close() {
  const std::lock_guard lock(memory_.mutex_);
  if (memory_.arena_ == blocks_) memory_.arena_ = nullptr;
}

std::vector<Memory::Block> MemoryArena::blocks() const {
  const std::lock_guard lock(memory_.mutex_);
  return blocks_->all;
}

void Memory::release_cached() {
  std::lock_guard lock(mutex_);
  for (const auto& [capacity, pointer] : cached_) source_->release(pointer, capacity);
  cached_.clear();
}

std::string Memory::accounting() const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (size_t kind = 0; kind < by_kind_.size(); ++kind)
    if (by_kind_[kind] > 0)
      text += fmt::format("{} {:.3f} GiB, ", name_of(static_cast<MemoryKind>(kind)),
                          gib(by_kind_[kind]));
  return text + fmt::format("{:.3f} GiB in all", gib(used_));
}

int64_t Memory::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_;
}

int64_t Memory::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

void Memory::reset_peak() {
  std::lock_guard lock(mutex_);
  peak_ = used_;
}

}  // namespace quintet
