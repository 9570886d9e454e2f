#include "kernels/simt/emulator/tma.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/simt/emulator/barrier.h"
#include "kernels/simt/emulator/engine/parts.h"
#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/emulator/engine/state.h"
#include "kernels/simt/tensor_map.h"

namespace quintet::emulated::simt::emulator {
namespace {

size_t box_bytes(const TensorMap& map) {
  size_t bytes = static_cast<size_t>(map.element);
  for (int i = 0; i < map.rank; ++i) bytes *= static_cast<size_t>(map.box[i]);
  return bytes;
}

void check_tile(const TensorMap& map, const void* tile, int rank, const char* what) {
  if (map.rank != rank)
    fail_here(fmt::format("{}: a map of {} axes used as one of {}", what, map.rank, rank));
  const size_t alignment = map.swizzle == Swizzle::kNone ? 128 : span_of(map.swizzle) * 8;
  const Block& block = block_of(tile, box_bytes(map), what);
  const auto offset = static_cast<size_t>(static_cast<const char*>(tile) - block.shared);
  if (offset % alignment) {
    fail_here(fmt::format("{}: tile at offset {}, which is not a multiple of {}", what, offset,
                          alignment));
  }
}

/// Calls row(offset in the tile, global address or null, elements inside, first element inside) for
/// each row of the box along the fastest axis.
template <typename F>
void for_each_row(const TensorMap& map, const Coordinates& at, F row) {
  const int row_bytes = map.box[0] * map.element;
  const int64_t first = std::max<int64_t>(0, -static_cast<int64_t>(at[0]));
  const int64_t last = std::min<int64_t>(map.box[0], map.sizes[0] - at[0]);
  int64_t rows = 1;
  for (int i = 1; i < map.rank; ++i) rows *= map.box[i];
  for (int64_t r = 0; r < rows; ++r) {
    int64_t rest = r;
    char* p = map.base + at[0] * static_cast<int64_t>(map.element);
    bool inside = first < last;
    for (int i = 1; i < map.rank; ++i) {
      const int64_t c = at[static_cast<size_t>(i)] + rest % map.box[i];
      rest /= map.box[i];
      inside = inside && c >= 0 && c < map.sizes[i];
      p += c * map.strides[i];
    }
    row(static_cast<uint32_t>(r * row_bytes), inside ? p : nullptr, first, last);
  }
}

/// Writes the box into one block's memory.
void write_box(Block& block, char* dst, const TensorMap& map, const Coordinates& at) {
  const auto base = static_cast<uint32_t>(dst - block.shared);
  std::vector<char> line(static_cast<size_t>(map.box[0] * map.element));
  for_each_row(map, at, [&](uint32_t offset, const char* p, int64_t first, int64_t last) {
    std::memset(line.data(), 0, line.size());
    if (p) {
      std::memcpy(line.data() + first * map.element, p + first * map.element,
                  static_cast<size_t>((last - first) * map.element));
    }
    for (uint32_t piece = 0; piece < line.size(); piece += 16) {
      char* to = block.shared + swizzled(base + offset + piece, map.swizzle);
      proxy_write(block, to, line.data() + piece, 16);
    }
  });
}

/// The box as the engine reads it from shared memory, without swizzle.
void read_box(const Block& block, const char* src, const TensorMap& map, std::vector<char>& out) {
  const auto base = static_cast<uint32_t>(src - block.shared);
  out.resize(box_bytes(map));
  for (uint32_t offset = 0; offset < out.size(); offset += 16) {
    proxy_read(block, block.shared + swizzled(base + offset, map.swizzle), out.data() + offset);
  }
}

template <typename T>
void add_values(char* to, const char* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, to + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&b, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, half>) {
      a = from_float<T>(to_float(a) + to_float(b));
    } else {
      a = static_cast<T>(a + b);
    }
    std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &a, sizeof(T));
  }
}

void add_elements(TensorElement kind, char* to, const char* from, int64_t count) {
  switch (kind) {
    case TensorElement::kBf16:
      return add_values<bf16>(to, from, count);
    case TensorElement::kHalf:
      return add_values<half>(to, from, count);
    case TensorElement::kFloat:
      return add_values<float>(to, from, count);
    case TensorElement::kInt32:
      return add_values<int32_t>(to, from, count);
    case TensorElement::kInt8:
      fail_here("tensor reduction of 8-bit elements");
  }
}

BulkStores& stores() {
  if (!self->stores) self->stores = std::make_unique<BulkStores>();
  return *self->stores;
}

/// Queues a store: it reads, and later writes, at moments the schedule chooses.
void issue(std::shared_ptr<BulkStore> store) {
  stores().open.push_back(store);
  resident_blocks().later([store] { store->advance(1); });
  resident_blocks().later([store] { store->advance(2); });
}

void arrived_in(const Block& block) {
  if (block.live == 0)
    fail_here("an asynchronous copy arrives in shared memory of a block that has ended");
}

void check_bulk(const void* shared, const void* global, uint32_t bytes, const char* what) {
  block_of(shared, bytes, what);
  const auto bits =
      reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global) | bytes;
  if (bits % 16) fail_here(fmt::format("{}: addresses and bytes are multiples of 16", what));
}

}  // namespace

void tensor_load(void* dst, const TensorMap& map, uint64_t* bar, const Coordinates& at, int rank,
                 uint16_t ranks) {
  check_tile(map, dst, rank, "tma_load");
  std::vector<std::pair<char*, uint64_t*>> targets;
  if (ranks == 0) {
    targets.emplace_back(static_cast<char*>(dst), bar);
  }
  for (uint32_t r = 0; r < 16; ++r) {
    if ((ranks >> r) & 1u)
      targets.emplace_back(map_cluster(static_cast<char*>(dst), r), map_cluster(bar, r));
  }
  for (const auto& [to, its_bar] : targets) {
    Block& block = block_of(to, 1, "tma_load");
    resident_blocks().later([&block, to = to, its_bar = its_bar, map, at] {
      arrived_in(block);
      write_box(block, to, map, at);
      mbarrier_complete(its_bar, static_cast<uint32_t>(box_bytes(map)));
    });
  }
}

void tensor_store(const TensorMap& map, const void* src, const Coordinates& at, int rank,
                  bool add) {
  check_tile(map, src, rank, "tma_store");
  Block& block = block_of(src, 1, "tma_store");
  proxy_issue(block);
  auto store = std::make_shared<BulkStore>();
  store->read = [&block, src, map](std::vector<char>& data) {
    read_box(block, static_cast<const char*>(src), map, data);
  };
  store->write = [map, at, add](const std::vector<char>& data) {
    for_each_row(map, at, [&](uint32_t offset, char* p, int64_t first, int64_t last) {
      if (!p) return;
      const char* from = data.data() + offset + first * map.element;
      if (add) {
        add_elements(static_cast<TensorElement>(map.kind), p + first * map.element, from,
                     last - first);
      } else {
        std::memcpy(p + first * map.element, from,
                    static_cast<size_t>((last - first) * map.element));
      }
    });
  };
  issue(std::move(store));
}

void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* bar) {
  check_bulk(dst, src, bytes, "bulk_load");
  Block& block = block_of(dst, bytes, "bulk_load");
  resident_blocks().later([&block, dst, src, bytes, bar] {
    arrived_in(block);
    proxy_write(block, static_cast<char*>(dst), src, bytes);
    mbarrier_complete(bar, bytes);
  });
}

void bulk_store(void* dst, const void* src, uint32_t bytes, bool add) {
  check_bulk(src, dst, bytes, "bulk_store");
  Block& block = block_of(src, bytes, "bulk_store");
  proxy_issue(block);
  auto store = std::make_shared<BulkStore>();
  store->read = [&block, src, bytes](std::vector<char>& data) {
    data.resize(bytes);
    for (uint32_t i = 0; i < bytes; i += 16) {
      proxy_read(block, static_cast<const char*>(src) + i, data.data() + i);
    }
  };
  store->write = [dst, add](const std::vector<char>& data) {
    if (add) {
      add_values<float>(static_cast<char*>(dst), data.data(),
                        static_cast<int64_t>(data.size() / 4));
    } else {
      std::memcpy(dst, data.data(), data.size());
    }
  };
  issue(std::move(store));
}

void store_commit() {
  BulkStores& s = stores();
  s.groups.push_back(std::move(s.open));
  s.open.clear();
}

void store_wait(int groups, bool read_only) {
  BulkStores& s = stores();
  const size_t all = s.groups.size();
  for (size_t i = 0; i + static_cast<size_t>(groups) < all; ++i) {
    for (const auto& store : s.groups[i]) store->advance(read_only ? 1 : 2);
  }
  if (!read_only) {
    while (s.groups.size() > static_cast<size_t>(groups)) s.groups.pop_front();
  }
}

void finish_stores(Thread& thread) {
  if (!thread.stores) return;
  const auto check = [](const std::vector<std::shared_ptr<BulkStore>>& group) {
    for (const auto& store : group) {
      if (store->done == 0) {
        fail_here(
            "a bulk store may still read shared memory when its thread ends: "
            "tma_store_wait_read is missing");
      }
    }
  };
  for (const auto& group : thread.stores->groups) check(group);
  check(thread.stores->open);
}

}  // namespace quintet::emulated::simt::emulator
