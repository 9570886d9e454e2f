#pragma once
// Mixtures of experts on the current device; those of a step turn no row away, as on the CPU
// (experts.h). Which experts a row has never reaches the host.

#include "models/decoding/gpu/gpu_weights.h"

namespace quintet::decoding {

/// What experts of a network make of h [batch, length, embed], normalized; the same axes. Adds to
/// `routings` where they are not null.
Tensor through_experts(const GpuWeights& network, const GpuForm::Experts& experts, const Tensor& h,
                       const ops::RouteOptions& routing,
                       std::vector<LayerRouting>* routings = nullptr);

/// x + experts of rms_norm(input, norm); both [rows, embed]. Of many rows: few take kernels of their
/// own (gpu_products.h).
Tensor add_experts(const GpuWeights& network, const Tensor& norm, const GpuForm::Experts& experts,
                   const Tensor& x, const Tensor& input);

}  // namespace quintet::decoding
