// As fast as the best instruction set multiplies and adds.

#include "apps/bench/multiply_adds.h"

#include <omp.h>

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "apps/bench/multiply_adds.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// At least `count` multiply-adds of one thread.
void multiply_and_add(int64_t count) {
  constexpr int64_t kSums = 10;  // enough to hide how long one takes, few enough for 16 registers
  const hn::ScalableTag<float> d;
  const int64_t times = count / (kSums * static_cast<int64_t>(hn::Lanes(d))) + 1;
  auto s0 = hn::Set(d, 0.0f), s1 = hn::Set(d, 0.1f), s2 = hn::Set(d, 0.2f), s3 = hn::Set(d, 0.3f),
       s4 = hn::Set(d, 0.4f), s5 = hn::Set(d, 0.5f), s6 = hn::Set(d, 0.6f), s7 = hn::Set(d, 0.7f),
       s8 = hn::Set(d, 0.8f), s9 = hn::Set(d, 0.9f);
  const auto x = hn::Set(d, 0.5f), y = hn::Set(d, 0.25f);
  for (int64_t i = 0; i < times; ++i) {
    s0 = hn::MulAdd(s0, x, y);
    s1 = hn::MulAdd(s1, x, y);
    s2 = hn::MulAdd(s2, x, y);
    s3 = hn::MulAdd(s3, x, y);
    s4 = hn::MulAdd(s4, x, y);
    s5 = hn::MulAdd(s5, x, y);
    s6 = hn::MulAdd(s6, x, y);
    s7 = hn::MulAdd(s7, x, y);
    s8 = hn::MulAdd(s8, x, y);
    s9 = hn::MulAdd(s9, x, y);
  }
  HWY_ALIGN float kept[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                    hn::Add(hn::Add(s4, s5), hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)))),
            d, kept);
  asm volatile("" : : "m"(kept));
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/amx.h"
#include "kernels/prepacked_matmul/row_pieces.h"
#include "runtime/base/clock.h"

namespace quintet {

HWY_EXPORT(multiply_and_add);

namespace {

/// So many of whole tiles.
template <class Number>
void multiply_tiles([[maybe_unused]] int64_t count) {
#if defined(__x86_64__)
  const amx::Tiles tiles(2 * amx::kTileRows);
  for (int64_t i = 0; i < count; i += 4) {
    amx::Cpu::add_products<Number, 0, 3, 2>();
    amx::Cpu::add_products<Number, 1, 4, 2>();
    amx::Cpu::add_products<Number, 5, 3, 2>();
    amx::Cpu::add_products<Number, 6, 3, 2>();
  }
#endif
}

}  // namespace

double seconds_of_multiply_adds(int64_t count, WeightType weights) {
  constexpr int64_t kDeep = amx::kRowBytes;
  const auto form = piece_form(weights, kDeep);
  const double since = now_seconds();
#pragma omp parallel
  {
    const int64_t share = count / omp_get_num_threads();
    if (!form) {
      HWY_DYNAMIC_DISPATCH(multiply_and_add)(share);
    } else {
      const int64_t in_a_tile = amx::kTileRows * amx::kTileRows * form->numbers,
                    tiles = share * form->pieces / in_a_tile;
      weights == WeightType::bf16 ? multiply_tiles<bfloat16>(tiles) : multiply_tiles<int8_t>(tiles);
    }
  }
  return now_seconds() - since;
}

}  // namespace quintet
#endif
