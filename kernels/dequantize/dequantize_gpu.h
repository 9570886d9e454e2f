#pragma once
// Quantized matrices dequantized on a GPU. dequantize.h says what; an id outside the table is a fault of
// the device's next synchronisation (fault.h), its row becomes zeros.

#include "kernels/dequantize/dequantize.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {

void dequantize_rows_gpu(const DequantizeRows& rows, Stream stream);

}  // namespace quintet::QT_GPU
