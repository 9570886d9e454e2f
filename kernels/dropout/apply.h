#pragma once
// What the dropout op and the residual sums with dropout share.

#include <vector>

#include "kernels/kernel.h"
#include "runtime/base/threefry.h"

namespace quintet {

/// One run of dropout over part of an array.
struct DropoutRule {
  Key key;
  uint32_t threshold;  // keep an element if the upper 23 of its bits are below
  float keep;          // 1 - rate
};

namespace cpu {

/// y = dropout(x), or residual + dropout(x) unless residual is null, with the attributes of
/// dropout.h. x, y and residual have x's shape; y may be residual or x. Throws usage errors that
/// name `op` for a rate outside [0, 1] or another broadcast_dim than 0 and -2.
void apply_dropout(const char* op, const View& x, const float* residual, float* y,
                   const Attrs& attrs);

/// The same a row at a time, for kernels that have more to do with a row. It keeps the mask that
/// rows share: each thread takes a copy of its own.
class RowDropout {
 public:
  /// Throws what apply_dropout throws.
  RowDropout(const char* op, const View& x, const Attrs& attrs);
  /// Row `row` of x (leading axes flattened), which begins at `from`; of residual and y likewise.
  void operator()(int64_t row, const float* residual, const float* from, float* y);

 private:
  DropoutRule rule_;
  View x_;
  bool shared_;                 // rows that differ only along the last axis but one share a mask,
  std::vector<uint32_t> mask_;  // this
  int64_t mask_of_ = -1;        // of these rows
};

}  // namespace cpu
}  // namespace quintet
