#pragma once
// Sizes of views as doubles, for the costs of ops: products of some are beyond int64_t.

#include "runtime/op/op.h"

namespace quintet {

inline double elements(const View& view) { return static_cast<double>(view.elements()); }
/// Of an axis; a negative one counts from the end.
inline double size(const View& view, int axis) { return static_cast<double>(view.size(axis)); }
/// 1 of an operand that is given or a result that is made, else 0.
inline double count(const View& view) { return view.absent() ? 0 : 1; }

}  // namespace quintet
