#include "kernels/dequantize/dequantize_gpu.h"
#include "kernels/simt/fault.cuh"
#include "kernels/simt/narrow.cuh"
#include "kernels/vectors/vectors.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kUnit = 8;  // elements of a thread at a time

template <int kCount, typename W>
QT_DEVICE void load_stored(const W* p, float (&v)[kCount]) {
  if constexpr (kCount == 1) {
    v[0] = simt::to_float(*p);
  } else if constexpr (sizeof(W) == 1) {
    uint32_t words[kCount / 4];
    load_words(p, words);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      float four[4];
      simt::widen<W>(words[i], four);
#pragma unroll
      for (int c = 0; c < 4; ++c) v[4 * i + c] = four[c];
    }
  } else {
    load<kCount>(p, v);
  }
}

template <typename W, typename T>
__global__ void __launch_bounds__(kBlockThreads)
    dequantize_kernel(const __grid_constant__ DequantizeRows p, bool vector, FaultSlot* fault) {
  const auto* values = static_cast<const W*>(p.values);
  T* out = static_cast<T*>(p.out);
  for_units<kUnit>(p.rows * p.columns, vector, [&](int64_t at, auto count) {
    constexpr int kCount = decltype(count)::value;
    const int64_t i = at / p.columns, column = at % p.columns;
    const int64_t row = p.ids != nullptr ? p.ids[i] : i;
    float v[kCount] = {};
    if (row >= 0 && row < p.table_rows) {
      load_stored<kCount>(values + row * p.columns + column, v);
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        if (p.scales != nullptr)
          v[c] *= p.rows_together == 0 ? p.scales[row]
                                       : p.scales[row / p.rows_together * p.columns + column + c];
        v[c] *= p.factor;
      }
    } else if (column == 0) {
      simt::raise_fault(fault, FaultCode::kEmbedId, row, i, p.table_rows);
    }
    store<kCount>(out + at, v);
  });
}

template <typename W>
void dequantize_to(const DequantizeRows& p, Stream stream) {
  const bool vector = p.columns % kUnit == 0 && are_aligned({p.values, p.out});
  const int64_t threads = p.rows * p.columns / (vector ? kUnit : 1);
  const simt::Launch how{.grid = blocks_for(threads), .block = kBlockThreads, .stream = stream};
  if (p.out_dtype == DType::f32)
    simt::launch(dequantize_kernel<W, float>, how, p, vector, simt::fault_slot());
  else
    simt::launch(dequantize_kernel<W, bf16>, how, p, vector, simt::fault_slot());
}

}  // namespace

void dequantize_rows_gpu(const DequantizeRows& p, Stream stream) {
  QT_ASSERT(p.out_dtype == DType::f32 || p.out_dtype == DType::bf16);
  if (p.rows * p.columns == 0) return;
  switch (p.dtype) {
    case DType::f32:
      return dequantize_to<float>(p, stream);
    case DType::bf16:
      return dequantize_to<bf16>(p, stream);
    case DType::i8:
      return dequantize_to<int8_t>(p, stream);
    case DType::u8:
      return dequantize_to<simt::e4m3>(p, stream);
    default:
      QT_ASSERT(false);
  }
}

}  // namespace quintet::QT_GPU
