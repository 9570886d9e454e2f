#pragma once
// IEEE half precision as others store it; arrays of floating types widened to float32 and rounded from it.
//
//   const HostArray wide = as_float32(std::move(stored));

#include "runtime/base/host_array.h"

namespace quintet {

/// The value of IEEE binary16 bits: exact.
float float_from_half(uint16_t bits);

/// float32, bfloat16 and float16 as float32; throws Bug for others.
HostArray as_float32(HostArray array);
/// float32 as float32, bfloat16 or float16, rounded to nearest even; throws Bug for others.
HostArray rounded(HostArray array, DType dtype);

}  // namespace quintet
