#pragma once
// What the optimizers' passes take: lists of arrays, on a GPU in device memory, and numbers of a step.
// Nothing here knows options, schedules or names: runtime/optim does.

#include <array>
#include <functional>

#include "kernels/optimizers/adafactor_shape.h"
#include "kernels/optimizers/float_pointer.h"
#include "kernels/optimizers/rules.h"

namespace quintet {

/// A parameter and what is updated with it, all of n elements.
struct UpdateArrays {
  FloatPointer gradient;  // null: zero
  float* param;
  float* first = nullptr;   // Adam's and Lion's mu, SGD's trace
  float* second = nullptr;  // Adam's nu
  void* copy = nullptr;     // bfloat16: the new parameter rounded, for the next step; may be null
  int64_t n = 0;
  /// Set to 1 if a number of param, first or second is not finite after the update; may be null.
  int32_t* not_finite = nullptr;
};

/// What the device itself knows about a step; a null pointer where updates are not to read it.
struct UpdateControl {
  float scale = 1;   // gradients are multiplied by it too
  int32_t skip = 0;  // not 0: the update leaves everything as it is (NaN policy N1)
};

/// A rule with its numbers, and a clip or scale of the gradient before it.
struct RuleStep {
  UpdateRule rule = rules::Use{};
  cpu::GradientUse use{};
  const UpdateControl* control = nullptr;  // on a GPU
};
/// What a rule looks at of one array, beside its gradient and parameter.
struct RuleState {
  float* first = nullptr;           // Number::first
  float* second = nullptr;          // Number::second
  bool first_is_bf16 = false;       // first points to bfloat16
  float factor = 1;                 // Number::factor
  const double* squares = nullptr;  // TrustRatio's, of param and gradient
  int32_t* found = nullptr;         // set to 1 if a rule sets Number::found
};
/// The steps that one pass over memory takes.
inline constexpr size_t kMostRules = 6;
/// A parameter, its gradient, which a pass changes unless its last rule is Apply, and the states of its steps.
struct RuleArrays {
  FloatPointer gradient;
  float* param;
  void* copy = nullptr;  // as in UpdateArrays
  int64_t n = 0;
  int32_t* not_finite = nullptr;
  std::array<RuleState, kMostRules> states{};
};

/// What is known of an array after one pass. Finite numbers have a finite sum of squares.
struct ArrayStatistics {
  double squares = 0;
  float largest = 0;  // of the magnitudes; NaN is passed over
  int32_t is_finite = 1;
};

/// What gradients come to, as the host hears of it: of all of them together.
struct GradientSummary {
  double squares = 0;      // not finite if a number is not
  int32_t any_marked = 0;  // of the marks of an update before
};

/// Sums over a sharded array's block, which become those over the array; in device memory. Null where
/// the block has all of them, and all null where the array is not sharded.
struct AdafactorSums {
  double *rows = nullptr, *columns = nullptr;  // of squared gradients, as v_row and v_col
  /// Where one of those two is null and the array is factored: of squared gradients over the moments of
  /// the one that is null, as the other.
  double* weighted = nullptr;
  double* means = nullptr;   // of v_row, by batch, unless `rows` stands alone
  double* param = nullptr;   // squares, by batch
  double* update = nullptr;  // likewise, unless there is `weighted`
};
/// The sums that ranks exchange between two phases of an update. Those of arrays that have not both
/// `rows` and `columns` all belong to the first exchange.
enum class AdafactorExchange { moments, means, squares };
using ExchangeSums = std::function<void(AdafactorExchange)>;

/// One array of Adafactor. Its moments' shape says whether v_row and v_col are used (factored), or
/// v.
struct AdafactorGpuArray {
  FloatPointer gradient;  // null: zero
  float* param;
  float *v_row = nullptr, *v_col = nullptr, *v = nullptr;
  float* momentum = nullptr;      // null without beta1
  bool momentum_is_bf16 = false;  // momentum points to bfloat16
  void* copy = nullptr;           // as in UpdateArrays
  int32_t* not_finite = nullptr;
  bool scaled_by_param = true;
  /// Squares of the parameter by tile (adafactor.h), which each update leaves for the next one. All bits of one
  /// that is not known are set, and an update takes it then; so too if this is null, and leaves none.
  float* param_squares = nullptr;
  AdafactorShape shape;
  AdafactorSums sums{};
};
/// Numbers of an update that all arrays share; see runtime/optim/adafactor/adafactor.h.
struct AdafactorStep {
  float learning_rate, decay, mixing;
  float gradient_scale = 1;
  float keep = 1;  // 1 - weight decay
  float beta1 = 0, one_minus_beta1 = 1.0f - beta1;
  double epsilon1 = 1e-30, epsilon2 = 1e-3;
  double clipping_threshold = 0;   // 0: none
  double max_parameter_scale = 0;  // 0: none
  bool skip_nan = false;           // numbers that would become NaN keep their value
};

}  // namespace quintet
