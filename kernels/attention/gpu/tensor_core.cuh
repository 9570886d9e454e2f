#pragma once
// Entry points of the tensor-core paths, and what their choice rests on. bfloat16 operands,
// products accumulated in float32, head sizes that are multiples of 8 up to 128.

#include "kernels/attention/gpu/fragment.cuh"
#include "kernels/attention/gpu/prepare.cuh"

namespace quintet::QT_GPU::attention {

/// The most diagonals that the kernels keep in shared memory (T5 has 128).
inline constexpr int kMostReach = 256;

/// `p` was prepared with the bias diagonals divided by the scale, which is above 0; Statistics with unit
/// log2(e).
void forward_mma(const Prepared& p, bf16* out, float* lse, Stream stream);
/// `ping_pong`: the warpgroups multiply in turns; heads of at most 64 columns only.
void forward_wgmma(const Prepared& p, bf16* out, float* lse, Stream stream, bool ping_pong);
void backward_mma(const Prepared& p, const Statistics& s, const bf16* dout, bf16* dq, bf16* dk,
                  bf16* dv, float* dtable, Stream stream);
/// Makes statistics itself, of out [b, q, h*d] and lse [b, h, q] as the forward pass left them.
void backward_wgmma(const Prepared& p, const bf16* out, const float* lse, const bf16* dout,
                    bf16* dq, bf16* dk, bf16* dv, float* dtable, Stream stream);

}  // namespace quintet::QT_GPU::attention
