// How weights come into panels.

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "kernels/prepacked_matmul/transpose.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// w [k, columns] to columns [0, columns) of a panel: element i stands in step i % steps of group
/// i / steps, `steps` values of a column side by side.
template <typename To, typename From>
void place(const From* w, const StoredMatrix& as, int64_t k, int64_t columns, To* panel) {
  constexpr int64_t kSteps = 4 / static_cast<int64_t>(sizeof(To));
  // As many rows as cache lines of a panel stay in the first-level cache while columns fill them.
  constexpr int64_t kBlock = 64;
  const int64_t width = panel_width();
  const auto copy = [&](int64_t i, int64_t c) {
    panel[(i / kSteps * width + c) * kSteps + i % kSteps] =
        To(w[i * as.row_stride + c * as.column_stride]);
  };
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    const int64_t end = std::min(k, begin + kBlock);
    if (as.column_stride == 1)
      for (int64_t i = begin; i < end; ++i)
        for (int64_t c = 0; c < columns; ++c) copy(i, c);
    else
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t i = begin; i < end; ++i) copy(i, c);
  }
}

/// The same of float32, which has one step a group.
void place_floats(const float* w, const StoredMatrix& as, int64_t k, int64_t columns,
                  float* panel) {
  constexpr int64_t kBlock = 64;
  if (as.row_stride != 1) return place(w, as, k, columns, panel);
  for (int64_t begin = 0; begin < k; begin += kBlock)
    transpose(w + begin, columns, std::min(kBlock, k - begin), as.column_stride,
              panel + begin * panel_width(), panel_width());
}

float quantize(const float* w, int64_t k, int8_t* out) { return quantize_column(w, k, 1, out); }
float quantize(const float* w, int64_t k, float8* out) { return quantize_column(w, k, 1, out); }

}  // namespace

PackedMatrix::PackedMatrix(int64_t k, int64_t n, HugeArena& arena, WeightType type)
    : k_(k), n_(n), panels_((n + panel_width() - 1) / panel_width()), type_(type) {
  QT_CHECK(
      type != WeightType::int8_dynamic || k <= kMostInt8Depth,
      "int8_dynamic: a matrix of depth {}, expected at most {}, as sums have 32 bits; use int8", k,
      kMostInt8Depth);
  const std::shared_ptr<float> memory = arena.allocate((bytes() + 3) / 4);
  data_ = {memory, reinterpret_cast<std::byte*>(memory.get())};
  const auto columns = static_cast<size_t>(panels_ * panel_width());
  if (weight_bytes(type) == 1) scales_.resize(columns);
  if (type == WeightType::int8_dynamic) sums_.resize(columns);
}

float quantize_column(const float* w, int64_t k, int64_t stride, int8_t* out) {
  float largest = 1e-30f;
  for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(w[i * stride]));
  for (int64_t i = 0; i < k; ++i)
    out[i * stride] = static_cast<int8_t>(std::lrint(w[i * stride] * (127 / largest)));
  return largest / 127;
}

float quantize_column(const float* w, int64_t k, int64_t stride, float8* out) {
  float largest = 1e-30f;
  for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(w[i * stride]));
  const float factor = float8::kLargest / largest;
  for (int64_t i = 0; i < k; ++i) out[i * stride] = float8(w[i * stride] * factor);
  return largest / float8::kLargest;
}

template <typename Rounded>
void PackedMatrix::quantize_in_panel(int64_t panel, int64_t at, const StoredMatrix& w,
                                     int64_t columns) {
  std::vector<float> column(static_cast<size_t>(k_));
  std::vector<Rounded> rounded(column.size());
  for (int64_t c = 0; c < columns; ++c) {
    const auto* from = static_cast<const float*>(w.from(0, c).values);
    for (int64_t i = 0; i < k_; ++i) column[static_cast<size_t>(i)] = from[i * w.row_stride];
    const float scale = quantize(column.data(), k_, rounded.data());
    const DType dtype = type_ == WeightType::fp8 ? DType::u8 : DType::i8;
    set_in_panel(panel, at + c, {rounded.data(), dtype, &scale, 1, k_}, 1);
  }
}

void PackedMatrix::set_in_panel(int64_t panel, int64_t at, const StoredMatrix& w, int64_t columns) {
  std::byte* memory = data_.get() + panel * panel_bytes() + at * 4;
  if (w.dtype == DType::f32) {
    const auto* from = static_cast<const float*>(w.values);
    if (type_ == WeightType::f32)
      return place_floats(from, w, k_, columns, reinterpret_cast<float*>(memory));
    if (type_ == WeightType::bf16)
      return place(from, w, k_, columns, reinterpret_cast<bfloat16*>(memory));
    return type_ == WeightType::fp8 ? quantize_in_panel<float8>(panel, at, w, columns)
                                    : quantize_in_panel<int8_t>(panel, at, w, columns);
  }
  QT_ASSERT(w.dtype == DType::bf16 ? type_ == WeightType::bf16
            : w.dtype == DType::u8
                ? type_ == WeightType::fp8
                : type_ == WeightType::int8 || type_ == WeightType::int8_dynamic);
  if (w.dtype == DType::bf16)
    return place(static_cast<const uint16_t*>(w.values), w, k_, columns,
                 reinterpret_cast<uint16_t*>(memory));
  const auto* from = static_cast<const int8_t*>(w.values);
  place(from, w, k_, columns, reinterpret_cast<int8_t*>(memory));
  const auto first = static_cast<size_t>(panel * panel_width() + at);
  std::copy_n(w.scales, columns, scales_.begin() + static_cast<std::ptrdiff_t>(first));
  for (int64_t c = 0; c < columns && !sums_.empty(); ++c) {
    int32_t sum = 0;
    for (int64_t i = 0; i < k_; ++i) sum += from[i * w.row_stride + c * w.column_stride];
    sums_[first + static_cast<size_t>(c)] = 128 * sum;
  }
}

void PackedMatrix::set_columns(int64_t first, const StoredMatrix& w, int64_t columns,
                               PanelOrder order) {
  const int64_t width = panel_width(), end = first + columns;
#pragma omp parallel for schedule(dynamic)
  for (int64_t panel = first / width; panel < (end + width - 1) / width; ++panel) {
    const int64_t begin = std::max(first, panel * width), next = std::min(end, (panel + 1) * width);
    set_in_panel(order.first + panel * order.step, begin % width, w.from(0, begin - first),
                 next - begin);
  }
}

void PackedMatrix::column(int64_t index, float* out) const {
  const int64_t width = panel_width(), at = index % width;
  const std::byte* from = panel(index / width);
  const int64_t steps = 4 / weight_bytes(type_);
  const auto place = [&](int64_t i) { return (i / steps * width + at) * steps + i % steps; };
  for (int64_t i = 0; i < k_; ++i) {
    if (type_ == WeightType::f32)
      out[i] = reinterpret_cast<const float*>(from)[place(i)];
    else if (type_ == WeightType::bf16)
      out[i] =
          std::bit_cast<float>(uint32_t{reinterpret_cast<const uint16_t*>(from)[place(i)]} << 16);
    else if (type_ == WeightType::fp8)
      out[i] = static_cast<float>(reinterpret_cast<const float8*>(from)[place(i)]) *
               scales_[static_cast<size_t>(index)];
    else
      out[i] = static_cast<float>(reinterpret_cast<const int8_t*>(from)[place(i)]) *
               scales_[static_cast<size_t>(index)];
  }
}

PackedMatrix PackedMatrix::pack(const float* w, int64_t k, int64_t n, HugeArena& arena,
                                WeightType type) {
  PackedMatrix packed(k, n, arena, type);
  packed.set_columns(0, StoredMatrix::row_major(w, n), n);
  return packed;
}

PackedMatrix PackedMatrix::pack_transposed(const float* w, int64_t n, int64_t k, HugeArena& arena,
                                           WeightType type) {
  PackedMatrix packed(k, n, arena, type);
  packed.set_columns(0, StoredMatrix::row_major(w, k).transposed(), n);
  return packed;
}

}  // namespace quintet
