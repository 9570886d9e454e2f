// Launches, seeds and what belongs to no other part.

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/device.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/engine/device_memory.h"
#include "kernels/simt/emulator/engine/parts.h"
#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/emulator/engine/state.h"
#include "kernels/simt/simt.cuh"
#include "runtime/base/check.h"

namespace quintet::emulated::simt {
namespace emulator {

Thread::Thread() = default;
Thread::~Thread() = default;
Thread::Thread(Thread&&) noexcept = default;
Warp::Warp() = default;
Warp::~Warp() = default;
Warp::Warp(Warp&&) noexcept = default;
Block::Block() = default;
Block::~Block() = default;
Block::Block(Block&&) noexcept = default;

namespace {

std::atomic<uint64_t> current_seed = 0;
std::atomic<uint64_t> launch_number = 0;
Device pretended{90, 4, 227 << 10};
thread_local std::function<void(std::function<void()>)> recorder;
void (*queue_elsewhere)(Stream, std::function<void()>) = nullptr;

void check(const Launch& how) {
  const uint64_t threads = uint64_t{how.block.x} * how.block.y * how.block.z;
  QT_ASSERT(threads >= 1 && threads <= 1024 && how.block.z <= 64);
  QT_ASSERT(how.grid.x >= 1 && how.grid.y >= 1 && how.grid.z >= 1);
  QT_ASSERT(how.grid.x <= 0x7fffffffu && how.grid.y <= 65535 && how.grid.z <= 65535);
  QT_ASSERT(how.cluster >= 1 && how.cluster <= 16 && how.grid.x % how.cluster == 0);
  if (how.shared > device().shared_limit) {
    throw Bug(fmt::format("{}:{}: {} bytes of shared memory; a block has {}", how.file, how.line,
                          how.shared, device().shared_limit));
  }
}

}  // namespace

void set_seed(uint64_t seed) {
  current_seed = seed;
  launch_number = 0;
}
uint64_t seed() { return current_seed; }
void set_sm(int sm) { pretended = Device{sm, 4, size_t{sm >= 90 ? 227u : 163u} << 10}; }
void set_recorder(std::function<void(std::function<void()>)> r) { recorder = std::move(r); }
bool is_recording() { return recorder != nullptr; }
void set_other_streams(void (*queue)(Stream, std::function<void()>)) { queue_elsewhere = queue; }

void queue(std::function<void()> work) {
  if (recorder) return recorder(std::move(work));
  const DeviceMemoryAccess access;
  work();
}

void queue_launch(std::function<void()> launch) {
  quintet::Device::current().counters().launch();
  queue(std::move(launch));
}
void queue_launch(std::function<void()> launch, Stream other) {
  QT_ASSERT(queue_elsewhere != nullptr);
  quintet::Device::current().counters().launch();
  queue_elsewhere(other, std::move(launch));
}

void run(const Launch& how, const Body& body) {
  check(how);
  const Shape shape{how.grid,        how.block, how.cluster, how.shared,
                    how.cooperative, how.name,  how.file,    how.line};
  ++mutable_counters().launches;
  const uint64_t number = ++launch_number;
  ResidentBlocks resident_blocks(shape, body, current_seed);
  const uint64_t blocks = uint64_t{how.grid.x} * how.grid.y * how.grid.z;
  const uint64_t together = how.cooperative ? blocks : how.cluster;
  const auto index_of = [&](uint64_t b) {
    return uint3{static_cast<unsigned>(b % how.grid.x),
                 static_cast<unsigned>(b / how.grid.x % how.grid.y),
                 static_cast<unsigned>(b / how.grid.x / how.grid.y)};
  };
  // Sets of resident blocks run one after another, in an order without meaning: forward or backward by the seed.
  const uint64_t resident_sets = blocks / together;
  std::vector<uint3> indices(together);
  for (uint64_t i = 0; i < resident_sets; ++i) {
    const uint64_t g = (current_seed & 1u) ? resident_sets - 1 - i : i;
    for (uint64_t b = 0; b < together; ++b) indices[b] = index_of(g * together + b);
    resident_blocks.run(indices, number * 0x10000 + g);
  }
}

void reset_block(Block& block) {
  for (BarrierState& barrier : block.barriers) {
    barrier.expected = barrier.arrived = barrier.sum = 0;
    barrier.lanes.fill(0);
  }
  block.phase_barriers.clear();
  block.proxy.clear();
  block.proxy_fenced = false;
}
void reset_warp(Warp& warp) {
  warp.collectives.clear();
  warp.products.reset();
}
void reset_thread(Thread& thread) {
  thread.waits = nullptr;
  thread.atomics = 0;
  thread.ended = thread.cluster_arrived = false;
  thread.copies.reset();
  thread.products.reset();
  thread.stores.reset();
}
void finish_thread(Thread& thread) {
  finish_copies(thread);
  finish_stores(thread);
  finish_products(thread);
  leave_cluster(thread);
}

void* shared_window(size_t offset, size_t count, size_t element, size_t alignment) {
  const size_t size = self->block->shape->shared;
  if (offset % alignment) {
    fail_here(
        fmt::format("shared memory at offset {} for elements aligned to {}", offset, alignment));
  }
  if (offset + count * element > size) {
    fail_here(fmt::format("shared memory [{}, {}) of a block that was launched with {} bytes",
                          offset, offset + count * element, size));
  }
  return self->block->shared + offset;
}

void shared_out_of_bounds(std::ptrdiff_t index, std::ptrdiff_t count, size_t bytes) {
  fail_here(fmt::format("shared memory out of bounds: element {} of {} (byte offset {} of {})",
                        index, count, index * static_cast<std::ptrdiff_t>(bytes),
                        count * static_cast<std::ptrdiff_t>(bytes)));
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 31u, fraction = bits & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | (fraction << 13));
  if (exponent) return __uint_as_float(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

uint16_t float_to_half(float x) {
  const uint32_t u = __float_as_uint(x);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const float a = std::fabs(x);
  if (a != a) return 0x7fff;
  if (a >= 65520.0f) return sign | 0x7c00u;
  if (a < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(a * 0x1p24f));
  const uint32_t v = __float_as_uint(a);
  const uint32_t rounded = v + 0xfffu + ((v >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

}  // namespace emulator

const Device& device() { return emulator::pretended; }

uint32_t shared_address(const void* p) {
  const emulator::Block& block = emulator::block_of(p, 0, "shared_address");
  return static_cast<uint32_t>(static_cast<const char*>(p) - block.shared);
}

}  // namespace quintet::emulated::simt
