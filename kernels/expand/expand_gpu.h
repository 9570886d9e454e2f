#pragma once
// Quantized matrices dequantized on a GPU. expand.h says what; an id outside the table is a fault of
// the device's next synchronisation (fault.h), its row becomes zeros.

#include "kernels/expand/expand.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void expand_rows_gpu(const ExpandRows& expand, Stream stream);

}  // namespace quintet::QT_GPU
