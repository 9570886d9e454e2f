#pragma once
// What a matrix product of few rows on a GPU takes; meaning and limits: small_batch_matmul_gpu.h.

#include "kernels/kernel.h"
#include "kernels/mlp/mlp.h"

namespace quintet {

/// Rows that every product of this folder takes, whatever its operands.
inline constexpr int64_t kMaxSmallBatchRows = 8;

/// Rows beyond which tensor cores multiply, if they take the operands (takes_tiles()).
inline constexpr int64_t kMaxColumnRows = 4;

/// And the most that they multiply here, of bfloat16 with more than kMaxLargeTileRows of matrices of up to so many
/// elements; others are a library's (README.md says why).
inline constexpr int64_t kMaxTileRows = 128, kMaxLargeTileRows = 64, kMaxTiledElements = 1 << 24;

/// Choices of experts beyond which they are no small-batch product: a warp groups them.
inline constexpr int64_t kMaxSmallBatchChoices = 32;

/// A mixture of experts in place of one matrix: each row has those of its `chosen` largest
/// probabilities, softmax(logits). Ties go to the lower expert.
struct SmallBatchExperts {
  const float* logits = nullptr;  // [rows, count], written by kernels before; null: one matrix
  int64_t count = 0, chosen = 0;  // rows * chosen <= kMaxSmallBatchChoices
  // False: `out` has a row for each choice, choice j of row r being r chosen + j. True: x has, and out
  // [rows, n] sums over a row's choices, weighted by their probabilities.
  bool joins = false;
};

struct SmallBatchMatmul {
  DType dtype = DType::bf16;  // of x and the residual: float32 or bfloat16
  // Of the weights: `dtype`, bfloat16, or a byte with a scale a column, int8 or (uint8) float8's bits.
  DType weight_dtype = DType::bf16;
  int64_t rows = 0, k = 0, n = 0;
  const void* x = nullptr;      // [rows, k]
  const float* norm = nullptr;  // [k] scale of an RMS norm of x's rows before the product, or null
  float eps = 1e-6f;            // of the norm
  const void* weights = nullptr;  // [k, n], or transposed [n, k]
  bool transposed = false;
  const void* gate = nullptr;  // [k, n] second weights, or null; not transposed
  const float *weight_scales = nullptr, *gate_scales = nullptr;     // [n] of weights in a byte
  Activation act0 = Activation::linear, act1 = Activation::linear;  // of x weights, of x gate
  float scale = 1;                 // of the product, before the residual
  const void* residual = nullptr;  // [rows, n] added, or null; may be `out`
  SmallBatchExperts experts = {};  // their weights and gates: [count, k, n], scales [count, n]
  void* out = nullptr;             // [rows, n]
  DType out_dtype = DType::bf16;   // `dtype` or float32

  /// Whether tensor cores read the weights as they are, in bfloat16 or a byte, 16 bytes of a row at a time.
  bool takes_tiles() const {
    const bool byte = weight_dtype == DType::i8 || weight_dtype == DType::u8;
    return rows > kMaxColumnRows && rows <= kMaxTileRows && dtype == DType::bf16 && !transposed &&
           experts.logits == nullptr && n % (byte ? 16 : 8) == 0 && k % 8 == 0 &&
           (byte || (weight_dtype == DType::bf16 &&
                     (rows <= kMaxLargeTileRows || k * n <= kMaxTiledElements)));
  }
};

}  // namespace quintet
