#include "models/decoding/gpu/gpu_experts.h"

#include "models/decoding/gpu/gpu_inputs.h"

namespace quintet::decoding {

Tensor through_experts(const GpuWeights& network, const GpuForm::Experts& experts, const Tensor& h,
                       const ops::RouteOptions& routing, std::vector<LayerRouting>* routings) {
  const GpuForm::Mlp& mlp = experts.mlp;
  const ops::Routed routed = ops::route(h, experts.router, experts.router_bias, routing);
  Tensor y = ops::dispatch(h, routed);  // [batch, rows, embed], packed by expert
  y = ops::experts_in(y, routed.offsets, mlp.wi_0, mlp.wi_1, mlp.activations);
  y = ops::combine(ops::grouped_matmul(y, routed.offsets, mlp.wo), routed);
  network.sum(y);
  if (routings != nullptr)
    routings->push_back({routed.auxiliary_loss, routed.z_loss, routed.counts, routed.load});
  return y;
}

Tensor add_experts(const GpuWeights& network, const Tensor& norm, const GpuForm::Experts& experts,
                   const Tensor& x, const Tensor& input) {
  const std::vector<Axis>& axes = x.spec().axes;  // [rows, embed]
  const Tensor h = with_axes(ops::rms_norm(input, norm),
                             {{axis::kBatch, 1}, {axis::kLength, axes[0].size}, axes[1]});
  const ops::RouteOptions routing{
      .num_selected_experts = experts.chosen(), .group_size = axes[0].size, .groups = 1};
  return ops::add(x, with_axes(through_experts(network, experts, h, routing), axes));
}

}  // namespace quintet::decoding
