#pragma once
// Rows of a quantized matrix, dequantized: before products of many rows, and
// of an embedding table for the tokens that are there.
//
//   out[i, c] = values[ids ? ids[i] : i, c] * scale * factor, rounded to out's dtype
//
// One pass over memory: b bytes of a weight are read, those of the dequantized one written and read again by
// what uses it.

#include "kernels/kernel.h"

namespace quintet {

struct DequantizeRows {
  DType dtype = DType::bf16;      // of values: float32, bfloat16, int8, or uint8: float8's bits
  const void* values = nullptr;   // [table rows, columns]
  const float* scales = nullptr;  // or null
  // How many rows have the same scales, a number a column: those of one matrix of several; 0: the
  // scales are a number a row.
  int64_t rows_together = 0;
  float factor = 1;
  const int32_t* ids = nullptr;  // [rows] rows of the table, or null: all in order
  int64_t table_rows = 0, rows = 0, columns = 0;
  void* out = nullptr;           // [rows, columns]
  DType out_dtype = DType::f32;  // or bfloat16, on a GPU
};

/// Throws kData for an id outside the table.
void dequantize_rows_cpu(const DequantizeRows& rows);

}  // namespace quintet
