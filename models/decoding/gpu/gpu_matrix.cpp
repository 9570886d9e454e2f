#include "models/decoding/gpu/gpu_matrix.h"

#include <algorithm>
#include <array>

#include "kernels/gpu/gpu_kernels.h"
#include "runtime/op/op.h"

namespace quintet::decoding {
namespace {

Tensor uploaded(const HostArray& array, const Axes& axes) {
  const Tensor tensor(Spec{axes, array.dtype});
  QT_ASSERT(tensor.bytes() == std::ssize(array.bytes));
  Device::current().copy_in(tensor.local().pointer, array.bytes.data(), tensor.bytes());
  return tensor;
}

/// [height, width] of several, of `item` bytes an element.
HostArray joined(const std::vector<HostArray>& parts, int64_t height, int64_t item) {
  int64_t width = 0;
  for (const HostArray& part : parts) width += part.elements() / height;
  HostArray all(parts[0].dtype, {height, width});
  for (int64_t row = 0, at = 0; row < height; ++row)
    for (const HostArray& part : parts) {
      const int64_t bytes = part.elements() / height * item;
      std::copy_n(part.bytes.begin() + row * bytes, bytes, all.bytes.begin() + at);
      at += bytes;
    }
  return all;
}

}  // namespace

GpuMatrix::GpuMatrix(const QuantizedParameter& parameter, const Axes& axes, bool row_scales,
                     DType computed)
    : values(uploaded(parameter.values, axes)), by_row(row_scales), compute_dtype(computed) {
  if (parameter.scales.elements() == 0) return;
  Axes of_scales = axes;
  of_scales.erase(of_scales.end() - (by_row ? 1 : 2));
  scales = uploaded(parameter.scales, of_scales);
}

Tensor GpuMatrix::dequantized() const {
  if (is_dequantized()) return values;
  const Axes& axes = values.spec().axes;
  const Tensor out(Spec{axes, compute_dtype});
  dequantize(nullptr, out.local().elements() / axes.back().size, out);
  return out;
}

void GpuMatrix::dequantize(const int32_t* ids, int64_t rows, const Tensor& out) const {
  const Axes& axes = values.spec().axes;
  const int64_t k = axes[axes.size() - 2].size, n = axes.back().size;
  Device& device = Device::current();
  device.kernels().dequantize_rows(
      {.dtype = values.spec().dtype,
       .values = values.local().pointer,
       .scales = scales.absent() ? nullptr : scales.local().data<float>(),
       .rows_together = by_row ? 0 : k,
       .ids = ids,
       .table_rows = values.local().elements() / n,
       .rows = rows,
       .columns = n,
       .out = out.local().pointer,
       .out_dtype = compute_dtype},
      device.stream());
}

Tensor GpuMatrix::rows(const int32_t* ids, Axes axes) const {
  axes.push_back(values.spec().axes[1]);
  const Tensor x(Spec{std::move(axes), compute_dtype});
  const int64_t count[] = {x.local().rows()};
  if (is_dequantized()) {
    Device& device = Device::current();
    const std::array in{View::of(const_cast<int32_t*>(ids), count), values.local()};
    const std::array out{x.local()};
    kernel_of(ops::table::embed, device)(in, out, {}, device.stream());
    return x;
  }
  dequantize(ids, count[0], x);
  return x;
}

GpuMatrix side_by_side(const std::vector<GpuMatrix>& parts) {
  const Axis& height = parts[0].values.spec().axes[0];
  std::vector<HostArray> values, scales;
  for (const GpuMatrix& part : parts) {
    values.push_back(part.values.to_host());
    if (!part.scales.absent()) scales.push_back(part.scales.to_host());
  }
  const HostArray all = joined(values, height.size, size_of(values[0].dtype));
  const Axis width{axis::kJoinedKv, all.shape[1]};
  GpuMatrix matrix = parts[0];
  matrix.values = uploaded(all, {height, width});
  if (!scales.empty()) matrix.scales = uploaded(joined(scales, 1, sizeof(float)), {width});
  return matrix;
}

}  // namespace quintet::decoding
