#include "kernels/simt/emulator/wgmma.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "kernels/simt/emulator/barrier.h"
#include "kernels/simt/emulator/engine/parts.h"
#include "kernels/simt/emulator/engine/resident_blocks.h"
#include "kernels/simt/emulator/engine/state.h"
#include "kernels/simt/emulator/matrix.h"
#include "kernels/simt/swizzle.cuh"
#include "kernels/simt/types.cuh"

namespace quintet::emulated::simt::emulator {

/// One warp's quarter of a wgmma.
struct Product {
  int n = 0;
  bool a_in_registers = false, accumulate = false, trans_a = false, trans_b = false;
  Element element = Element::kBf16;
  uint64_t desc_a = 0, desc_b = 0;
  unsigned arrived = 0;
  uint32_t a[32][4];
  std::shared_ptr<WarpAccumulators> d;
};

namespace {

/// The fields of a matrix descriptor.
struct Operand {
  uint32_t start, leading, stride;
  Swizzle swizzle;
  explicit Operand(uint64_t desc)
      : start(static_cast<uint32_t>(desc & 0x3fffu) << 4),
        leading(static_cast<uint32_t>((desc >> 16) & 0x3fffu) << 4),
        stride(static_cast<uint32_t>((desc >> 32) & 0x3fffu) << 4),
        swizzle(static_cast<Swizzle>(desc >> 62)) {}

  /// Offset of the 16 bytes that hold K-major row `row`, elements 8 * piece .. 8 * piece + 7 of K.
  uint32_t k_major(uint32_t row, uint32_t piece) const {
    if (swizzle == Swizzle::kNone)
      return start + (row % 8) * 16 + row / 8 * stride + piece * leading;
    return swizzled(start + (row % 8) * span_of(swizzle) + row / 8 * stride + piece * 16, swizzle);
  }
  /// Offset of the 16 bytes that hold MN-major row k, elements 8 * piece .. 8 * piece + 7 of M or
  /// N.
  uint32_t mn_major(uint32_t k, uint32_t piece) const {
    if (swizzle == Swizzle::kNone) return start + (k % 8) * 16 + k / 8 * leading + piece * stride;
    const uint32_t span = span_of(swizzle), pieces = span / 16;
    return swizzled(
        start + (k % 8) * span + k / 8 * stride + piece % pieces * 16 + piece / pieces * leading,
        swizzle);
  }
};

void read_piece(const Block& block, uint32_t offset, Element element, float (&out)[8]) {
  if (offset + 16 > block.shape->shared) {
    fail_here(fmt::format(
        "wgmma: an operand's bytes at offset {} are outside the block's {} bytes of shared "
        "memory",
        offset, block.shape->shared));
  }
  alignas(16) uint16_t bits[8];
  proxy_read(block, block.shared + offset, bits);
  if (element == Element::kBf16) {
    for (int i = 0; i < 8; ++i) out[i] = __uint_as_float(static_cast<uint32_t>(bits[i]) << 16);
  } else {
    widen(out, bits, 8, element);
  }
}

/// out [16, n]: rows are K.
void read_b(const Block& block, const Product& p, float* out) {
  const Operand b(p.desc_b);
  float piece[8];
  if (p.trans_b) {
    for (uint32_t k = 0; k < 16; ++k) {
      for (uint32_t j = 0; j < static_cast<uint32_t>(p.n) / 8; ++j) {
        read_piece(block, b.mn_major(k, j), p.element, piece);
        std::memcpy(out + k * static_cast<uint32_t>(p.n) + 8 * j, piece, sizeof(piece));
      }
    }
  } else {
    for (uint32_t row = 0; row < static_cast<uint32_t>(p.n); ++row) {
      for (uint32_t j = 0; j < 2; ++j) {
        read_piece(block, b.k_major(row, j), p.element, piece);
        for (uint32_t i = 0; i < 8; ++i)
          out[(8 * j + i) * static_cast<uint32_t>(p.n) + row] = piece[i];
      }
    }
  }
}

/// out [16, 16]: rows `first_row`.. of A, columns are K.
void read_a(const Block& block, const Product& p, uint32_t first_row, float* out) {
  if (p.a_in_registers) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const uint32_t g = lane / 4, t = lane % 4;
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t at = (g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2);
        widen(out + at, &p.a[lane][i], 2, p.element);
      }
    }
    return;
  }
  const Operand a(p.desc_a);
  float piece[8];
  for (uint32_t i = 0; i < 16; ++i) {
    for (uint32_t j = 0; j < 2; ++j) {
      if (p.trans_a) {  // i: K, j: half of the 16 rows
        read_piece(block, a.mn_major(i, first_row / 8 + j), p.element, piece);
        for (uint32_t e = 0; e < 8; ++e) out[(8 * j + e) * 16 + i] = piece[e];
      } else {
        read_piece(block, a.k_major(first_row + i, j), p.element, piece);
        std::memcpy(out + i * 16 + 8 * j, piece, sizeof(piece));
      }
    }
  }
}

/// Copies between a lane's registers and the warp's [16, n] matrix.
template <bool kToMatrix>
void move_registers(float* registers, WarpAccumulators& warp, int lane) {
  float* upper = warp.matrix.data() + lane / 4 * warp.n + lane % 4 * 2;
  float* lower = upper + 8 * warp.n;
  for (int j = 0; j < warp.n; j += 8, registers += 4) {
    float* const places[4] = {upper + j, upper + j + 1, lower + j, lower + j + 1};
    for (int i = 0; i < 4; ++i) {
      if (kToMatrix)
        *places[i] = registers[i];
      else
        registers[i] = *places[i];
    }
  }
}

void execute(const Block& block, uint32_t warp_in_group, const Product& p) {
  float a[16 * 16], b[16 * 256];
  read_a(block, p, warp_in_group * 16, a);
  read_b(block, p, b);
  std::vector<float>& d = p.d->matrix;
  if (!p.accumulate) std::fill(d.begin(), d.end(), 0.0f);
  multiply_add(d.data(), a, b, 16, p.n, 16);
}

/// Executes the warp's products with numbers below `end`, in order, as far as all lanes have issued
/// them.
void execute_until(Warp& warp, uint64_t end) {
  if (!warp.products) return;  // none was ever issued
  WarpProducts& w = *warp.products;
  const Thread& lane0 = resident_blocks().threads[static_cast<size_t>(warp.first)];
  while (w.executed < end && !w.queue.empty() && w.queue.front()->arrived == 0xffffffffu) {
    execute(*lane0.block, static_cast<uint32_t>(lane0.linear / 32 % 4), *w.queue.front());
    w.queue.pop_front();
    ++w.executed;
  }
}

Products& products() {
  if (!self->products) self->products = std::make_unique<Products>();
  return *self->products;
}

/// Makes the accumulators in `d` those of product p, which is the lane's `number`-th.
void use_accumulators(Products& mine, Product& p, float* d, uint64_t number) {
  for (Accumulators& it : mine.accumulators) {
    if (it.registers != d) continue;
    if (!p.d) p.d = it.of_warp;
    if (p.d != it.of_warp || p.d->n != p.n)
      fail_here("wgmma: the lanes of the warp disagree about accumulators");
    it.last = number;  // still under way for the kernel: no fence needed
    return;
  }
  if (!mine.fenced) fail_here("wgmma: wgmma_fence() is missing since the last wgmma_wait");
  if (!p.d) {
    p.d = std::make_shared<WarpAccumulators>();
    p.d->n = p.n;
    p.d->matrix.resize(static_cast<size_t>(16 * p.n));
  }
  move_registers<true>(d, *p.d, self->lane);
  std::fill(d, d + p.n / 2, std::numeric_limits<float>::quiet_NaN());
  mine.accumulators.push_back({d, p.d, number});
}

struct Wait {
  uint64_t end;  // products below this number are complete
  Products* mine;
};

void run_wait(void* const* lanes, unsigned mask) {
  if (mask != 0xffffffffu) fail_here("wgmma_wait by a warp that is not full");
  const auto* first = static_cast<const Wait*>(lanes[0]);
  for (int i = 1; i < 32; ++i) {
    if (static_cast<const Wait*>(lanes[i])->end != first->end) {
      fail_here("wgmma_wait: the lanes of the warp issued different numbers of products or groups");
    }
  }
  execute_until(*self->warp, first->end);
  for (int i = 0; i < 32; ++i) {
    auto& all = static_cast<const Wait*>(lanes[i])->mine->accumulators;
    for (size_t j = 0; j < all.size();) {
      if (all[j].last >= first->end) {
        ++j;
        continue;
      }
      move_registers<false>(all[j].registers, *all[j].of_warp, i);
      all[j] = std::move(all.back());
      all.pop_back();
    }
  }
}

}  // namespace

void wgmma_fence() { products().fenced = true; }

void wgmma_commit() {
  Products& mine = products();
  mine.groups.push_back(mine.issued);
}

void wgmma_wait(int groups) {
  Products& mine = products();
  Wait wait{0, &mine};
  while (mine.groups.size() > static_cast<size_t>(groups)) {
    wait.end = mine.groups.front();
    mine.groups.pop_front();
  }
  warp_collective("wgmma_wait (matrix)", 0xffffffffu, &wait, run_wait);
  mine.fenced = false;
}

void wgmma(float* d, int n, const uint32_t* a, uint64_t desc_a, uint64_t desc_b, bool accumulate,
           bool trans_a, bool trans_b, bool is_bf16) {
  Warp& warp = *self->warp;
  const dim3& size = self->block->shape->block;
  if (static_cast<unsigned>(self->linear / 128 + 1) * 128 > size.x * size.y * size.z) {
    fail_here(
        "wgmma: by a warp that is not in a whole warpgroup (128 threads from a multiple of 128)");
  }
  proxy_issue(*self->block);
  Products& mine = products();
  if (!warp.products) warp.products = std::make_unique<WarpProducts>();
  WarpProducts& w = *warp.products;
  const uint64_t number = mine.issued++;
  if (number == w.created) {
    auto p = std::make_shared<Product>();
    p->n = n;
    p->a_in_registers = a != nullptr;
    p->accumulate = accumulate;
    p->trans_a = trans_a;
    p->trans_b = trans_b;
    p->element = is_bf16 ? Element::kBf16 : Element::kHalf;
    p->desc_a = desc_a;
    p->desc_b = desc_b;
    w.queue.push_back(std::move(p));
    ++w.created;
  }
  Product& p = *w.queue[number - w.executed];
  if (p.n != n || p.a_in_registers != (a != nullptr) || p.accumulate != accumulate ||
      p.trans_a != trans_a || p.trans_b != trans_b || p.desc_a != desc_a || p.desc_b != desc_b) {
    fail_here("wgmma: the lanes of the warp disagree about the product");
  }
  if (a) std::memcpy(p.a[self->lane], a, sizeof(p.a[0]));
  use_accumulators(mine, p, d, number);
  p.arrived |= 1u << self->lane;
  if (p.arrived != 0xffffffffu) return;
  switch (resident_blocks().policy.delay) {
    case Delay::kAtOnce:
      execute_until(warp, number + 1);
      break;
    case Delay::kRandom:
      resident_blocks().later([&warp, number] { execute_until(warp, number + 1); });
      break;
    case Delay::kLate:
      break;
  }
}

void finish_products(Thread& thread) {
  if (thread.products && !thread.products->accumulators.empty()) {
    fail_here("wgmma still under way when its thread ends: wgmma_wait is missing");
  }
}

}  // namespace quintet::emulated::simt::emulator
