#pragma once
// Matrices that one product multiplies by (kernels/matmul): where products are batched, and which may be.

#include "kernels/device.h"
#include "runtime/mesh/layout.h"

namespace quintet {

/// Whether products with several matrices are one launch, so that these lie side by side: on GPUs, also simulated ones. A CPU
/// gains nothing, as its cores are busy with each product.
bool batches_products(const Device& device);

/// Of a matrix [in, out]: whether ranks, if there are several, have the whole of it and rows of their own to multiply, or have columns of
/// their own, those of their heads, as tensor parallelism places them. Others are gathered, and their gradients scattered, one by one.
bool is_multiplied_as_placed(const Layout& matrix);

}  // namespace quintet
