#include "runtime/tensor/initializers.h"

#include <algorithm>
#include <cmath>

#include "kernels/random/random.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// Fan in and out of an array: the sizes of its two axes, times all others.
struct Fans {
  double in, out;
};
Fans fans_of(std::span<const int64_t> shape, int in_axis, int out_axis) {
  const auto rank = static_cast<int>(shape.size());
  QT_CHECK(rank >= 2, "variance_scaling: needs an array of at least 2 axes, got {}", rank);
  const auto at = [&](int axis) {
    return static_cast<double>(shape[static_cast<size_t>(axis < 0 ? rank + axis : axis)]);
  };
  double all = 1;
  for (int64_t size : shape) all *= static_cast<double>(size);
  const double field = all / at(in_axis) / at(out_axis);
  return {at(in_axis) * field, at(out_axis) * field};
}

double fan_of(std::span<const int64_t> shape, const VarianceScalingOptions& options) {
  const Fans fans = fans_of(shape, options.in_axis, options.out_axis);
  switch (options.mode) {
    case FanMode::kIn:
      return fans.in;
    case FanMode::kOut:
      return fans.out;
    case FanMode::kAverage:
      return (fans.in + fans.out) / 2;
  }
  throw Bug("variance_scaling: unknown fan mode");
}

/// Standard deviation of a standard normal cut to [-2, 2].
constexpr double kTruncatedDeviation = 0.87962566103423978;

}  // namespace

Initializer variance_scaling(const VarianceScalingOptions& options) {
  return Initializer([options](Key key, std::span<const int64_t> shape, uint64_t begin,
                               std::span<float> out) {
    const auto variance = static_cast<float>(options.scale / std::max(1.0, fan_of(shape, options)));
    switch (options.distribution) {
      case Distribution::kNormal:
        return fill_normal(key, begin, out, std::sqrt(variance));
      case Distribution::kTruncatedNormal:
        return fill_truncated_normal(key, begin, out, -2.0f, 2.0f,
                                     std::sqrt(variance) / static_cast<float>(kTruncatedDeviation));
      case Distribution::kUniform:
        return fill_uniform(key, begin, out, -1.0f, 1.0f, std::sqrt(3.0f * variance));
    }
  });
}

Initializer scaled(const Initializer& initializer, float multiplier) {
  return Initializer([initializer, multiplier](Key key, std::span<const int64_t> shape,
                                               uint64_t begin, std::span<float> out) {
    initializer.block(key, shape, begin, out);
    for (float& value : out) value *= multiplier;
  });
}

Initializer normal_initializer(double stddev) {
  return Initializer([scale = static_cast<float>(stddev)](Key key, std::span<const int64_t>,
                                                          uint64_t begin, std::span<float> out) {
    fill_normal(key, begin, out, scale);
  });
}

Initializer constant_initializer(float value) {
  return Initializer([value](Key, std::span<const int64_t>, uint64_t, std::span<float> out) {
    std::fill(out.begin(), out.end(), value);
  });
}

namespace t5_init {
Initializer embedding() { return normal_initializer(1.0); }
Initializer attention_kernel() { return variance_scaling({.distribution = Distribution::kNormal}); }
Initializer query_kernel(int64_t head_dim) {
  return scaled(attention_kernel(), 1.0f / std::sqrt(static_cast<float>(head_dim)));
}
Initializer mlp_kernel() { return variance_scaling({}); }
Initializer relative_bias() {
  return variance_scaling({.mode = FanMode::kAverage, .distribution = Distribution::kUniform});
}
Initializer norm_scale() { return ones_initializer(); }
}  // namespace t5_init

}  // namespace quintet
