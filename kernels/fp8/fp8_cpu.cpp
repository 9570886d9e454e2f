#include <utility>
#include <vector>

#include "kernels/cpu/addend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/fp8/fp8.h"
#include "kernels/optimizers/gpu_arrays.h"

namespace quintet {
namespace {

constexpr int kLayers = 3;  // at most, that share x

uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

/// Of floats that are not negative, by their bits: NaN is the largest.
float larger(float a, float b) {
  return std::bit_cast<float>(std::max(magnitude_bits(a), magnitude_bits(b)));
}

float amax_of(const View& view, const char* name) {
  const float* x = cpu::f32(view, "matmul_fp8", name);
  uint32_t most = 0;
  for (int64_t i = 0; i < view.elements(); ++i) most = std::max(most, magnitude_bits(x[i]));
  return std::bit_cast<float>(most);
}

/// An operand of all layers: numbers of its format, which float32 holds exactly, and what they are multiplied by afterwards.
struct Cast {
  std::vector<std::vector<float>> values;
  float scale_inv = 1;
};

Cast cast(Views views, Fp8Operand operand, Float8 format, Fp8Scaling* scaling, bool records) {
  static constexpr const char* kNames[] = {"x", "w", "dy"};
  float amax = 0;
  if (records || scaling == nullptr)
    for (const View& view : views) amax = larger(amax, amax_of(view, kNames[operand]));
  if (records && scaling != nullptr) scaling->amax[operand] = larger(scaling->amax[operand], amax);
  const float scale =
      scaling != nullptr ? scaling->scale[operand] : next_fp8_scale(amax, 1, largest_of(format));
  Cast result;
  result.scale_inv = scaling != nullptr ? scaling->scale_inv[operand].value : 1 / scale;
  for (const View& view : views) {
    const float* x = cpu::f32(view, "matmul_fp8", kNames[operand]);
    std::vector<float>& out = result.values.emplace_back(static_cast<size_t>(view.elements()));
    cpu::parallel_for(view.elements(), cpu::kGrainElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)  // + x * 0: an infinity is NaN
        out[static_cast<size_t>(i)] = widened(narrowed(x[i] * scale + x[i] * 0.0f, format), format);
    });
  }
  return result;
}

Fp8Scaling* scaling_of(const View& view, const Attrs& attrs) {
  if (view.absent()) return nullptr;
  return reinterpret_cast<Fp8Scaling*>(cpu::f32(view, "matmul_fp8", "scaling")) +
         attrs.get<int64_t>("layer");
}

struct Layers {
  int64_t rows, k, n;
  size_t count = 1;
  Fp8Scaling* scaling;
  Views x, w;

  Layers(Views in, const Attrs& attrs)
      : rows(in[0].rows()),
        k(in[0].depth()),
        n(in[1].size(1)),
        scaling(scaling_of(in[kLayers + 1], attrs)) {
    while (count < kLayers && !in[1 + count].absent()) ++count;
    x = in.subspan(0, 1);
    w = in.subspan(1, count);
    for (const View& each : w)
      cpu::expect_shape(each.rank == 2 && each.size(0) == k && each.size(1) == n, "matmul_fp8",
                        "...k, kn -> ...n");
    check_fp8_sizes(k, n);
  }
};

/// x of layers, rounded by who made it or here; `of_gradient`: from its transpose, if there is one.
Cast cast_x(const Layers& l, Views in, bool of_gradient) {
  if (in[0].dtype != DType::u8) return cast(l.x, kFp8X, Float8::e4m3, l.scaling, !of_gradient);
  Cast result{.values = {}, .scale_inv = l.scaling->scale_inv[kFp8X].value};
  std::vector<float>& x = result.values.emplace_back(static_cast<size_t>(l.rows * l.k));
  const uint8_t* bytes = in[of_gradient ? kLayers + 2 : 0].data<uint8_t>();
  for (int64_t row = 0; row < l.rows; ++row)
    for (int64_t column = 0; column < l.k; ++column)
      x[static_cast<size_t>(row * l.k + column)] =
          widened(bytes[of_gradient ? column * l.rows + row : row * l.k + column], Float8::e4m3);
  return result;
}

/// w of layers, rounded before the step or here.
Cast cast_w(const Layers& l, Views in, bool records) {
  const View& bytes = in[kLayers + 3];
  if (bytes.absent()) return cast(l.w, kFp8W, Float8::e4m3, l.scaling, records);
  Cast result{.values = {}, .scale_inv = l.scaling->scale_inv[kFp8W].value};
  const auto n = static_cast<int64_t>(l.count) * l.n;
  const uint8_t* plain = bytes.data<uint8_t>() + l.k * n;  // [k, n]
  for (int64_t first = 0; first < n; first += l.n) {
    std::vector<float>& w = result.values.emplace_back();
    for (int64_t row = 0; row < l.k; ++row)
      for (int64_t column = first; column < first + l.n; ++column)
        w.push_back(widened(plain[row * n + column], Float8::e4m3));
  }
  return result;
}

}  // namespace

void cast_fp8_weights_cpu(std::span<const Fp8Weights> layers) {
  for (const Fp8Weights& l : layers) {
    QT_ASSERT(l.dtype == DType::f32);
    std::vector<View> w;
    const int64_t sizes[] = {l.k, l.n};
    for (int64_t i = 0; i < l.count; ++i)
      w.push_back(View::of(static_cast<const float*>(l.w[static_cast<size_t>(i)]), sizes));
    const Cast rounded = cast(w, kFp8W, Float8::e4m3, l.scaling, true);
    uint8_t* plain = l.bytes + l.count * l.k * l.n;
    for (int64_t i = 0; i < l.count; ++i)
      for (int64_t row = 0; row < l.k; ++row)
        for (int64_t column = 0; column < l.n; ++column) {
          const uint8_t byte = narrowed(
              rounded.values[static_cast<size_t>(i)][static_cast<size_t>(row * l.n + column)],
              Float8::e4m3);
          l.bytes[(i * l.n + column) * l.k + row] = byte;
          plain[(row * l.count + i) * l.n + column] = byte;
        }
  }
}

void cpu::make_fp8_bytes(Views out, const View& scaling, const Attrs& attrs,
                         const std::function<void(const View& y)>& make) {
  const int64_t rows = out[0].rows(), columns = out[0].depth();
  std::vector<float> numbers(static_cast<size_t>(rows * columns));
  View y = out[0];
  y.dtype = DType::f32;
  y.pointer = numbers.data();
  make(y);
  const Cast rounded = cast({&y, 1}, kFp8X, Float8::e4m3, scaling_of(scaling, attrs), true);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const uint8_t byte =
          narrowed(rounded.values[0][static_cast<size_t>(row * columns + column)], Float8::e4m3);
      out[0].data<uint8_t>()[row * columns + column] = byte;
      if (!out[1].absent()) out[1].data<uint8_t>()[column * rows + row] = byte;
    }
}

void check_fp8_sizes(int64_t k, int64_t n) {
  QT_CHECK(k % 16 == 0 && n % 16 == 0,
           "FP8 product of {} x {} weights: both sizes, on a mesh those of a rank's block, must be "
           "multiples of 16; change "
           "them or leave te_helper.TransformerEngineConfig.enabled = False",
           k, n);
}

void matmul_fp8_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Layers l(in, attrs);
  const Cast x = cast_x(l, in, false);
  const Cast w = cast_w(l, in, true);
  for (size_t i = 0; i < l.count; ++i)
    cpu::gemm({.m = l.rows, .n = l.n, .k = l.k, .alpha = x.scale_inv * w.scale_inv},
              x.values[0].data(), l.k, w.values[i].data(), l.n, cpu::f32(out[i], "matmul_fp8", "y"),
              l.n);
}

void matmul_fp8_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Layers l(in, attrs);
  const auto format = static_cast<Float8>(attrs.get<int64_t>("gradient_format"));
  const Cast x = cast_x(l, in, true);
  const Cast w = cast_w(l, in, false);
  const Cast dy = cast(in.subspan(kLayers + 4, l.count), kFp8Gradient, format, l.scaling, true);
  constexpr size_t operands = 2 * kLayers + 4;
  const float beta = cpu::copy_addend(in, operands, out, 0);
  for (size_t i = 0; i < l.count; ++i) {
    cpu::gemm({.m = l.rows,
               .n = l.k,
               .k = l.n,
               .transpose_b = true,
               .alpha = dy.scale_inv * w.scale_inv,
               .beta = i == 0 ? beta : 1.0f},
              dy.values[i].data(), l.n, w.values[i].data(), l.n,
              cpu::f32(out[0], "matmul_fp8_grad", "dx"), l.k);
    cpu::gemm({.m = l.k,
               .n = l.n,
               .k = l.rows,
               .transpose_a = true,
               .alpha = x.scale_inv * dy.scale_inv,
               .beta = cpu::copy_addend(in, operands, out, 1 + i)},
              x.values[0].data(), l.k, dy.values[i].data(), l.n,
              cpu::f32(out[1 + i], "matmul_fp8_grad", "dw"), l.n);
  }
}

void update_fp8_scaling_cpu(const Fp8Update& update, const UpdateControl* control) {
  const bool skips = control != nullptr && control->skip != 0;
  for (int64_t layer = 0; layer < update.count; ++layer)
    for (int operand = 0; operand < kFp8Operands; ++operand) {
      Fp8Scaling& scaling = update.scalings[layer];
      const float newest = std::exchange(scaling.amax[operand], 0.0f);
      if (skips) continue;
      float* history = update.history + (layer * kFp8Operands + operand) * update.length;
      float most = newest;
      for (int64_t i = 0; i < update.length; ++i) {
        const float next = i + 1 < update.length ? history[i + 1] : newest;
        most = std::fmax(most, next);
        history[i] = i == 0 ? 0 : next;
      }
      float& scale = scaling.scale[operand];
      scale = next_fp8_scale(update.most_recent ? newest : most, scale, update.scaled_max[operand]);
      scaling.scale_inv[operand].value = 1 / scale;
    }
}

}  // namespace quintet
