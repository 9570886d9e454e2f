#pragma once
// What the dropout op and the residual sum with dropout share.

#include "kernels/kernel.h"

namespace quintet::cpu {

/// y = dropout(x), or residual + dropout(x) unless residual is null, with the attributes of
/// dropout.h. x, y and residual have x's shape; y may be residual or x. Throws usage errors that
/// name `op` for a rate outside [0, 1] or another broadcast_dim than 0 and -2.
void apply_dropout(const char* op, const View& x, const float* residual, float* y,
                   const Attrs& attrs);

}  // namespace quintet::cpu
