#pragma once
// The optimizers' passes on a GPU, each over all parameters in one launch (a list of any length).
// All pointers are device memory, arrays float32, gradients float32 or bfloat16. Sums have a fixed order.
//
//   update_adam_gpu(arrays, step, {.scale = clipped}, control, stream);

#include <span>

#include "kernels/kernel.h"
#include "kernels/optimizers/amos_cells.h"
#include "kernels/optimizers/gpu_arrays.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

/// cpu::adam_update, cpu::lion_update and cpu::sgd_update of every array. `control` lies in device
/// memory and may be null.
void update_adam_gpu(std::span<const UpdateArrays> arrays, const cpu::AdamStep& step,
                     const cpu::GradientUse& use, const UpdateControl* control, Stream stream);
void update_lion_gpu(std::span<const UpdateArrays> arrays, const cpu::LionStep& step,
                     const cpu::GradientUse& use, const UpdateControl* control, Stream stream);
void update_sgd_gpu(std::span<const UpdateArrays> arrays, const cpu::SgdStep& step,
                    const cpu::GradientUse& use, const UpdateControl* control, Stream stream);

/// Rules of a chain that none of the above is, at most kMostRules, one after the other on each number: gradients and
/// parameters are read once. Nothing happens where the control of one of them skips.
void update_rules_gpu(std::span<const RuleArrays> arrays, std::span<const RuleStep> steps,
                      Stream stream);

/// The two passes of amos_cells.h.
void sum_amos_cells_gpu(std::span<const AmosCells> arrays, Stream stream);
void update_amos_cells_gpu(std::span<const AmosCells> arrays, const rules::Amos& rule,
                           const UpdateControl* control, Stream stream);

/// statistics[i] of arrays[i], and statistics[arrays.size()] of all: its squares are the sum in the
/// order of the arrays; squares[i], unless null, the same as statistics[i].squares. In device memory.
/// Arrays are float32 or bfloat16; absent ones count as empty.
void measure_arrays_gpu(Views arrays, ArrayStatistics* statistics, double* squares, Stream stream);
/// From the squares of `count` gradients, added in order, and as many marks (null: none).
void summarize_gradients_gpu(const double* squares, const int32_t* marks, int64_t count,
                             GradientSummary* summary, Stream stream);
/// From the sum of all gradients' squares, without the host: clips by the global norm `max_norm` (0:
/// not; scale = norm < max_norm ? 1 : max_norm / norm) and skips updates whose gradients are not
/// finite, and those that `given` (null: none) skips.
void decide_update_gpu(const double* squares, double max_norm, const UpdateControl* given,
                       UpdateControl* control, Stream stream);

/// One Adafactor update of all arrays, moments included, as AdafactorParam::update on the CPU.
/// `exchange` is called three times if an array is sharded, else never: it queues, on the stream, what
/// makes a block's sums in AdafactorSums those of the global arrays; means and squares where an array is
/// sharded along rows and columns, else nothing is left to do the last two times.
void update_adafactor_gpu(std::span<const AdafactorGpuArray> arrays, const AdafactorStep& step,
                          const UpdateControl* control, const ExchangeSums& exchange,
                          Stream stream);

}  // namespace quintet::QT_GPU
