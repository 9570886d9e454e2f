// A bfloat16 x is multiplied by tensor cores without losing the router's float32: the float32 operand
// is cut into three parts of 8 bits each, their products come from one bfloat16 product three times as
// wide and are added. With jitter, x itself is float32.

#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/moe/router_gpu.h"
#include "kernels/random/threefry.cuh"
#include "kernels/simt/host/gemm.h"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU::moe {
namespace {

constexpr int kParts = 3;

/// Factors of x, drawn by global element (random.h's fill_uniform).
struct Jitter {
  KeySource key;
  uint64_t begin = 0;
  float low = 1, high = 1;

  Jitter(const View& x, const Attrs& attrs) {
    const double jitter = attrs.get_or<double>("jitter", 0.0);
    if (jitter == 0) return;
    key = KeySource(attrs);
    begin = static_cast<uint64_t>(x.origin[0] * x.size(1) * x.size(2));
    low = static_cast<float>(1 - jitter), high = static_cast<float>(1 + jitter);
  }
  __host__ __device__ bool is_on() const { return low != high; }
  __device__ float operator()(int64_t i) const {
    if (!is_on()) return 1;
    const uint32_t bits = threefry_bits(key(), begin + static_cast<uint64_t>(i));
    const float unit = __uint_as_float(bits >> 9 | 0x3f800000u) - 1.0f;
    return fmaxf(low, fmaf(unit, high - low, low));
  }
};

/// y = x times the jitter. y may be x.
template <typename T, typename U>
__global__ void __launch_bounds__(kBlockThreads)
    jitter_kernel(const __grid_constant__ Jitter jitter, const T* x, U* y, int64_t n) {
  for_units<1>(n, false, [&](int64_t i, auto) {
    y[i] = simt::from_float<U>(simt::to_float(x[i]) * jitter(i));
  });
}

/// Row by row: columns of x as kParts times as many bfloat16, the leading bits of all of them first.
__global__ void __launch_bounds__(kBlockThreads)
    split_kernel(const float* x, bf16* parts, int64_t rows, int64_t columns) {
  for_units<1>(rows * columns, false, [&](int64_t i, auto) {
    bf16* to = parts + i / columns * kParts * columns + i % columns;
    float rest = x[i];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const bf16 leading = simt::from_float<bf16>(rest);
      to[part * columns] = leading;
      rest -= simt::to_float(leading);
    }
  });
}
/// The sums of kParts blocks of columns, and of `addend`: null, x or another.
__global__ void __launch_bounds__(kBlockThreads)
    join_kernel(const float* parts, const float* addend, float* x, int64_t rows, int64_t columns) {
  for_units<1>(rows * columns, false, [&](int64_t i, auto) {
    const float* from = parts + i / columns * kParts * columns + i % columns;
    const float sum = from[0] + (from[columns] + from[2 * columns]);
    x[i] = addend == nullptr ? sum : addend[i] + sum;
  });
}

/// Row by row.
__global__ void __launch_bounds__(kBlockThreads)
    add_bias_kernel(const float* bias, float* logits, int64_t rows, int64_t columns) {
  for_units<1>(rows * columns, false, [&](int64_t i, auto) { logits[i] += bias[i % columns]; });
}

simt::Launch over(int64_t n, Stream stream) {
  return {.grid = blocks_for(n), .block = kBlockThreads, .stream = stream};
}
simt::Scratch split(const float* x, int64_t rows, int64_t columns, Stream stream) {
  simt::Scratch parts(rows * columns * kParts * 2, stream);
  simt::launch(split_kernel, over(rows * columns, stream), x, parts.data<bf16>(), rows, columns);
  return parts;
}

/// x in float32 with the jitter, in memory of its own if it must be.
struct Float32 {
  simt::Scratch workspace;
  const float* data;

  Float32(const View& x, const Jitter& jitter, Stream stream)
      : workspace(is_bf16(x) || jitter.is_on() ? x.elements() * 4 : 0, stream),
        data(workspace.data<float>()) {
    if (!is_bf16(x) && !jitter.is_on()) {
      data = x.data<const float>();
      return;
    }
    for_dtype(x, "route", [&]<typename T>(T) {
      simt::launch(jitter_kernel<T, float>, over(x.elements(), stream), jitter,
                   elements<T>(x, "route", "x"), workspace.data<float>(), x.elements());
    });
  }
};

/// x w
void product(const View& x, const View& w, const Attrs& attrs, float* logits, Stream stream) {
  const int64_t tokens = x.rows(), embed = x.depth(), experts = w.depth();
  const Jitter jitter(x, attrs);
  const float* weights = elements<float>(w, "route", "w");
  if (is_bf16(x) && !jitter.is_on()) {
    const simt::Scratch parts = split(weights, embed, experts, stream);
    const simt::Scratch products(tokens * experts * kParts * 4, stream);
    simt::gemm(stream, {.m = tokens,
                        .n = kParts * experts,
                        .k = embed,
                        .a = x.pointer,
                        .b = parts.data<bf16>(),
                        .c = products.data<float>(),
                        .type = DType::bf16});
    simt::launch(join_kernel, over(tokens * experts, stream), products.data<float>(), nullptr,
                 logits, tokens, experts);
    return;
  }
  const Float32 from(x, jitter, stream);
  simt::gemm(stream,
             {.m = tokens, .n = experts, .k = embed, .a = from.data, .b = weights, .c = logits});
}

/// The sums of columns, and of `addend`.
void bias_gradient(const float* dlogits, int64_t tokens, const View& dbias, const void* addend,
                   Stream stream) {
  const simt::Scratch ones(tokens * 4, stream);
  const int64_t sizes[] = {tokens};
  if (tokens > 0) fill_gpu(View::of(ones.data<float>(), sizes), 1, stream);
  simt::gemm(stream, {.m = 1,
                      .n = dbias.elements(),
                      .k = tokens,
                      .a = ones.data<float>(),
                      .b = dlogits,
                      .c = dbias.pointer,
                      .addend = addend});
}

/// dlogits w^T and x^T dlogits + dw_addend
void product_gradients(const View& x, const View& w, const Attrs& attrs, const float* dlogits,
                       const View& dx, const View& dw, const void* dw_addend, Stream stream) {
  const int64_t tokens = x.rows(), embed = x.depth(), experts = w.depth();
  const Jitter jitter(x, attrs);
  const float* weights = elements<float>(w, "route", "w");
  if (is_bf16(x) && !jitter.is_on()) {
    const simt::Scratch parts = split(dlogits, tokens, experts, stream);
    const simt::Scratch leading = split(weights, embed, experts, stream);
    // dx is rounded to 8 bits: the leading parts are enough.
    simt::gemm(stream, {.m = tokens,
                        .n = embed,
                        .k = experts,
                        .a = parts.data<bf16>(),
                        .b = leading.data<bf16>(),
                        .c = dx.pointer,
                        .type = DType::bf16,
                        .c_type = DType::bf16,
                        .b_transposed = true,
                        .lda = kParts * experts,
                        .ldb = kParts * experts});
    const simt::Scratch products(embed * experts * kParts * 4, stream);
    simt::gemm(stream, {.m = embed,
                        .n = kParts * experts,
                        .k = tokens,
                        .a = x.pointer,
                        .b = parts.data<bf16>(),
                        .c = products.data<float>(),
                        .type = DType::bf16,
                        .a_transposed = true});
    simt::launch(join_kernel, over(embed * experts, stream), products.data<float>(),
                 static_cast<const float*>(dw_addend), dw.data<float>(), embed, experts);
    return;
  }
  const Float32 from(x, jitter, stream);
  simt::gemm(stream, {.m = embed,
                      .n = experts,
                      .k = tokens,
                      .a = from.data,
                      .b = dlogits,
                      .c = dw.pointer,
                      .a_transposed = true,
                      .addend = dw_addend});
  const simt::Scratch workspace(is_bf16(dx) ? dx.elements() * 4 : 0, stream);
  float* dx_float = is_bf16(dx) ? workspace.data<float>() : dx.data<float>();
  simt::gemm(stream, {.m = tokens,
                      .n = embed,
                      .k = experts,
                      .a = dlogits,
                      .b = weights,
                      .c = dx_float,
                      .b_transposed = true});
  if (!jitter.is_on() || dx.elements() == 0) return;
  for_dtype(dx, "route_grad", [&]<typename T>(T) {
    simt::launch(jitter_kernel<float, T>, over(dx.elements(), stream), jitter, dx_float,
                 elements<T>(dx, "route_grad", "dx"), dx.elements());
  });
}

}  // namespace

void router_product(const View& x, const View& w, const View& bias, const Attrs& attrs,
                    float* logits, Stream stream) {
  const int64_t tokens = x.rows(), experts = w.depth();
  if (tokens * experts == 0) return;
  product(x, w, attrs, logits, stream);
  if (!bias.absent())
    simt::launch(add_bias_kernel, over(tokens * experts, stream),
                 elements<float>(bias, "route", "bias"), logits, tokens, experts);
}

void router_gradients(const View& x, const View& w, const Attrs& attrs, const float* dlogits,
                      const View& dx, const View& dw, const void* dw_addend, const View& dbias,
                      const void* dbias_addend, Stream stream) {
  product_gradients(x, w, attrs, dlogits, dx, dw, dw_addend, stream);
  if (!dbias.absent()) bias_gradient(dlogits, x.rows(), dbias, dbias_addend, stream);
}

}  // namespace quintet::QT_GPU::moe
