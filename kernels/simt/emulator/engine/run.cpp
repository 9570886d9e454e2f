// Launches, seeds and what belongs to no other part.

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "kernels/device.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/engine/device_memory.h"
#include "kernels/simt/emulator/engine/kernel_run.h"
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

Device pretended{90, 4, 227 << 10};
thread_local std::function<void(Work)> recorder;
void (*queue_elsewhere)(Stream, std::function<void()>) = nullptr;

}  // namespace

void set_sm(int sm) {
  const bool is_small = sm == 86 || sm == 89;  // with fewer multiprocessors, to compare grids
  pretended = Device{sm, is_small ? 3 : 4, size_t{is_small ? 99u : sm >= 90 ? 227u : 163u} << 10};
}
std::function<void(Work)> set_recorder(std::function<void(Work)> r) {
  return std::exchange(recorder, std::move(r));
}
bool is_recording() { return recorder != nullptr; }
void set_other_streams(void (*queue)(Stream, std::function<void()>)) { queue_elsewhere = queue; }

void queue(std::function<void()> work) {
  if (recorder) return recorder({.run = std::move(work)});
  const DeviceMemoryAccess access;
  work();
}

void queue_launch(const Launch& how, Body body) {
  quintet::Device::current().counters().launch();
  if (!recorder) {
    const DeviceMemoryAccess access;
    KernelRun(how, std::move(body)).finish();
    return;
  }
  recorder(
      {.launch = [how, body = std::move(body)] { return std::make_shared<KernelRun>(how, body); },
       .early = how.early && device().sm >= 90});
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
  thread.ended = thread.cluster_arrived = thread.waited_for_previous = false;
  thread.copies.reset();
  thread.products.reset();
  thread.stores.reset();
}
void finish_thread(Thread& thread) {
  // Else the kernel after this one would wait for this one alone, not for those before it.
  if (thread.block->shape->early && !thread.waited_for_previous)
    fail_here("launched early, but ended without wait_for_previous");
  finish_copies(thread);
  finish_stores(thread);
  finish_products(thread);
  leave_cluster(thread);
}

void misaligned(const void* p, size_t bytes) {
  fail_here(
      fmt::format("an access of {} bytes at address {}, which is no multiple of them", bytes, p));
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
