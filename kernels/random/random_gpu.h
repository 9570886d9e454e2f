#pragma once
// Arrays of random numbers on a GPU, by the keys of kernels/random/random.h.
//
//   device.kernels().fill_normals(views, keys, stream);

#include <span>

#include "kernels/kernel.h"
#include "kernels/simt/target.h"
#include "runtime/base/threefry.h"

namespace quintet::QT_GPU {

/// jax.random.normal(keys[i], global shape) to the blocks arrays[i], float32: within 4e-6 of fill_normal's numbers. One
/// launch for a list of arrays.
void fill_normals_gpu(Views arrays, std::span<const Key> keys, Stream stream);

}  // namespace quintet::QT_GPU
