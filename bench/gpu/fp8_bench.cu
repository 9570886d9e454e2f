// FP8 products of dense layers against bfloat16's on a GPU: times by CUDA events of what a layer, or layers that share their
// input, take forward and backward, casts and transposes included, and of cuBLASLt's forward product alone.
//
//   fp8_bench --device=cuda [--tiny] [--runs=20]
//
// A line a measurement: {"name", "rows", "k", "n", "layers", "ms" (median), "tflops"}. Sizes: t5_1_1_large, 16 x 512 tokens.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/fp8/fp8_gpu.h"
#include "kernels/simt/cuda_check.h"
#include "kernels/simt/host/gemm.h"
#include "runtime/device/devices.h"
#include "runtime/device/gpu_ops.h"

namespace quintet {
namespace {

struct Options {
  std::string device = "cuda";
  bool tiny = false;
  int runs = 20;
};

struct Sizes {
  int64_t rows, k, n, layers;
};

/// An array of [rows, columns] on the device, numbers between -1 and 1 or zeros.
class Array {
 public:
  Array(int64_t rows, int64_t columns, DType dtype, bool is_random = true)
      : sizes_{rows, columns}, dtype_(dtype) {
    const int64_t n = rows * columns;
    memory_ = Device::current().memory().allocate(n * size_of(dtype));
    Device::current().fill(memory_.get(), 0, n * size_of(dtype));
    if (!is_random) return;
    std::vector<bfloat16> numbers(static_cast<size_t>(n));
    uint32_t state = 12345;
    for (bfloat16& x : numbers) {
      state = state * 1664525u + 1013904223u;
      x = bfloat16(static_cast<float>(state >> 8) / 8388608.0f - 1);
    }
    Device::current().copy_in(memory_.get(), numbers.data(), n * size_of(dtype));
  }
  View view() const {
    View v = View::of(reinterpret_cast<float*>(memory_.get()), sizes_);
    v.dtype = dtype_;
    return v;
  }

 private:
  std::vector<int64_t> sizes_;
  DType dtype_;
  Buffer memory_;
};

/// Median milliseconds of `body`, after two runs that are not counted.
double median_ms(int runs, const std::function<void()>& body) {
  const auto stream = static_cast<cudaStream_t>(Device::current().stream().handle);
  cudaEvent_t start, stop;
  check_cuda(cudaEventCreate(&start), "event");
  check_cuda(cudaEventCreate(&stop), "event");
  std::vector<float> times;
  for (int run = -2; run < runs; ++run) {
    check_cuda(cudaEventRecord(start, stream), "event");
    body();
    check_cuda(cudaEventRecord(stop, stream), "event");
    check_cuda(cudaEventSynchronize(stop), "a kernel failed");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, start, stop), "event");
    if (run >= 0) times.push_back(ms);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]);
}

void measure(const Sizes& s, int runs) {
  const Stream stream = Device::current().stream();
  const Array x(s.rows, s.k, DType::bf16), dx(s.rows, s.k, DType::bf16, false);
  std::vector<Array> w, y, dy, dw;
  for (int64_t i = 0; i < s.layers; ++i) {
    w.emplace_back(s.k, s.n, DType::bf16);
    dy.emplace_back(s.rows, s.n, DType::bf16);
    y.emplace_back(s.rows, s.n, DType::bf16, false);
    dw.emplace_back(s.k, s.n, DType::f32, false);
  }
  const auto three = [](const std::vector<Array>& arrays) {
    std::vector<View> views(3, View::none());
    for (size_t i = 0; i < arrays.size(); ++i) views[i] = arrays[i].view();
    return views;
  };
  Array table(1, kFp8ScalingFloats, DType::f32, false);
  Fp8Scaling scaling{};
  for (int i = 0; i < kFp8Operands; ++i) scaling.scale[i] = scaling.scale_inv[i].value = 1;
  Device::current().copy_in(table.view().pointer, &scaling, sizeof scaling);
  std::vector<View> in{x.view()};
  for (const View& view : three(w)) in.push_back(view);
  in.push_back(table.view());
  std::vector<View> grad_in = in, grads{dx.view()};
  for (const View& view : three(dy)) grad_in.push_back(view);
  for (const View& view : three(dw)) grads.push_back(view);
  const auto out = three(y);
  const double flops = 2.0 * static_cast<double>(s.rows * s.k * s.n * s.layers);
  const auto print = [&](const char* name, double work, const std::function<void()>& body) {
    double ms = 0;
    try {
      ms = median_ms(runs, body);
    } catch (const Error& error) {  // the others say more
      std::printf("{\"name\": \"%s\", \"error\": \"%s\"}\n", name, error.what());
      return;
    }
    std::printf(
        "{\"name\": \"%s\", \"rows\": %lld, \"k\": %lld, \"n\": %lld, \"layers\": %lld, \"ms\": "
        "%.4f, \"tflops\": %.1f}\n",
        name, static_cast<long long>(s.rows), static_cast<long long>(s.k),
        static_cast<long long>(s.n), static_cast<long long>(s.layers), ms, work / ms * 1e-9);
    std::fflush(stdout);
  };
  print("bfloat16 forward", flops, [&] {
    for (size_t i = 0; i < w.size(); ++i)
      cuda::matmul_gpu(std::vector{x.view(), w[i].view()}, std::vector{y[i].view()}, {}, stream);
  });
  for (const bool fast : {true, false})
    print(fast ? "fp8 product, fast accumulation" : "fp8 product", flops, [&] {
      for (size_t i = 0; i < w.size(); ++i)  // whatever the bytes say: no time depends on them
        cuda::simt::gemm(stream, {.m = s.rows,
                                  .n = s.n,
                                  .k = s.k,
                                  .a = x.view().pointer,
                                  .b = w[i].view().pointer,
                                  .c = y[i].view().pointer,
                                  .c_type = DType::bf16,
                                  .b_transposed = true,
                                  .fp8 = cuda::simt::Float8Operands{
                                      Float8::e4m3, Float8::e4m3, table.view().data<float>(),
                                      table.view().data<float>(), fast}});
    });
  const Attrs attrs{{"layer", int64_t{0}}, {"gradient_format", int64_t{1}}};
  print("fp8 forward", flops, [&] { cuda::matmul_fp8_gpu(in, out, attrs, stream); });
  print("bfloat16 backward", 2 * flops, [&] {
    for (size_t i = 0; i < w.size(); ++i) {
      cuda::matmul_t_gpu(std::vector{dy[i].view(), w[i].view()}, std::vector{dx.view()}, {},
                         stream);
      cuda::matmul_grad_w_gpu(std::vector{x.view(), dy[i].view()}, std::vector{dw[i].view()}, {},
                              stream);
    }
  });
  print("fp8 backward", 2 * flops,
        [&] { cuda::matmul_fp8_grad_gpu(grad_in, grads, attrs, stream); });
}

void run(const Options& options) {
  use_device(options.device);
  std::printf("{\"device\": \"%s\"}\n", Device::current().description().c_str());
  const int64_t rows = options.tiny ? 128 : 8192, part = options.tiny ? 16 : 1;
  for (const Sizes& sizes : {Sizes{rows, 1024 / part, 1024 / part, 3},
                             {rows, 1024 / part, 1024 / part, 1},
                             {rows, 1024 / part, 2816 / part, 2},
                             {rows, 2816 / part, 1024 / part, 1}})
    measure(sizes, options.runs);
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  quintet::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.starts_with("--device="))
      options.device = arg.substr(9);
    else if (arg == "--tiny")
      options.tiny = true;
    else if (arg.starts_with("--runs="))
      options.runs = std::atoi(arg.c_str() + 7);
    else
      return std::fprintf(stderr, "fp8_bench: unknown flag %s\n", argv[i]), 2;
  }
  try {
    quintet::run(options);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "error: %s\n", error.what()), 4;
  }
  return 0;
}
