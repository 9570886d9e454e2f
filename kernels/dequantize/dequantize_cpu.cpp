#include "kernels/cpu/parallel.h"
#include "kernels/dequantize/dequantize.h"
#include "runtime/base/float8.h"

namespace quintet {
namespace {

float stored(const DequantizeRows& p, int64_t at) {
  switch (p.dtype) {
    case DType::bf16:
      return static_cast<float>(static_cast<const bfloat16*>(p.values)[at]);
    case DType::i8:
      return static_cast<float>(static_cast<const int8_t*>(p.values)[at]);
    case DType::u8:
      return static_cast<float>(static_cast<const float8*>(p.values)[at]);
    default:
      return static_cast<const float*>(p.values)[at];
  }
}

}  // namespace

void dequantize_rows_cpu(const DequantizeRows& p) {
  QT_ASSERT(p.out_dtype == DType::f32);
  for (int64_t i = 0; p.ids != nullptr && i < p.rows; ++i)
    QT_CHECK_AS(ExitCode::kData, p.ids[i] >= 0 && p.ids[i] < p.table_rows,
                "embed: id {} at position {}: expected 0 to {}; does the vocabulary fit the model?",
                p.ids[i], i, p.table_rows - 1);
  constexpr int64_t kGrain = 1 << 14;  // elements of a thread, at least
  cpu::parallel_for(
      p.rows, kGrain / std::max<int64_t>(p.columns, 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = p.ids != nullptr ? p.ids[i] : i;
          const float* scales = p.scales == nullptr ? nullptr
                                : p.rows_together == 0
                                    ? p.scales + row
                                    : p.scales + row / p.rows_together * p.columns;
          float* out = static_cast<float*>(p.out) + i * p.columns;
          for (int64_t c = 0; c < p.columns; ++c)
            out[c] = stored(p, row * p.columns + c) *
                     (scales == nullptr ? 1.0f : scales[p.rows_together == 0 ? 0 : c]) * p.factor;
        }
      });
}

}  // namespace quintet
