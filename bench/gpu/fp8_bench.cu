// FP8 products of dense layers against bfloat16's on a GPU: times by CUDA events of what a layer, or layers that share their
// input, take forward and backward, casts and transposes included, or made by others (fused), and of cuBLASLt's forward product alone.
//
//   fp8_bench --device=cuda [--tiny] [--only=backward] [--runs=20]
//
// A line a measurement: {"name" (what, and rows x k x n x layers), "ms" (median), "tflops"}. Sizes: t5_1_1_large, 16 x 512 tokens.

#include "bench/gpu/device_bench.cuh"
#include "kernels/fp8/fp8_gpu.h"
#include "kernels/simt/host/gemm.h"
#include "runtime/device/gpu_ops.h"

namespace quintet::bench {
namespace {

struct Sizes {
  int64_t rows, k, n, layers;
};

void measure(const Sizes& s, const Options& options) {
  Array x({s.rows, s.k}, DType::bf16);
  const Array dx({s.rows, s.k}, DType::bf16);
  x.vary(-1, 1);
  std::vector<Array> w, y, dy, dw;
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::vector<int64_t> of_layer{s.k, s.n}, of_rows{s.rows, s.n};
    w.emplace_back(of_layer, DType::bf16).vary(-1, 1);
    dy.emplace_back(of_rows, DType::bf16).vary(-1, 1);
    y.emplace_back(of_rows, DType::bf16);
    dw.emplace_back(of_layer, DType::f32);
  }
  const auto three = [](const std::vector<Array>& arrays) {
    std::vector<View> views(3, View::none());
    for (size_t i = 0; i < arrays.size(); ++i) views[i] = arrays[i].view();
    return views;
  };
  const Array table({1, kFp8ScalingFloats}, DType::f32);
  Fp8Scaling scaling{};
  for (int i = 0; i < kFp8Operands; ++i) scaling.scale[i] = scaling.scale_inv[i].value = 1;
  Device::current().copy_in(table.view().pointer, &scaling, sizeof scaling);
  std::vector<View> in{x.view()};
  for (const View& view : three(w)) in.push_back(view);
  in.push_back(table.view());
  in.insert(in.end(), 2, View::none());
  // As norms, activations and the cast of all weights leave operands; whatever the bytes say.
  const Array x8({s.rows, s.k}, DType::u8), x8_transposed({s.rows, s.k}, DType::u8),
      w8({2 * s.layers * s.k * s.n}, DType::u8);
  std::vector<View> in8 = in;
  in8[0] = x8.view(), in8[5] = x8_transposed.view(), in8[6] = w8.view();
  std::vector<View> grad_in = in, grad_in8 = in8, grads{dx.view()};
  for (const View& view : three(dy)) grad_in.push_back(view), grad_in8.push_back(view);
  for (const View& view : three(dw)) grads.push_back(view);
  const auto out = three(y);
  const double flops = 2.0 * static_cast<double>(s.rows * s.k * s.n * s.layers);
  const auto print = [&](const char* what, double work, const std::function<void()>& body) {
    const std::string name = fmt::format("{} {}x{}x{}x{}", what, s.rows, s.k, s.n, s.layers);
    if (!options.wants(name)) return;
    try {
      const double ms = median(time_calls(options.runs, [&](int) { body(); }));
      fmt::print("{{\"name\": \"{}\", \"ms\": {:.4f}, \"tflops\": {:.1f}}}\n", name, ms,
                 work / ms * 1e-9);
    } catch (const Error& error) {  // the others say more
      fmt::print("{{\"name\": \"{}\", \"error\": \"{}\"}}\n", name, error.what());
    }
    std::fflush(stdout);
  };
  print("bfloat16 forward", flops, [&] {
    for (size_t i = 0; i < w.size(); ++i)
      QT_GPU::matmul_gpu(std::vector{x.view(), w[i].view()}, std::vector{y[i].view()}, {},
                         stream());
  });
  for (const bool fast : {true, false})
    print(fast ? "fp8 product, fast accumulation" : "fp8 product", flops, [&] {
      for (size_t i = 0; i < w.size(); ++i)  // whatever the bytes say: no time depends on them
        QT_GPU::simt::gemm(stream(), {.m = s.rows,
                                      .n = s.n,
                                      .k = s.k,
                                      .a = x.view().pointer,
                                      .b = w[i].view().pointer,
                                      .c = y[i].view().pointer,
                                      .c_type = DType::bf16,
                                      .b_transposed = true,
                                      .fp8 = QT_GPU::simt::Float8Operands{
                                          Float8::e4m3, Float8::e4m3, table.view().data<float>(),
                                          table.view().data<float>(), fast}});
    });
  const Attrs attrs{{"layer", int64_t{0}}, {"gradient_format", int64_t{1}}};
  print("fp8 forward", flops, [&] { QT_GPU::matmul_fp8_gpu(in, out, attrs, stream()); });
  print("fp8 forward, fused casts", flops,
        [&] { QT_GPU::matmul_fp8_gpu(in8, out, attrs, stream()); });
  print("bfloat16 backward", 2 * flops, [&] {
    for (size_t i = 0; i < w.size(); ++i) {
      QT_GPU::matmul_t_gpu(std::vector{dy[i].view(), w[i].view()}, std::vector{dx.view()}, {},
                           stream());
      QT_GPU::matmul_grad_w_gpu(std::vector{x.view(), dy[i].view()}, std::vector{dw[i].view()}, {},
                                stream());
    }
  });
  print("fp8 backward", 2 * flops,
        [&] { QT_GPU::matmul_fp8_grad_gpu(grad_in, grads, attrs, stream()); });
  print("fp8 backward, fused casts", 2 * flops,
        [&] { QT_GPU::matmul_fp8_grad_gpu(grad_in8, grads, attrs, stream()); });
}

void run(const Options& options) {
  std::printf("{\"device\": \"%s\"}\n", Device::current().description().c_str());
  const int64_t rows = options.tiny ? 128 : 8192, part = options.tiny ? 16 : 1;
  for (const Sizes& sizes : {Sizes{rows, 1024 / part, 1024 / part, 3},
                             {rows, 1024 / part, 1024 / part, 1},
                             {rows, 1024 / part, 2816 / part, 2},
                             {rows, 2816 / part, 1024 / part, 1}})
    measure(sizes, options);
}

}  // namespace
}  // namespace quintet::bench

int main(int argc, char** argv) {
  return quintet::bench::run_program(argc, argv, quintet::bench::run);
}
