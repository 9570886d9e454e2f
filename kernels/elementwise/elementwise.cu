#include <atomic>

#include "kernels/dropout/mask.cuh"
#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/vectors/operands_gpu.h"
#ifdef QUINTET_EMULATE
#include "kernels/simt/emulator/emulator.h"
#endif

namespace quintet::QT_GPU {
namespace {

template <typename T>
__global__ void add_kernel(const T* x, const T* y, T* z, int64_t n, bool vector) {
  for_units<kLanes<T>>(n, vector, [=](int64_t i, auto count) {
    float a[count], b[count];
    load<count>(x + i, a);
    load<count>(y + i, b);
#pragma unroll
    for (int k = 0; k < count; ++k) a[k] += b[k];
    store<count>(z + i, a);
  });
}

template <typename T>
__global__ void scale_kernel(const T* x, float factor, T* y, int64_t n, bool vector) {
  for_units<kLanes<T>>(n, vector, [=](int64_t i, auto count) {
    float v[count];
    load<count>(x + i, v);
#pragma unroll
    for (int k = 0; k < count; ++k) v[k] *= factor;
    store<count>(y + i, v);
  });
}

template <typename T>
__global__ void fill_kernel(float value, T* y, int64_t n, bool vector) {
  for_units<kLanes<T>>(n, vector, [=](int64_t i, auto count) {
    float v[count];
#pragma unroll
    for (int k = 0; k < count; ++k) v[k] = value;
    store<count>(y + i, v);
  });
}

template <typename Sum, typename T>
__global__ void accumulate_kernel(Sum* sum, const T* x, int64_t n, bool vector) {
  for_units<4>(n, vector, [=](int64_t i, auto count) {
    float a[count], b[count];
    load<count>(sum + i, a);
    load<count>(x + i, b);
#pragma unroll
    for (int k = 0; k < count; ++k) a[k] += b[k];
    store<count>(sum + i, a);
  });
}

#ifndef QUINTET_EMULATE
__global__ void count_up_kernel(uint32_t* word) { atomicAdd(word, 1u); }
#endif

simt::Launch over(int64_t n, int lanes, bool vector, Stream stream) {
  return {.grid = blocks_for(vector ? n / lanes + 1 : n), .block = kBlockThreads, .stream = stream};
}

}  // namespace

void add_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const int64_t n = out[0].elements();
  expect_shape(in[0].elements() == n && in[1].elements() == n, "add", "..., ... -> ...");
  if (attrs.get_or<double>("rate", 0) != 0)
    return apply_dropout("add", in[1], in[0], out[0], attrs, stream);
  if (n == 0) return;
  for_dtype(in[0], "add", [&]<typename T>(T) {
    const T* x = elements<T>(in[0], "add", "x");
    const T* y = elements<T>(in[1], "add", "y");
    T* z = elements<T>(out[0], "add", "z");
    const bool vector = are_aligned({x, y, z});
    simt::launch(add_kernel<T>, over(n, kLanes<T>, vector, stream), x, y, z, n, vector);
  });
}

void scale_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const int64_t n = out[0].elements();
  expect_shape(in[0].elements() == n, "scale", "... -> ...");
  const auto factor = static_cast<float>(attrs.get<double>("factor"));
  if (n == 0) return;
  for_dtype(in[0], "scale", [&]<typename T>(T) {
    const T* x = elements<T>(in[0], "scale", "x");
    T* y = elements<T>(out[0], "scale", "y");
    const bool vector = are_aligned({x, y});
    simt::launch(scale_kernel<T>, over(n, kLanes<T>, vector, stream), x, factor, y, n, vector);
  });
}

void fill_gpu(const View& y, float value, Stream stream) {
  const int64_t n = y.elements();
  if (n == 0) return;
  for_dtype(y, "fill", [&]<typename T>(T) {
    T* to = elements<T>(y, "fill", "y");
    const bool vector = are_aligned({to});
    simt::launch(fill_kernel<T>, over(n, kLanes<T>, vector, stream), value, to, n, vector);
  });
}

void accumulate_gpu(const View& sum, const View& x, Stream stream) {
  const int64_t n = sum.elements();
  expect_shape(x.elements() == n, "accumulate", "..., ... -> ...");
  if (n == 0) return;
  for_dtype(sum, "accumulate", [&]<typename Sum>(Sum) {
    for_dtype(x, "accumulate", [&]<typename T>(T) {
      Sum* to = elements<Sum>(sum, "accumulate", "the sum");
      const T* from = elements<T>(x, "accumulate", "x");
      const bool vector = are_aligned({to, from});
      simt::launch(accumulate_kernel<Sum, T>, over(n, 4, vector, stream), to, from, n, vector);
    });
  });
}

void count_up_gpu(uint32_t* word, Stream stream) {
#ifdef QUINTET_EMULATE
  simt::emulator::queue_launch([=] { std::atomic_ref(*word).fetch_add(1); }, stream);
#else
  simt::launch(count_up_kernel, {.stream = stream}, word);
#endif
}

}  // namespace quintet::QT_GPU
