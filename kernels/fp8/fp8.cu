#include <vector>

#include "kernels/fp8/cast.cuh"
#include "kernels/fp8/fp8_gpu.h"
#include "kernels/optimizers/gpu_arrays.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/multi.cuh"

namespace quintet::QT_GPU {
namespace {

constexpr int kLayers = 3;  // at most, that share x

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) measure(const T* x, int64_t n, uint32_t* amax) {
  uint32_t most = 0;
  for_units<kLanes<T>>(n, true, [&](int64_t i, auto count) {
    float v[count];
    load<count>(x + i, v);
    for (const float number : v) {
      const uint32_t magnitude = magnitude_bits(number);
      most = most > magnitude ? most : magnitude;
    }
  });
  add_to_amax(most, amax);
}

template <typename T>
struct WeightEntry {
  Cast<Elements<T>> cast;
  int64_t first_chunk;
  __host__ __device__ int64_t tiles_of_row() const {
    return (cast.columns + kCastColumns - 1) / kCastColumns;
  }
};

/// A block a tile of one of the table's matrices.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    cast_weights(const __grid_constant__ Table<WeightEntry<T>> table) {
  const WeightEntry<T>& e = entry_of(table, blockIdx.x);
  const int64_t tile = blockIdx.x - e.first_chunk, columns = e.tiles_of_row();
  cast_tile<Float8::e4m3>(e.cast, tile / columns * kCastRows, tile % columns * kCastColumns);
}

template <typename T>
void cast_weights_of(std::span<const Fp8Weights> layers, DType dtype, Stream stream) {
  std::vector<WeightEntry<T>> entries;
  for (const Fp8Weights& l : layers)
    for (int64_t i = 0; i < l.count && l.dtype == dtype; ++i) {
      const int64_t size = l.k * l.n;
      const T* w = static_cast<const T*>(l.w[static_cast<size_t>(i)]);
      QT_ASSERT(are_aligned({w, l.bytes}));
      entries.push_back({{.source = {w, l.n},
                          .rows = l.k,
                          .columns = l.n,
                          .plain = l.bytes + l.count * size + i * l.n,
                          .ld = l.count * l.n,
                          .transposed = l.bytes + i * size,
                          .ld_transposed = l.k,
                          .scale = &l.scaling->scale[kFp8W],
                          .amax = reinterpret_cast<uint32_t*>(&l.scaling->amax[kFp8W])},
                         0});
    }
  in_tables<WeightEntry<T>>(
      entries,
      [](const WeightEntry<T>& e) {
        return e.tiles_of_row() * ((e.cast.rows + kCastRows - 1) / kCastRows);
      },
      [&](const Table<WeightEntry<T>>& table, int64_t chunks) {
        simt::launch(cast_weights<T>,
                     {.grid = static_cast<unsigned>(chunks),
                      .block = kBlockThreads,
                      .shared = kCastRows * kCastColumns,
                      .stream = stream},
                     table);
      });
}

/// Of current scaling, when amax is there.
__global__ void set_scale(Fp8Scaling* scaling, int operand, float largest) {
  const float scale = next_fp8_scale(scaling->amax[operand], 1, largest);
  scaling->scale[operand] = scale;
  scaling->scale_inv[operand].value = 1 / scale;
}

/// A block an operand of a layer.
__global__ void __launch_bounds__(kBlockThreads)
    update_scaling(const __grid_constant__ Fp8Update update, const UpdateControl* control) {
  Fp8Scaling& scaling = update.scalings[blockIdx.x / kFp8Operands];
  const int operand = static_cast<int>(blockIdx.x) % kFp8Operands;
  const float newest = scaling.amax[operand];
  __syncthreads();
  if (threadIdx.x == 0) scaling.amax[operand] = 0;
  if (control != nullptr && control->skip != 0) return;
  float* history = update.history + blockIdx.x * update.length;
  float most = newest;
  for (int64_t begin = 0; begin < update.length; begin += kBlockThreads) {
    const int64_t i = begin + threadIdx.x;
    float next = newest;
    if (i + 1 < update.length) next = history[i + 1];
    __syncthreads();
    if (i < update.length) {
      most = fmaxf(most, next);
      history[i] = i == 0 ? 0 : next;
    }
  }
  most = block_max(most, simt::shared<float>(0, 32));
  if (threadIdx.x != 0) return;
  const float scale = next_fp8_scale(update.most_recent ? newest : most, scaling.scale[operand],
                                     update.scaled_max[operand]);
  scaling.scale[operand] = scale;
  scaling.scale_inv[operand].value = 1 / scale;
}

int64_t in_units(int64_t rows) { return (rows + kCastUnit - 1) / kCastUnit * kCastUnit; }

/// Operands and scales of layers that share x.
template <typename T>
class Layers {
 public:
  Layers(const char* op, Views in, const Attrs& attrs, Stream stream)
      : rows(in[0].rows()), k(in[0].depth()), n(in[1].size(1)), op_(op), stream_(stream), in_(in) {
    check_fp8_sizes(k, n);
    while (count < kLayers && !in[1 + count].absent()) {
      const View& w = in[1 + count++];
      expect_shape(w.rank == 2 && w.size(0) == k && w.size(1) == n, op, "...k, kn -> ...n");
    }
    const View& given = in[kLayers + 1];
    scaling_ =
        given.absent() ? own_scales_.template data<Fp8Scaling>() : scaling_of(given, attrs, op);
    is_current_ = given.absent();
    if (is_current_) quintet::Device::current().fill(scaling_, 0, sizeof(Fp8Scaling));
  }

  int64_t rows, k, n, count = 0;
  Views x() const { return in_.subspan(0, 1); }
  Views w() const { return in_.subspan(1, static_cast<size_t>(count)); }
  Views dy() const { return in_.subspan(kLayers + 4, static_cast<size_t>(count)); }
  /// Bytes that who made x left, or their transpose; null: x is numbers.
  uint8_t* bytes_of_x() const {
    return in_[0].dtype == DType::u8 ? in_[0].data<uint8_t>() : nullptr;
  }
  uint8_t* transposed_x() const {
    return in_[kLayers + 2].absent() ? nullptr : in_[kLayers + 2].data<uint8_t>();
  }
  /// Of w, if they were left: transposed [count n, k]; [k, count n]. Else null.
  uint8_t* transposed_w() const {
    const View& w8 = in_[kLayers + 3];
    QT_ASSERT(w8.absent() || w8.elements() == 2 * count * n * k);
    return w8.absent() ? nullptr : w8.data<uint8_t>();
  }
  uint8_t* bytes_of_w() const {
    return transposed_w() == nullptr ? nullptr : transposed_w() + count * n * k;
  }
  const float* scale_inv(Fp8Operand operand) const { return &scaling_->scale_inv[operand].value; }

  /// Rounds arrays of [rows, columns]: array i into columns [i, i + 1) columns of `plain`, where rows are `ld` bytes apart, and
  /// into rows from i columns on of `transposed`.
  void cast(Views arrays, Fp8Operand operand, Float8 format, bool records, uint8_t* plain,
            int64_t ld, uint8_t* transposed, int64_t ld_transposed) const {
    auto* const amax = reinterpret_cast<uint32_t*>(&scaling_->amax[operand]);
    if (is_current_) set_current_scale(arrays, operand, format, amax);
    for (size_t i = 0; i < arrays.size(); ++i) {
      const int64_t columns = arrays[i].depth(), at = static_cast<int64_t>(i) * columns;
      const Cast<Elements<T>> one{
          .source = {aligned(arrays[i]), columns},
          .rows = arrays[i].rows(),
          .columns = columns,
          .plain = plain == nullptr ? nullptr : plain + at,
          .ld = ld,
          .transposed = transposed == nullptr ? nullptr : transposed + at * ld_transposed,
          .ld_transposed = ld_transposed,
          .scale = &scaling_->scale[operand],
          .amax = records && !is_current_ ? amax : nullptr};
      format == Float8::e4m3 ? launch_cast<Float8::e4m3>(one, stream_)
                             : launch_cast<Float8::e5m2>(one, stream_);
    }
  }

  /// c [m, n] = a b^T + addend.
  void product(int64_t m, int64_t columns, int64_t inner, const uint8_t* a, Fp8Operand a_operand,
               Float8 a_format, const uint8_t* b, Fp8Operand b_operand, Float8 b_format,
               const View& c, bool is_forward, const void* addend = nullptr) const {
    simt::gemm(stream_, {.m = m,
                         .n = columns,
                         .k = inner,
                         .a = a,
                         .b = b,
                         .c = c.pointer,
                         .c_type = c.dtype,
                         .b_transposed = true,
                         .addend = addend,
                         .fp8 = simt::Float8Operands{a_format, b_format, scale_inv(a_operand),
                                                     scale_inv(b_operand), is_forward}});
  }

 private:
  const T* aligned(const View& view) const {
    const T* x = elements<T>(view, op_, "an operand");
    QT_ASSERT(are_aligned({x}));
    return x;
  }
  void set_current_scale(Views arrays, Fp8Operand operand, Float8 format, uint32_t* amax) const {
    for (const View& view : arrays) {
      const int64_t n = view.elements();
      simt::launch(measure<T>,
                   {.grid = blocks_for(n / kLanes<T>), .block = kBlockThreads, .stream = stream_},
                   aligned(view), n, amax);
    }
    simt::launch(set_scale, {.stream = stream_}, scaling_, static_cast<int>(operand),
                 largest_of(format));
  }

  const char* op_;
  Stream stream_;
  Views in_;
  simt::Scratch own_scales_{sizeof(Fp8Scaling)};
  Fp8Scaling* scaling_;
  bool is_current_;
};

template <typename T>
void forward(Views in, Views out, const Attrs& attrs, Stream stream) {
  const Layers<T> l("matmul_fp8", in, attrs, stream);
  uint8_t* x8 = l.bytes_of_x();
  uint8_t* w8 = l.transposed_w();
  const simt::Scratch x(x8 == nullptr ? l.rows * l.k : 0),
      w(w8 == nullptr ? l.count * l.n * l.k : 0);
  if (x8 == nullptr) {
    x8 = x.data<uint8_t>();
    l.cast(l.x(), kFp8X, Float8::e4m3, true, x8, l.k, nullptr, 0);
  }
  if (w8 == nullptr) {
    w8 = w.data<uint8_t>();
    l.cast(l.w(), kFp8W, Float8::e4m3, true, nullptr, 0, w8, l.k);  // [count n, k]
  }
  for (int64_t i = 0; i < l.count; ++i)
    l.product(l.rows, l.n, l.k, x8, kFp8X, Float8::e4m3, w8 + i * l.n * l.k, kFp8W, Float8::e4m3,
              out[static_cast<size_t>(i)], true);
}

template <typename T>
void backward(Views in, Views out, const Attrs& attrs, Stream stream) {
  const Layers<T> l("matmul_fp8_grad", in, attrs, stream);
  const auto format = static_cast<Float8>(attrs.get<int64_t>("gradient_format"));
  const int64_t all = l.count * l.n, padded = in_units(l.rows);
  uint8_t *x8 = l.transposed_x(), *w8 = l.bytes_of_w();
  const simt::Scratch x(x8 == nullptr ? l.k * padded : 0), w(w8 == nullptr ? l.k * all : 0),
      dy(l.rows * all), dy_transposed(all * padded);
  auto *dy8 = dy.data<uint8_t>(), *dy8_transposed = dy_transposed.data<uint8_t>();
  if (x8 == nullptr) {
    x8 = x.data<uint8_t>();
    l.cast(l.x(), kFp8X, Float8::e4m3, false, nullptr, 0, x8, padded);  // [k, rows]
  }
  if (w8 == nullptr) {
    w8 = w.data<uint8_t>();
    l.cast(l.w(), kFp8W, Float8::e4m3, false, w8, all, nullptr, 0);  // [k, count n]
  }
  l.cast(l.dy(), kFp8Gradient, format, true, dy8, all, dy8_transposed, padded);  // both
  constexpr size_t operands = 2 * kLayers + 4;
  l.product(l.rows, l.k, all, dy8, kFp8Gradient, format, w8, kFp8W, Float8::e4m3, out[0], false,
            addend_of(in, operands, 0));
  for (int64_t i = 0; i < l.count; ++i)
    l.product(l.k, l.n, padded, x8, kFp8X, Float8::e4m3, dy8_transposed + i * l.n * padded,
              kFp8Gradient, format, out[static_cast<size_t>(1 + i)], false,
              addend_of(in, operands, static_cast<size_t>(1 + i)));
}

}  // namespace

void matmul_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[1], "matmul_fp8", [&]<typename T>(T) { forward<T>(in, out, attrs, stream); });
}

void matmul_fp8_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[1], "matmul_fp8_grad", [&]<typename T>(T) { backward<T>(in, out, attrs, stream); });
}

void cast_fp8_weights_gpu(std::span<const Fp8Weights> layers, Stream stream) {
  for (const Fp8Weights& l : layers) QT_ASSERT(l.dtype == DType::f32 || l.dtype == DType::bf16);
  cast_weights_of<float>(layers, DType::f32, stream);
  cast_weights_of<simt::bf16>(layers, DType::bf16, stream);
}

void update_fp8_scaling_gpu(const Fp8Update& update, const UpdateControl* control, Stream stream) {
  if (update.count == 0) return;
  simt::launch(update_scaling,
               {.grid = static_cast<unsigned>(update.count * kFp8Operands),
                .block = kBlockThreads,
                .shared = 32 * sizeof(float),
                .stream = stream},
               update, control);
}

}  // namespace quintet::QT_GPU
