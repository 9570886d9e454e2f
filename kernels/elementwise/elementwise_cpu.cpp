#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dropout/apply.h"
#include "kernels/elementwise/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet {
namespace HWY_NAMESPACE {

void add_elements(const float* x, const float* y, float* z, int64_t n) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, z + i);
  for (; i < n; ++i) z[i] = x[i] + y[i];
}

void scale_elements(const float* x, float factor, float* y, int64_t n) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, y + i);
  for (; i < n; ++i) y[i] = factor * x[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet {
namespace {

HWY_EXPORT(add_elements);
HWY_EXPORT(scale_elements);

}  // namespace

void add_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const int64_t n = out[0].elements();
  cpu::expect_shape(in[0].elements() == n && in[1].elements() == n, "add", "..., ... -> ...");
  const float* x = cpu::f32(in[0], "add", "x");
  const float* y = cpu::f32(in[1], "add", "y");
  float* z = cpu::f32(out[0], "add", "z");
  if (attrs.get_or<double>("rate", 0) != 0) return cpu::apply_dropout("add", in[1], x, z, attrs);
  cpu::parallel_for(n, cpu::kGrainElements, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_elements)(x + begin, y + begin, z + begin, end - begin);
  });
}

void scale_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const int64_t n = out[0].elements();
  cpu::expect_shape(in[0].elements() == n, "scale", "... -> ...");
  const float* x = cpu::f32(in[0], "scale", "x");
  float* y = cpu::f32(out[0], "scale", "y");
  const auto factor = static_cast<float>(attrs.get<double>("factor"));
  cpu::parallel_for(n, cpu::kGrainElements, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scale_elements)(x + begin, factor, y + begin, end - begin);
  });
}

}  // namespace quintet
#endif
