#include "kernels/dropout/dropout.h"
#include "kernels/dropout/dropout_gpu.h"
#include "kernels/dropout/mask.cuh"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

/// Column `column` of a group of rows that share their bits.
__device__ bool is_kept(const DropoutMask& mask, int64_t group, int64_t column) {
  const DropoutRule& rule = mask.rule;
  if (!rule.has_fold)
    return is_kept(rule, rule.numbers.first(group * mask.length) + static_cast<uint64_t>(column));
  const Key expert = threefry_block(
      threefry_block(rule.key(), static_cast<uint64_t>(rule.numbers.origin[0] + group)), rule.fold);
  const int64_t number = rule.numbers.origin[rule.numbers.rank - 1] + column;
  return threefry_bits(expert, static_cast<uint64_t>(number)) >> 9 < rule.threshold;
}

/// Bits of rows that share them: a warp makes a word, a lane a bit.
__global__ void __launch_bounds__(kBlockThreads)
    make_words(const __grid_constant__ DropoutMask mask, int64_t groups, int64_t depth,
               uint32_t* words) {
  const int64_t warp = (int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) / 32;
  const int64_t group = warp / mask.words_per_row;
  const int64_t column = warp % mask.words_per_row * 32 + threadIdx.x % 32;
  const bool keep = group < groups && column < depth && is_kept(mask, group, column);
  const uint32_t word = __ballot_sync(kWholeWarp, keep);
  if (group < groups && threadIdx.x % 32 == 0) words[warp] = word;
}

template <int kCount, typename T>
__device__ void drop_unit(float scale, uint32_t keep_mask, const T* residual, const T* x, T* y,
                          int64_t i) {
  float v[kCount];
  load<kCount>(x + i, v);
#pragma unroll
  for (int k = 0; k < kCount; ++k) v[k] = dropped(scale, keep_mask >> k & 1u, v[k]);
  if (residual != nullptr) {
    float r[kCount];
    load<kCount>(residual + i, r);
#pragma unroll
    for (int k = 0; k < kCount; ++k) v[k] = r[k] + v[k];
  }
  store<kCount>(y + i, v);
}

/// Every element has its own bit.
template <typename T>
__global__ void drop_each(const __grid_constant__ DropoutRule rule, const T* residual, const T* x,
                          T* y, int64_t n, int64_t depth, bool vector) {
  for_units<kLanes<T>>(n, vector, [&](int64_t i, auto count) {
    const uint64_t number = rule.numbers.unsharded
                                ? static_cast<uint64_t>(i)
                                : rule.numbers.first(i / depth) + static_cast<uint64_t>(i % depth);
    drop_unit<count>(rule.scale, keep_bits<count>(rule, number), residual, x, y, i);
  });
}

/// Rows share bits. kCount divides depth.
template <int kCount, typename T>
__global__ void drop_shared(const __grid_constant__ DropoutMask mask, const T* residual, const T* x,
                            T* y, int64_t rows, int64_t depth) {
  const int64_t units = depth / kCount;
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t u = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; u < rows * units; u += threads) {
    const int64_t row = divide(u, units, rows * units);
    const int64_t column = (u - row * units) * kCount;
    drop_unit<kCount>(mask.rule.scale, mask.bits<kCount>(row, column), residual, x, y, u * kCount);
  }
}

}  // namespace

StoredDropoutMask make_mask(const char* op, const View& x, const Attrs& attrs, Stream stream) {
  DropoutMask mask;
  mask.rule = dropout_rule(op, x, attrs);
  if (!mask.rule.numbers.shared || x.elements() == 0) return {simt::Scratch(0, stream), mask};
  QT_ASSERT(x.rows() <= UINT32_MAX);
  mask.length = x.size(-2);
  mask.words_per_row = (x.depth() + 31) / 32;
  const int64_t groups = x.rows() / mask.length, words = groups * mask.words_per_row;
  simt::Scratch workspace(words * static_cast<int64_t>(sizeof(uint32_t)), stream);
  simt::launch(make_words,
               {.grid = static_cast<unsigned>((words * 32 + kBlockThreads - 1) / kBlockThreads),
                .block = kBlockThreads,
                .stream = stream},
               mask, groups, x.depth(), workspace.data<uint32_t>());
  mask.words = workspace.data<uint32_t>();
  return {std::move(workspace), mask};
}

void apply_dropout(const char* op, const View& x, const View& residual, const View& y,
                   const Attrs& attrs, Stream stream) {
  const StoredDropoutMask made = make_mask(op, x, attrs, stream);
  const DropoutRule& rule = made.mask.rule;
  const int64_t n = x.elements(), depth = x.depth();
  if (n == 0) return;
  for_dtype(x, op, [&]<typename T>(T) {
    const T* from = elements<T>(x, op, "x");
    const T* plus = optional_elements<T>(residual, op, "residual");
    T* to = elements<T>(y, op, "y");
    const bool aligned = are_aligned({from, plus, to});
    if (rule.numbers.shared) {
      const bool vector = aligned && depth % kLanes<T> == 0;
      simt::launch(vector ? drop_shared<kLanes<T>, T> : drop_shared<1, T>,
                   {.grid = blocks_for(vector ? n / kLanes<T> : n),
                    .block = kBlockThreads,
                    .stream = stream},
                   made.mask, plus, from, to, x.rows(), depth);
      return;
    }
    const bool vector = aligned && rule.numbers.unsharded;
    simt::launch(drop_each<T>,
                 {.grid = blocks_for(vector ? n / kLanes<T> + 1 : n),
                  .block = kBlockThreads,
                  .stream = stream},
                 rule, plus, from, to, n, depth, vector);
  });
}

void dropout_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  expect_shape(in[0].elements() == out[0].elements(), "dropout", "... -> ...");
  apply_dropout("dropout", with_heads_apart(in[0], attrs), View::none(), out[0], attrs, stream);
}

}  // namespace quintet::QT_GPU
