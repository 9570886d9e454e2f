#include "runtime/base/memory/memory.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/memory/huge_pages.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/base/memory/out_of_memory.h"
#include "runtime/base/memory/placement.h"

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

/// Of a block that has a place in a larger one: as far as the next may begin.
int64_t place_for(int64_t bytes) { return side_by_side_stride(std::max<int64_t>(bytes, 1)); }

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
  std::shared_ptr<MemoryMeter::State> meter;  // may be null
  MemoryTrace::Block traced;
  std::function<void(MemoryKind from, std::optional<MemoryKind> to)> move;  // to nothing: back

  void operator()(std::byte*) const {
    traced.end();
    if (meter != nullptr) meter->add(kind, -bytes);
    move(kind, std::nullopt);
  }
};

/// Lets go of one of several blocks that lie side by side.
struct ReleasePart {
  Buffer whole;
  void operator()(std::byte*) const {}
};

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

void count_as(const Buffer& block, MemoryKind kind) {
  if (const auto* part = std::get_deleter<ReleasePart>(block)) return count_as(part->whole, kind);
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
  /// One block, whose parts are handed out where a placement says. It goes back with the last of them.
  struct Region {
    Memory& memory;
    Block whole;
    const MemoryPlacement& placement;      // as long as the arena is open
    size_t next = 0;                       // of its places
    std::map<int64_t, int64_t> held = {};  // from offsets to ends

    Region(Memory& of, Block block, const MemoryPlacement& places)
        : memory(of), whole(block), placement(places) {}
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    Block take(int64_t bytes);
    void give_back(Block part, MemoryKind kind);
  };
  std::thread::id owner = std::this_thread::get_id();
  FreeBlocks free;
  std::vector<Block> all;
  std::shared_ptr<Region> region;  // null: nothing is placed

  void reserve(Memory& memory, const MemoryPlacement& placement);
};

/// What is cached goes back before: work that is repeated in one block has no use for it.
void Memory::ArenaBlocks::reserve(Memory& memory, const MemoryPlacement& placement) {
  if (exact() || placement.bytes == 0) return;
  memory.release_cached();
  const Block whole{static_cast<std::byte*>(memory.source_->allocate(placement.bytes)),
                    placement.bytes};
  if (whole.pointer == nullptr)
    throw OutOfMemory(
        fmt::format("out of memory on {} for work that is to be recorded: {} bytes "
                    "wanted, in use: {}",
                    memory.source_->name(), placement.bytes, memory.accounting()));
  const std::lock_guard lock(memory.mutex_);
  region = std::make_shared<Region>(memory, whole, placement);
  all.push_back(whole);
  memory.used_ += whole.capacity;
  memory.by_kind_[kResting] += whole.capacity;
  memory.peak_ = std::max(memory.peak_, memory.used_);
}

/// Nothing but another recording has use for a block of this size.
Memory::ArenaBlocks::Region::~Region() {
  const std::lock_guard lock(memory.mutex_);
  memory.used_ -= whole.capacity;
  memory.by_kind_[kResting] -= whole.capacity;
  if (memory.arena_ != nullptr)  // a GPU that records can free nothing
    memory.cached_.emplace(whole.capacity, whole.pointer);
  else
    memory.source_->release(whole.pointer, whole.capacity);
}

/// None where the work takes another way than when it was traced, or holds what should have come back.
Memory::Block Memory::ArenaBlocks::Region::take(int64_t bytes) {
  constexpr size_t kMostSkipped = 64;
  const std::lock_guard lock(memory.mutex_);
  const auto& places = placement.places;
  const int64_t size = place_for(bytes);
  const size_t end = std::min(next + kMostSkipped, places.size());
  size_t at = next;
  while (at < end && places[at].bytes != size) ++at;
  if (at == end) return {};
  next = at + 1;
  const int64_t offset = places[at].offset;
  const auto above = held.lower_bound(offset + size);
  if (above != held.begin() && std::prev(above)->second > offset) return {};
  held.emplace_hint(above, offset, offset + size);
  return {whole.pointer + offset, size};
}

void Memory::ArenaBlocks::Region::give_back(Block part, MemoryKind kind) {
  const std::lock_guard lock(memory.mutex_);
  memory.by_kind_[static_cast<size_t>(kind)] -= part.capacity;
  memory.by_kind_[kResting] += part.capacity;
  held.erase(part.pointer - whole.pointer);
}

Buffer Memory::allocate(int64_t bytes) {
  QT_ASSERT(bytes >= 0);
  const int64_t capacity = capacity_for(bytes);
  const ExecutionContext& context = ExecutionContext::current();
  const MemoryKind kind = context.memory_kind;
  const auto [arena, is_recording] = open_arena();
  std::shared_ptr<ArenaBlocks::Region> region = arena != nullptr ? arena->region : nullptr;
  Block block = region != nullptr ? region->take(bytes) : Block{};
  if (block.pointer == nullptr) region = nullptr;
  if (arena != nullptr && region == nullptr) block = take(arena->free, capacity);
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
  const auto move = [this, block, region, home = std::weak_ptr<ArenaBlocks>(arena)](
                        MemoryKind from, std::optional<MemoryKind> to) {
    if (!to)
      return region != nullptr ? region->give_back(block, from) : give_back(block, from, home);
    const std::lock_guard lock(mutex_);
    by_kind_[static_cast<size_t>(from)] -= block.capacity;
    by_kind_[static_cast<size_t>(*to)] += block.capacity;
  };
  return Buffer(block.pointer,
                Release{kind, bytes, meter, MemoryTrace::begin(*this, place_for(bytes)), move});
}

std::vector<Buffer> Memory::allocate_side_by_side(int64_t bytes, size_t count) {
  QT_ASSERT(count > 0);
  const int64_t stride = side_by_side_stride(bytes);
  const Buffer whole = allocate(static_cast<int64_t>(count - 1) * stride + bytes);
  std::vector<Buffer> parts;
  for (size_t i = 0; i < count; ++i)
    parts.emplace_back(whole.get() + static_cast<int64_t>(i) * stride, ReleasePart{whole});
  return parts;
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
  if (const MemoryPlacement* placement = MemoryPlacement::current())
    blocks_->reserve(memory, *placement);
  const std::lock_guard lock(memory.mutex_);
  QT_ASSERT(memory.arena_ == nullptr);
  memory.arena_ = blocks_;
}

MemoryArena::~MemoryArena() {
  close();
  Memory::FreeBlocks free;
  const std::shared_ptr<Memory::ArenaBlocks::Region> region = std::move(blocks_->region);
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
