#pragma once
// Checks of attention's operands that do not depend on the device.

#include "kernels/kernel.h"

namespace quintet::attention {

/// The elements of an int32 operand of shape [rows, columns], null where it is absent. Throws
/// UserError for another dtype, Bug for another shape.
inline const int32_t* int32_operand(const View& view, int64_t rows, int64_t columns,
                                    const char* name) {
  if (view.absent()) return nullptr;
  QT_CHECK(view.dtype == DType::i32, "attention: {} has dtype {}, expected int32", name,
           name_of(view.dtype));
  if (view.rank != 2 || view.size(0) != rows || view.size(1) != columns)
    throw Bug(fmt::format("attention: {} does not have the shape [{}, {}]", name, rows, columns));
  return view.data<int32_t>();
}

}  // namespace quintet::attention
