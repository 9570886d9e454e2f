#pragma once
// A matrix of GpuWeights: in the dtype that is computed in, or in fewer bits. Products of few rows
// read it as it is; an op takes it like a tensor, dequantized for that one use.
//
//   const Tensor y = ops::matmul(x, matrix);   // [k, n] for the time of the product

#include "models/decoding/network/quantized_parameters.h"
#include "runtime/tensor/tensor.h"

namespace quintet::decoding {

struct GpuMatrix {
  Tensor values;  // [.., k, n]: in `compute_dtype`, or bfloat16, int8, uint8 (float8's bits)
  Tensor scales;  // float32, of values in a byte: [.., n]; of a table's rows: [k]
  bool by_row = false;
  DType compute_dtype = DType::f32;  // float32 or bfloat16: what is computed in

  GpuMatrix() = default;
  GpuMatrix(const Tensor& plain)  // NOLINT: most are
      : values(plain), compute_dtype(plain.absent() ? DType::f32 : plain.spec().dtype) {}
  /// Uploads a parameter of these axes.
  GpuMatrix(const QuantizedParameter& parameter, const Axes& axes, bool by_row,
            DType compute_dtype);

  bool absent() const { return values.absent(); }
  int64_t size(int dimension) const { return values.size(dimension); }
  /// Whether ops can read the values themselves.
  bool is_dequantized() const { return values.spec().dtype == compute_dtype; }
  /// [.., k, n] in `compute_dtype`: the values themselves if they are, else another tensor.
  Tensor dequantized() const;
  operator Tensor() const {
    return absent() ? Tensor() : dequantized();
  }  // NOLINT: operand of an op
  /// Rows [ids] of a table [vocab, embed] in `compute_dtype`: [axes.., embed]; ids: int32 [axes..] on
  /// the device.
  Tensor rows(const int32_t* ids, Axes axes) const;

 private:
  /// Rows [ids], or the first ones in order, to `out` in `compute_dtype`.
  void dequantize(const int32_t* ids, int64_t rows, const Tensor& out) const;
};

/// Matrices of equal height side by side: one product instead of several.
GpuMatrix side_by_side(const std::vector<GpuMatrix>& parts);

}  // namespace quintet::decoding
