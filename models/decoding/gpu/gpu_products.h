#pragma once
// The products of a decoder's step on a device: few rows (kMaxSmallBatchRows, or what tensor cores take as it
// is) take one kernel for a norm, a product and what follows it; more rows take the ops.

#include "kernels/gpu/gpu_kernels.h"
#include "models/decoding/gpu/gpu_experts.h"

namespace quintet::decoding {

/// Element `element` of a tensor, of its first row.
inline void* at(const Tensor& tensor, int64_t element) {
  return tensor.raw() + element * size_of(tensor.spec().dtype);
}

/// Products of a step's rows with weights, and what stands around them.
class Products {
 public:
  Products(int64_t rows, const GpuWeights& weights) : rows_(rows), network_(weights) {}

  /// rms_norm(x, norm) weights
  Tensor normed(const Tensor& x, const Tensor& norm, const GpuMatrix& weights) const {
    const SmallBatchMatmul p = product({.norm = scale(norm)}, x, weights);
    if (!is_fused(p)) return ops::matmul(ops::rms_norm(x, norm), weights);
    const Tensor y(Spec{{x.spec().axes[0], weights.values.spec().axes[1]}, x.spec().dtype});
    run(p, y);
    return y;
  }
  /// x + h weights, where x was if that saves memory; of ranks that hold the network together the sum of
  /// their products
  Tensor added(const Tensor& x, const Tensor& h, const GpuMatrix& weights) const {
    const SmallBatchMatmul p = product({}, h, weights);
    if (is_fused(p)) return run_onto(x, p);
    const Tensor y = ops::matmul(h, weights);
    network_.sum(y);
    return ops::add(x, y);
  }
  /// A dense MLP's first half of the norm of x.
  Tensor activated(const Tensor& x, const Tensor& norm, const GpuForm::Mlp& mlp) const {
    const SmallBatchMatmul p = first_half(x, norm, mlp);
    if (!is_fused(p))
      return ops::mlp_in(ops::rms_norm(x, norm), mlp.wi_0, mlp.wi_1, mlp.activations);
    const Tensor y(Spec{{x.spec().axes[0], mlp.wi_0.values.spec().axes[1]}, x.spec().dtype});
    run(p, y);
    return y;
  }
  /// x + experts of the norm of `input`, where x was if that saves memory; summed likewise
  Tensor with_experts(const Tensor& x, const Tensor& input, const Tensor& norm,
                      const GpuForm::Experts& experts) const {
    const int64_t choices = rows_ * experts.chosen();
    if (rows_ > kMaxSmallBatchRows || choices > kMaxSmallBatchChoices ||
        !experts.router_bias.absent())
      return add_experts(network_, norm, experts, x, input);
    const GpuForm::Mlp& mlp = experts.mlp;
    const Tensor logits(Spec{{x.spec().axes[0], experts.router.spec().axes[1]}, DType::f32});
    run(product({.norm = scale(norm)}, input, experts.router), logits);
    SmallBatchMatmul p = first_half(input, norm, mlp);
    p.experts = {.logits = logits.local().data<float>(),
                 .count = experts.router.size(1),
                 .chosen = experts.chosen()};
    const Tensor h(Spec{{{"choices", choices}, mlp.wi_0.values.spec().axes[2]}, x.spec().dtype});
    run(p, h);
    SmallBatchMatmul out = product({.experts = p.experts}, h, mlp.wo);
    out.rows = rows_;
    out.experts.joins = true;
    return run_onto(x, out);
  }
  /// Logits of the decoder's norm of x, to float32 `logits`.
  void project(const Tensor& x, const Tensor& logits) const {
    const ModelSpec& spec = network_.spec;
    const SmallBatchMatmul p = product({.norm = scale(network_.decoder.norm),
                                        .transposed = spec.logits_via_embedding,
                                        .scale = static_cast<float>(spec.logit_scale())},
                                       x, network_.logits);
    if (is_fused(p)) return run(p, logits);
    const Tensor y = ops::rms_norm(x, network_.decoder.norm);
    const Tensor rounded = ops::scale(spec.logits_via_embedding ? ops::matmul_t(y, network_.logits)
                                                                : ops::matmul(y, network_.logits),
                                      spec.logit_scale());
    const View from = rounded.local(), to = logits.local();
    Device::current().kernels().cast({&from, 1}, {&to, 1}, Device::current().stream());
  }

 private:
  /// x + p, of which each rank has a part.
  Tensor run_onto(const Tensor& x, SmallBatchMatmul p) const {
    if (network_.ranks.size() == 1) {
      p.residual = x.local().pointer;
      run(p, x);
      return x;
    }
    const Tensor y(x.spec());
    run(p, y);
    network_.sum(y);
    return ops::add(x, y);
  }
  static const float* scale(const Tensor& norm) { return norm.local().data<float>(); }
  static const float* scales(const GpuMatrix& matrix) {
    return matrix.scales.absent() ? nullptr : matrix.scales.local().data<float>();
  }
  bool is_fused(const SmallBatchMatmul& p) const {
    return rows_ <= kMaxSmallBatchRows || p.takes_tiles();
  }
  /// Of an MLP or of experts.
  static SmallBatchMatmul first_half(const Tensor& x, const Tensor& norm, const GpuForm::Mlp& mlp) {
    const Gate gate = Gate::of("mlp_in", mlp.activations, !mlp.wi_1.absent());
    return product({.norm = scale(norm),
                    .gate = mlp.wi_1.absent() ? nullptr : mlp.wi_1.values.local().pointer,
                    .gate_scales = scales(mlp.wi_1),
                    .act0 = gate.act0,
                    .act1 = gate.act1},
                   x, mlp.wi_0);
  }
  static SmallBatchMatmul product(SmallBatchMatmul p, const Tensor& x, const GpuMatrix& weights) {
    p.dtype = x.spec().dtype;
    p.weight_dtype = weights.values.spec().dtype;
    p.weight_scales = scales(weights);
    p.rows = x.size(0);
    p.k = x.size(1);
    p.n = weights.size(p.transposed ? 0 : -1);
    p.x = x.local().pointer;
    p.weights = weights.values.local().pointer;
    return p;
  }
  static void run(SmallBatchMatmul p, const Tensor& out) {
    p.out = out.local().pointer;
    p.out_dtype = out.spec().dtype;
    Device::current().kernels().small_batch_matmul(p, Device::current().stream());
  }
  int64_t rows_;
  const GpuWeights& network_;
};

}  // namespace quintet::decoding
