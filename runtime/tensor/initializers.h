#pragma once
// What a parameter starts with: T5X's and flaxformer's initialisers, to JAX's numbers.
//
//   const Initializer init = variance_scaling(1.0, FanMode::kIn, Distribution::kTruncatedNormal);
//   init(key_of_parameter(root, "encoder/layers_0/mlp/wi_0/kernel"), shape, out);
//
// An initializer fills the global array or, given the first flat index, a block of consecutive
// elements; it knows nothing of tensors and meshes.

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/base/threefry.h"

namespace quintet {

/// Fills elements [begin, begin + out.size()) of the flattened array of `shape` drawn with `key`.
using BlockInitializer = std::function<void(Key key, std::span<const int64_t> shape, uint64_t begin,
                                            std::span<float> out)>;

/// Where the initializer is used for unsharded arrays, begin is 0 and out has as many elements as
/// shape.
class Initializer {
 public:
  Initializer() = default;
  explicit Initializer(BlockInitializer fill) : fill_(std::move(fill)) {}
  void operator()(Key key, std::span<const int64_t> shape, std::span<float> out) const {
    fill_(key, shape, 0, out);
  }
  void block(Key key, std::span<const int64_t> shape, uint64_t begin, std::span<float> out) const {
    fill_(key, shape, begin, out);
  }
  explicit operator bool() const { return static_cast<bool>(fill_); }

 private:
  BlockInitializer fill_;
};

enum class FanMode { kIn, kOut, kAverage };
enum class Distribution { kNormal, kTruncatedNormal, kUniform };

/// jax.nn.initializers.variance_scaling: variance scale / fan. The two axes that count as in and
/// out (negative: from the end), all others but batch_axis being receptive field that multiplies
/// both.
struct VarianceScalingOptions {
  double scale = 1.0;
  FanMode mode = FanMode::kIn;
  Distribution distribution = Distribution::kTruncatedNormal;
  int in_axis = -2;
  int out_axis = -1;
};
Initializer variance_scaling(const VarianceScalingOptions& options);

/// multiplier * the initializer's values; T5 divides its query kernels by sqrt(head_dim) so.
Initializer scaled(const Initializer& initializer, float multiplier);

/// jax.nn.initializers.normal(stddev).
Initializer normal_initializer(double stddev = 1.0);
Initializer constant_initializer(float value);
inline Initializer ones_initializer() { return constant_initializer(1.0f); }
inline Initializer zeros_initializer() { return constant_initializer(0.0f); }

/// T5X's choices by kind of parameter (t5x/examples/t5/network.py, layers.py).
namespace t5_init {
Initializer embedding();                     // normal(1)
Initializer attention_kernel();              // key, value, out: fan-in normal
Initializer query_kernel(int64_t head_dim);  // the same / sqrt(head_dim): logits are not scaled
Initializer mlp_kernel();                    // wi, wo, logits: fan-in truncated normal
Initializer relative_bias();                 // fan-average uniform
Initializer norm_scale();                    // ones
}  // namespace t5_init

}  // namespace quintet
