#pragma once
// Device kernels that are not ops, as a table: what parameters, optimizers and generation call
// through Device::kernels(). Each is declared, with its meaning, in the header named beside it, in
// namespaces quintet::cuda and quintet::emulated.

#include <span>

#include "kernels/decode_attention/decode_rows.h"
#include "kernels/decode_matmul/small_batch.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/fp8/fp8.h"
#include "kernels/kernel.h"
#include "kernels/logits/sample_rows.h"
#include "kernels/optimizers/amos_cells.h"
#include "kernels/optimizers/gpu_arrays.h"
#include "kernels/rotary/rotary.h"
#include "runtime/base/threefry.h"

namespace quintet {

struct GpuKernels {
  /// to[i] = from[i] in to[i]'s dtype (float32, bfloat16), for a list of arrays. kernels/cast/cast_gpu.h
  void (*cast)(Views from, Views to, Stream stream);
  /// Every element becomes a number; a float32 array grows by another; a word of pinned memory grows by
  /// one. elementwise_gpu.h
  void (*fill)(const View& y, float value, Stream stream);
  void (*accumulate)(const View& sum, const View& x, Stream stream);
  void (*count_up)(uint32_t* word, Stream stream);
  /// Optimizers over lists of arrays. kernels/optimizers/optimizers_gpu.h
  void (*update_adam)(std::span<const UpdateArrays> arrays, const cpu::AdamStep& step,
                      const cpu::GradientUse& use, const UpdateControl* control, Stream stream);
  void (*update_lion)(std::span<const UpdateArrays> arrays, const cpu::LionStep& step,
                      const cpu::GradientUse& use, const UpdateControl* control, Stream stream);
  void (*update_sgd)(std::span<const UpdateArrays> arrays, const cpu::SgdStep& step,
                     const cpu::GradientUse& use, const UpdateControl* control, Stream stream);
  void (*update_rules)(std::span<const RuleArrays> arrays, std::span<const RuleStep> steps,
                       Stream stream);
  void (*sum_amos_cells)(std::span<const AmosCells> arrays, Stream stream);
  void (*update_amos_cells)(std::span<const AmosCells> arrays, const rules::Amos& rule,
                            const UpdateControl* control, Stream stream);
  void (*update_adafactor)(std::span<const AdafactorGpuArray> arrays, const AdafactorStep& step,
                           const UpdateControl* control, const ExchangeSums& exchange,
                           Stream stream);
  void (*measure_arrays)(Views arrays, ArrayStatistics* statistics, double* squares, Stream stream);
  void (*summarize_gradients)(const double* squares, const int32_t* marks, int64_t count,
                              GradientSummary* summary, Stream stream);
  void (*decide_update)(const double* squares, double max_norm, const UpdateControl* given,
                        UpdateControl* control, Stream stream);
  void (*fill_normals)(Views arrays, std::span<const Key> keys,
                       Stream stream);  // kernels/random/random_gpu.h
  void (*update_fp8_scaling)(const Fp8Update& update, const UpdateControl* control,
                             Stream stream);  // kernels/fp8/fp8_gpu.h
  /// Generation. kernels/decode_matmul/small_batch_matmul_gpu.h,
  /// kernels/decode_attention/decode_attention_gpu.h, kernels/logits/logits_gpu.h
  void (*small_batch_matmul)(const SmallBatchMatmul& product, Stream stream);
  void (*dequantize_rows)(const DequantizeRows& rows,
                          Stream stream);  // kernels/dequantize/dequantize_gpu.h
  void (*rotate_rows)(const RotateRows& rows, Stream stream);  // kernels/rotary/rotary_gpu.h
  void (*decode_self)(const DecodeSelf& attention, Stream stream);
  void (*decode_cross)(const DecodeCross& attention, Stream stream);
  void (*follow_sources)(const FollowSources& follow, Stream stream);
  void (*decode_paged)(const DecodePaged& attention, Stream stream);
  void (*store_paged)(const StorePaged& store, Stream stream);
  void (*sample)(const SampleRows& rows, Stream stream);
  void (*draw)(const DrawRows& draws, Stream stream);
  void (*advance_samples)(const SampleStep& step, Stream stream);
  void (*top)(const TopRows& rows, Stream stream);
  void (*beam)(const BeamStep& step, Stream stream);
};

}  // namespace quintet
