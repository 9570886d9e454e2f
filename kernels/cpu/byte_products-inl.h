// Products of bytes in vectors. Include after hwy/highway.h, as Highway's own -inl headers are.

#if defined(QUINTET_BYTE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUINTET_BYTE_PRODUCTS_INL_H_
#undef QUINTET_BYTE_PRODUCTS_INL_H_
#else
#define QUINTET_BYTE_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// sum + products of four bytes a lane, unsigned x and signed w.
template <bool kVnni, class I, class VI = hn::Vec<I>>
HWY_INLINE VI add_byte_products([[maybe_unused]] I di, VI sum, VI x, VI w) {
#if HWY_TARGET == HWY_AVX3
  // Highway 1.0 has no name for it, and intrinsics cannot be inlined into code for AVX-512 alone.
  if constexpr (kVnni) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
    return sum;
  }
#endif
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  // Bytes 0 and 2, then 1 and 3, of a lane as two int16; their products are added in pairs.
  const hn::RepartitionToNarrow<I> dn;
  const auto even_x = hn::BitCast(dn, hn::And(x, hn::Set(di, 0x00ff00ff)));
  const auto odd_x = hn::BitCast(dn, hn::And(hn::ShiftRight<8>(x), hn::Set(di, 0x00ff00ff)));
  const auto even_w = hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(dn, w)));
  const auto odd_w = hn::ShiftRight<8>(hn::BitCast(dn, w));
  VI unused = hn::Zero(di);
  sum = hn::ReorderWidenMulAccumulate(di, even_x, even_w, sum, unused);
  return hn::ReorderWidenMulAccumulate(di, odd_x, odd_w, sum, unused);
#else
  const VI byte = hn::Set(di, 0xff);
  sum = hn::Add(sum, hn::Mul(hn::And(x, byte), hn::ShiftRight<24>(hn::ShiftLeft<24>(w))));
  sum = hn::Add(
      sum, hn::Mul(hn::And(hn::ShiftRight<8>(x), byte), hn::ShiftRight<24>(hn::ShiftLeft<16>(w))));
  sum = hn::Add(
      sum, hn::Mul(hn::And(hn::ShiftRight<16>(x), byte), hn::ShiftRight<24>(hn::ShiftLeft<8>(w))));
  return hn::Add(sum, hn::Mul(hn::And(hn::ShiftRight<24>(x), byte), hn::ShiftRight<24>(w)));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#endif
