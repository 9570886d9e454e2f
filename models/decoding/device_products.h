#pragma once
// The products of a decoder's step on a device: few rows (kMostSkinnyRows) take one kernel for a
// norm, a product and what follows it; more rows take the ops.

#include "kernels/gpu_kernels.h"
#include "models/decoding/device_weights.h"

namespace quintet::decoding {

/// Element `element` of a tensor, of its first row.
inline void* at(const Tensor& tensor, int64_t element) {
  return static_cast<std::byte*>(tensor.local().pointer) + element * size_of(tensor.spec().dtype);
}

/// Products of a step's rows with weights, and what stands around them.
class Products {
 public:
  explicit Products(int64_t rows) : skinny_(rows <= kMostSkinnyRows) {}

  /// rms_norm(x, norm) weights
  Tensor normed(const Tensor& x, const Tensor& norm, const Tensor& weights) const {
    if (!skinny_) return ops::matmul(ops::rms_norm(x, norm), weights);
    const Tensor y(Spec{{x.spec().axes[0], weights.spec().axes[1]}, x.spec().dtype});
    run({.norm = scale(norm)}, x, weights, y);
    return y;
  }
  /// x + h weights, where x was if that saves memory
  Tensor added(const Tensor& x, const Tensor& h, const Tensor& weights) const {
    if (!skinny_) return ops::add(x, ops::matmul(h, weights));
    run({.residual = x.local().pointer}, h, weights, x);
    return x;
  }
  /// A dense MLP's first half of the norm of x.
  Tensor activated(const Tensor& x, const DeviceWeights::Mlp& mlp) const {
    const std::vector<std::string>& names = mlp.activations;
    if (!skinny_) return ops::mlp_in(ops::rms_norm(x, mlp.norm), mlp.wi_0, mlp.wi_1, names);
    const Tensor y(Spec{{x.spec().axes[0], mlp.wi_0.spec().axes[1]}, x.spec().dtype});
    run({.norm = scale(mlp.norm),
         .gate = mlp.wi_1.absent() ? nullptr : mlp.wi_1.local().pointer,
         .act0 = activation_from_name(names[0]),
         .act1 = mlp.wi_1.absent() ? Activation::linear : activation_from_name(names[1])},
        x, mlp.wi_0, y);
    return y;
  }
  /// Logits of rms_norm(x, norm), to float32 `logits`.
  void project(const Tensor& x, const Tensor& norm, const Projection& projection,
               const Tensor& logits) const {
    if (skinny_)
      return run({.norm = scale(norm),
                  .transposed = projection.tied,
                  .scale = static_cast<float>(projection.logit_scale)},
                 x, projection.kernel, logits);
    const Tensor rounded = projection.logits(ops::rms_norm(x, norm));
    const View from = rounded.local(), to = logits.local();
    Device::current().kernels().cast({&from, 1}, {&to, 1}, Device::current().stream());
  }

 private:
  static const float* scale(const Tensor& norm) { return norm.local().data<float>(); }
  static void run(SkinnyMatmul p, const Tensor& x, const Tensor& weights, const Tensor& out) {
    p.dtype = x.spec().dtype;
    p.rows = x.size(0);
    p.k = x.size(1);
    p.n = weights.size(p.transposed ? 0 : 1);
    p.x = x.local().pointer;
    p.weights = weights.local().pointer;
    p.out = out.local().pointer;
    p.out_dtype = out.spec().dtype;
    Device::current().kernels().skinny_matmul(p, Device::current().stream());
  }
  bool skinny_;
};

}  // namespace quintet::decoding
