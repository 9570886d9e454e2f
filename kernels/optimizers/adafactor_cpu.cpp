#include <vector>

#include "kernels/optimizers/adafactor.h"
#include "runtime/base/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/adafactor_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/optimizers/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quintet::cpu {
namespace HWY_NAMESPACE {

/// Lane by lane 1 / sqrt(x), rounded correctly twice.
HWY_INLINE V inverse_root(V x) {
  const D d;
  return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
}

HWY_INLINE float sum_of(V v) {
  const D d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

void sums(AdafactorLines lines, const AdafactorArrays& a, int64_t along_origin,
          float* HWY_RESTRICT along_squares, float* HWY_RESTRICT gradient_squares,
          float* HWY_RESTRICT param_squares) {
  const D d;
  const V scale = hn::Set(d, a.gradient_scale);
  for (size_t l = 0; l < lines.size(); ++l) {
    const FloatPointer gradient = a.gradient + lines[l].begin;
    const float* param = a.param + lines[l].begin;
    float* along = along_squares + (lines[l].along - along_origin);
    V of_gradient = hn::Zero(d), of_param = hn::Zero(d);
    for_each_vector(lines[l].length, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
      const V g = hn::Mul(load(gradient + i), scale);
      const V square = hn::Mul(g, g);
      const V p = load(param + i);
      store(hn::Add(load(along + i), square), along + i);
      of_gradient = hn::Add(of_gradient, square);
      of_param = hn::MulAdd(p, p, of_param);
    });
    gradient_squares[l] = sum_of(of_gradient);
    param_squares[l] = sum_of(of_param);
  }
}

void squares(AdafactorLines lines, const AdafactorArrays& a, AdafactorFactors factors,
             float* HWY_RESTRICT update_squares) {
  const D d;
  for (size_t l = 0; l < lines.size(); ++l) {
    const FloatPointer gradient = a.gradient + lines[l].begin;
    const float* along = factors.along + lines[l].along;
    const V scale = hn::Set(d, a.gradient_scale),
            across = hn::Set(d, factors.across[lines[l].across]);
    V sum = hn::Zero(d);
    for_each_vector(lines[l].length, [&](int64_t i, const auto& load, const auto&) HWY_ATTR {
      const V g = hn::Mul(load(gradient + i), scale);
      const V update = hn::Mul(hn::Mul(g, across), load(along + i));
      sum = hn::MulAdd(update, update, sum);
    });
    update_squares[l] = sum_of(sum);
  }
}

/// The momentum of a line in float32: where it is, or a copy that goes back rounded at the end.
class LineMomentum {
 public:
  LineMomentum(const AdafactorArrays& a, const AdafactorLine& line) : length_(line.length) {
    if (a.momentum == nullptr) return;
    if (!a.momentum_is_bf16) {
      floats_ = a.momentum + line.begin;
      return;
    }
    rounded_ = reinterpret_cast<bfloat16*>(a.momentum) + line.begin;
    copy_.resize(static_cast<size_t>(length_));
    for (int64_t i = 0; i < length_; ++i) copy_[i] = static_cast<float>(rounded_[i]);
    floats_ = copy_.data();
  }
  ~LineMomentum() {
    for (int64_t i = 0; rounded_ != nullptr && i < length_; ++i) rounded_[i] = bfloat16(copy_[i]);
  }
  LineMomentum(const LineMomentum&) = delete;
  LineMomentum& operator=(const LineMomentum&) = delete;
  float* at(int64_t i) const { return floats_ != nullptr ? floats_ + i : nullptr; }

 private:
  int64_t length_;
  float* floats_ = nullptr;
  bfloat16* rounded_ = nullptr;
  std::vector<float> copy_;
};

/// The end of both forms: momentum, weight decay, the new parameter.
template <class Load, class Store>
HWY_INLINE void store_new_param(V update, float* param, float* momentum,
                                const AdafactorApply& apply, const Load& load, const Store& store,
                                V& bad) {
  const D d;
  if (momentum != nullptr) {
    const V old = load(momentum);
    update = hn::MulAdd(hn::Set(d, apply.beta1), old,
                        hn::Mul(hn::Set(d, apply.one_minus_beta1), update));
    const V kept = apply.skip_nan ? hn::IfThenElse(hn::IsNaN(update), old, update) : update;
    watch(bad, store(kept, momentum));
  }
  const V old = load(param);
  const V updated = hn::MulSub(hn::Set(d, apply.keep), old, update);
  const V kept = apply.skip_nan ? hn::IfThenElse(hn::IsNaN(updated), old, updated) : updated;
  watch(bad, store(kept, param));
}

bool apply_factored(AdafactorLines lines, const AdafactorArrays& a, AdafactorFactors factors,
                    const AdafactorApply& apply) {
  const D d;
  V bad = hn::Zero(d);
  for (const AdafactorLine& line : lines) {
    const FloatPointer gradient = a.gradient + line.begin;
    float* param = a.param + line.begin;
    const LineMomentum momentum(a, line);
    const float* along = factors.along + line.along;
    const V scale = hn::Set(d, a.gradient_scale), across = hn::Set(d, factors.across[line.across]);
    const V step = hn::Set(d, apply.step[line.batch]);
    for_each_vector(line.length, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
      const V g = hn::Mul(load(gradient + i), scale);
      const V update = hn::Mul(step, hn::Mul(hn::Mul(g, across), load(along + i)));
      store_new_param(update, param + i, momentum.at(i), apply, load, store, bad);
    });
  }
  return all_finite(bad);
}

bool moments(AdafactorLines lines, const AdafactorArrays& a, const AdafactorMoments& m,
             float* HWY_RESTRICT update_squares, float* HWY_RESTRICT param_squares) {
  const D d;
  const V scale = hn::Set(d, a.gradient_scale), decay = hn::Set(d, m.decay);
  const V mixing = hn::Set(d, m.mixing), epsilon = hn::Set(d, m.epsilon);
  V bad = hn::Zero(d);
  for (size_t l = 0; l < lines.size(); ++l) {
    const FloatPointer gradient = a.gradient + lines[l].begin;
    const float* param = a.param + lines[l].begin;
    float* v = m.v + lines[l].begin;
    V of_update = hn::Zero(d), of_param = hn::Zero(d);
    const int64_t length = lines[l].length;
    for_each_vector(length, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
      const V g = hn::Mul(load(gradient + i), scale);
      const V p = load(param + i);
      const V old = load(v + i);
      const V next = hn::MulAdd(decay, old, hn::Mul(mixing, hn::MulAdd(g, g, epsilon)));
      watch(bad, store(m.skip_nan ? hn::IfThenElse(hn::IsNaN(next), old, next) : next, v + i));
      // Beyond the end of a short line the lanes are zero: 0 / sqrt(mixing * epsilon), or 0 * inf
      // where epsilon is 0, so those lanes are selected out.
      V update = hn::Mul(g, inverse_root(next));
      const auto left = static_cast<float>(length - i);
      update = hn::IfThenElseZero(hn::Lt(hn::Iota(d, 0), hn::Set(d, left)), update);
      of_update = hn::MulAdd(update, update, of_update);
      of_param = hn::MulAdd(p, p, of_param);
    });
    update_squares[l] = sum_of(of_update);
    param_squares[l] = sum_of(of_param);
  }
  return all_finite(bad);
}

bool apply_full(AdafactorLines lines, const AdafactorArrays& a, const float* v,
                const AdafactorApply& apply) {
  const D d;
  V bad = hn::Zero(d);
  for (const AdafactorLine& line : lines) {
    const FloatPointer gradient = a.gradient + line.begin;
    const float* second = v + line.begin;
    float* param = a.param + line.begin;
    const LineMomentum momentum(a, line);
    const V scale = hn::Set(d, a.gradient_scale), step = hn::Set(d, apply.step[line.batch]);
    for_each_vector(line.length, [&](int64_t i, const auto& load, const auto& store) HWY_ATTR {
      const V g = hn::Mul(load(gradient + i), scale);
      const V update = hn::Mul(step, hn::Mul(g, inverse_root(load(second + i))));
      store_new_param(update, param + i, momentum.at(i), apply, load, store, bad);
    });
  }
  return all_finite(bad);
}

}  // namespace HWY_NAMESPACE
}  // namespace quintet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quintet::cpu {
namespace {
HWY_EXPORT(sums);
HWY_EXPORT(squares);
HWY_EXPORT(apply_factored);
HWY_EXPORT(moments);
HWY_EXPORT(apply_full);
}  // namespace

void factored_sums(AdafactorLines lines, const AdafactorArrays& arrays, int64_t along_origin,
                   float* along_squares, float* gradient_squares, float* param_squares) {
  HWY_DYNAMIC_DISPATCH(sums)
  (lines, arrays, along_origin, along_squares, gradient_squares, param_squares);
}
void factored_squares(AdafactorLines lines, const AdafactorArrays& arrays, AdafactorFactors factors,
                      float* update_squares) {
  HWY_DYNAMIC_DISPATCH(squares)(lines, arrays, factors, update_squares);
}
bool factored_apply(AdafactorLines lines, const AdafactorArrays& arrays, AdafactorFactors factors,
                    const AdafactorApply& apply) {
  return HWY_DYNAMIC_DISPATCH(apply_factored)(lines, arrays, factors, apply);
}
bool full_moments(AdafactorLines lines, const AdafactorArrays& arrays, const AdafactorMoments& m,
                  float* update_squares, float* param_squares) {
  return HWY_DYNAMIC_DISPATCH(moments)(lines, arrays, m, update_squares, param_squares);
}
bool full_apply(AdafactorLines lines, const AdafactorArrays& arrays, const float* v,
                const AdafactorApply& apply) {
  return HWY_DYNAMIC_DISPATCH(apply_full)(lines, arrays, v, apply);
}

}  // namespace quintet::cpu
#endif
