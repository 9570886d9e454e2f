#pragma once
// Adafactor as T5X has it (t5x/adafactor.py; Shazeer and Stern, arXiv:1804.04235): factored second
// moments chosen by size or by logical axis, update clipping, steps relative to the parameter's
// size.
//
//   OptimizerPtr optimizer = adafactor({.logical_factor_rules = standard_logical_factor_rules()});

#include <map>
#include <optional>
#include <variant>

#include "runtime/optim/hparam_map.h"
#include "runtime/optim/optimizer.h"

namespace quintet {

/// What an axis is to the factored second moment. BATCH axes keep matrices apart that happen to be
/// stacked in one array: each has its own moments, clipping and scale. kHeuristic stands alone: a parameter of rank 2 at
/// most is factored by its size (adafactor.HEURISTIC_RULE).
enum class FactorDim { kNone, kBatch, kRow, kColumn, kHeuristic };
/// "ROW", "COL" or "COLUMN", "BATCH", "NONE" or "UNFACTORIZED", in any case; else a usage error.
FactorDim factor_dim_from_name(std::string_view name);
using FactorRules = std::map<std::string, FactorDim>;  // logical axis -> dimension

/// adafactor.standard_logical_factor_rules.
FactorRules standard_logical_factor_rules();
/// t5x.contrib.moe.adafactor_utils.logical_factor_rules: the same and the experts' axes.
FactorRules moe_logical_factor_rules();

struct AdafactorOptions {
  bool factored = true;
  std::variant<bool, HParamMap<bool>> multiply_by_parameter_scale = true;
  std::optional<double> beta1{};      // momentum, on the scaled update
  DType dtype_momentum = DType::f32;  // or bfloat16
  double decay_rate = 0.8;  // second moments decay by 1 - (step - step_offset + 1)^-decay_rate
  int64_t step_offset = 0;
  std::optional<double> clipping_threshold = 1.0;  // of the root mean square of an update
  std::optional<double> weight_decay_rate{};       // not multiplied by the learning rate
  int64_t min_dim_size_to_factor = 128;
  double epsilon1 = 1e-30;  // added to squared gradients
  double epsilon2 = 1e-3;   // smallest parameter scale
  /// Rule of each parameter by its path; logical_factor_rules, if given, win.
  std::optional<HParamMap<std::vector<FactorDim>>> factor_map{};
  std::optional<FactorRules> logical_factor_rules{};
  /// Weight decay becomes (weight_decay_rate or 1) * learning_rate ^ this.
  std::optional<double> weight_decay_rate_lr_exponent{};
  std::optional<double> global_norm_clip_threshold{};
  std::optional<double> max_parameter_scale{};
  bool skip_nan_updates = false;  // numbers that would become NaN keep their value
};

/// State: <param>/v_row and <param>/v_col, or <param>/v; <param>/m with momentum.
OptimizerPtr adafactor(const AdafactorOptions& options = {});

}  // namespace quintet
