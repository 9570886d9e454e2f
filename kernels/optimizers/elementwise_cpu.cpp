#include "kernels/optimizers/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/elementwise_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optimizers/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A NaN stays a NaN: minps and maxps return their second operand then.
HWY_INLINE V used_gradient(V g, V scale, V limit) {
  return hn::Max(hn::Neg(limit), hn::Min(limit, hn::Mul(g, scale)));
}

bool adam(int64_t n, const AdamStep& s, GradientUse use, FloatPointer gradient,
          float* HWY_RESTRICT param, float* HWY_RESTRICT mu, float* HWY_RESTRICT nu) {
  const D d;
  const auto b1 = hn::Set(d, s.b1), c1 = hn::Set(d, s.one_minus_b1);
  const auto b2 = hn::Set(d, s.b2), c2 = hn::Set(d, s.one_minus_b2);
  const auto mu_use = hn::Set(d, s.mu_use), gradient_use = hn::Set(d, s.gradient_use);
  const auto nu_use = hn::Set(d, s.nu_use);
  const auto eps = hn::Set(d, s.eps), eps_root = hn::Set(d, s.eps_root);
  const auto rate = hn::Set(d, s.rate), decay = hn::Set(d, s.decay);
  const auto scale = hn::Set(d, use.scale), limit = hn::Set(d, use.limit);
  V bad = hn::Zero(d);
  for_each_vector(n, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
    const V g = used_gradient(load(gradient + i), scale, limit);
    const V m = hn::MulAdd(b1, load(mu + i), hn::Mul(c1, g));
    const V v = hn::MulAdd(b2, load(nu + i), hn::Mul(c2, hn::Mul(g, g)));
    const V p = load(param + i);
    const V top = hn::MulAdd(mu_use, m, hn::Mul(gradient_use, g));
    const V bottom = hn::Add(hn::Sqrt(hn::MulAdd(nu_use, v, eps_root)), eps);
    const V direction = hn::MulAdd(decay, p, hn::Div(top, bottom));
    watch(bad, store(hn::NegMulAdd(rate, direction, p), param + i));
    watch(bad, store(m, mu + i));
    watch(bad, store(v, nu + i));
  });
  return all_finite(bad);
}

bool lion(int64_t n, const LionStep& s, GradientUse use, FloatPointer gradient,
          float* HWY_RESTRICT param, float* HWY_RESTRICT mu) {
  const D d;
  const auto b1 = hn::Set(d, s.b1), c1 = hn::Set(d, s.one_minus_b1);
  const auto b2 = hn::Set(d, s.b2), c2 = hn::Set(d, s.one_minus_b2);
  const auto rate = hn::Set(d, s.rate), decay = hn::Set(d, s.decay), one = hn::Set(d, 1.0f);
  const auto scale = hn::Set(d, use.scale), limit = hn::Set(d, use.limit);
  V bad = hn::Zero(d);
  for_each_vector(n, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
    const V g = used_gradient(load(gradient + i), scale, limit);
    const V m = load(mu + i);
    const V p = load(param + i);
    // Products rounded apart, as in the reference: the sign of a sum near zero must be the same.
    const V blend = hn::Add(hn::Mul(c1, g), hn::Mul(b1, m));
    const V sign = hn::IfThenZeroElse(hn::Eq(blend, hn::Zero(d)), hn::CopySign(one, blend));
    watch(bad, store(hn::NegMulAdd(rate, hn::MulAdd(decay, p, sign), p), param + i));
    watch(bad, store(hn::MulAdd(b2, m, hn::Mul(c2, g)), mu + i));
  });
  return all_finite(bad);
}

bool sgd(int64_t n, const SgdStep& s, GradientUse use, FloatPointer gradient,
         float* HWY_RESTRICT param, float* HWY_RESTRICT trace) {
  const D d;
  const auto momentum = hn::Set(d, s.momentum), rate = hn::Set(d, s.rate);
  const auto scale = hn::Set(d, use.scale), limit = hn::Set(d, use.limit);
  V bad = hn::Zero(d);
  for_each_vector(n, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
    const V g = used_gradient(load(gradient + i), scale, limit);
    V direction = g;
    if (trace != nullptr) {
      const V t = hn::MulAdd(momentum, load(trace + i), g);
      watch(bad, store(t, trace + i));
      direction = s.nesterov ? hn::MulAdd(momentum, t, g) : t;
    }
    watch(bad, store(hn::NegMulAdd(rate, direction, load(param + i)), param + i));
  });
  return all_finite(bad);
}

double squares(int64_t n, FloatPointer values) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kRun = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const FloatPointer run = values + begin;
    const Load load{};
    const int64_t length = std::min(kRun, n - begin);
    // Four sums side by side hide the latency of the multiply-add.
    V a = hn::Zero(d), b = a, c = a, e = a;
    int64_t i = 0;
    for (; i + 4 * lanes <= length; i += 4 * lanes) {
      const V w = load(run + i), x = load(run + (i + lanes));
      const V y = load(run + (i + 2 * lanes)), z = load(run + (i + 3 * lanes));
      a = hn::MulAdd(w, w, a);
      b = hn::MulAdd(x, x, b);
      c = hn::MulAdd(y, y, c);
      e = hn::MulAdd(z, z, e);
    }
    for_each_vector(length - i, [&](int64_t k, const auto& load_some, const auto&) HWY_ATTR {
      const V x = load_some(run + (i + k));
      a = hn::MulAdd(x, x, a);
    });
    const V sum = hn::Add(hn::Add(a, b), hn::Add(c, e));
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet::cpu {
namespace {
HWY_EXPORT(adam);
HWY_EXPORT(lion);
HWY_EXPORT(sgd);
HWY_EXPORT(squares);
}  // namespace

bool adam_update(int64_t n, const AdamStep& step, GradientUse use, FloatPointer gradient,
                 float* param, float* mu, float* nu) {
  return HWY_DYNAMIC_DISPATCH(adam)(n, step, use, gradient, param, mu, nu);
}
bool lion_update(int64_t n, const LionStep& step, GradientUse use, FloatPointer gradient,
                 float* param, float* mu) {
  return HWY_DYNAMIC_DISPATCH(lion)(n, step, use, gradient, param, mu);
}
bool sgd_update(int64_t n, const SgdStep& step, GradientUse use, FloatPointer gradient,
                float* param, float* trace) {
  return HWY_DYNAMIC_DISPATCH(sgd)(n, step, use, gradient, param, trace);
}
double sum_of_squares_block(int64_t n, FloatPointer values) {
  return HWY_DYNAMIC_DISPATCH(squares)(n, values);
}

}  // namespace quintet::cpu
#endif
