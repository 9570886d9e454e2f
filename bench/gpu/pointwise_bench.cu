// The memory-bound kernels on a GPU: times by CUDA events, bytes a second, and their share of what
// a copy of 1 GiB, and one of as many bytes, reach in the same run.
//
//   pointwise_bench --device=cuda [--tiny] [--only=rms_norm] [--runs=20]
//
// A line a measurement: {"name", "ms" (median), "gb_s", "of_copy", "of_equal_copy"}. Bytes are those that a perfect
// kernel moves: every operand once.

#include <cstdlib>
#include <utility>

#include "bench/gpu/memory_bench.cuh"
#include "kernels/cast/cast_gpu.h"
#include "kernels/cross_entropy/cross_entropy_gpu.h"
#include "kernels/cross_entropy/rows.cuh"
#include "kernels/dropout/dropout_gpu.h"
#include "kernels/embed/embed_gpu.h"
#include "kernels/mlp/mlp.h"
#include "kernels/mlp/mlp_gpu.h"
#include "kernels/moe/moe_gpu.h"
#include "kernels/moe/route.h"
#include "kernels/optimizers/adafactor.h"
#include "kernels/optimizers/optimizers_gpu.h"
#include "kernels/rms_norm/rms_norm_gpu.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/simt/math.cuh"
#include "kernels/simt/simt.cuh"

namespace quintet::QT_GPU {
namespace {

/// `rounds` times eight exponentials a thread that do not wait for each other.
__global__ void exponentials_kernel(float* y, int rounds) {
  float x[8], sum = 0;
  for (int i = 0; i < 8; ++i) x[i] = 0.1f * static_cast<float>(i + 1);
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (float& one : x) one = simt::exp2_approx(-one);
  for (const float one : x) sum += one;
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace
}  // namespace quintet::QT_GPU

namespace quintet::bench {
namespace {

constexpr DType kBf16 = DType::bf16, kF32 = DType::f32;

/// What softmax is bounded by, where its products do not.
void bench_exponentials(MemoryBench& bench) {
  const bool tiny = bench.options().tiny;
  const auto blocks = static_cast<unsigned>(8 * QT_GPU::simt::device().multiprocessors);
  const unsigned threads = tiny ? 32 : 256;
  const int rounds = tiny ? 2 : 2048;
  const Array sums({int64_t{blocks} * threads}, kF32);
  bench.measure(fmt::format("exponentials {}", 8 * sums.elements() * rounds),
                static_cast<double>(sums.bytes()), [&] {
                  QT_GPU::simt::launch(QT_GPU::exponentials_kernel,
                                       {.grid = blocks, .block = threads, .stream = stream()},
                                       sums.data<float>(), rounds);
                });
}

void bench_norms(MemoryBench& bench) {
  const int64_t rows = bench.options().tiny ? 64 : 20480;
  for (int64_t d : {512, 768, 1024, 2048, 4096}) {
    if (!bench.wants("rms_norm")) return;
    Array x({rows / 32, 32, d}, kBf16), dy({rows / 32, 32, d}, kBf16),
        out({rows / 32, 32, d}, kBf16);
    const Array scale({d}, kF32), dscale({d}, kF32), more({rows / 32, 32, d}, kBf16),
        sum({rows / 32, 32, d}, kBf16);
    x.vary(-1, 1), dy.vary(-1, 1);
    const double one = static_cast<double>(x.bytes());
    const Attrs attrs{{"eps", 1e-6}};
    Attrs dropout = attrs;
    dropout.set("rate", 0.1), dropout.set("key0", int64_t{1}), dropout.set("key1", int64_t{2});
    dropout.set("broadcast_dim", int64_t{-2});
    const auto name = [&](const char* what) { return fmt::format("{} {}x{}", what, rows, d); };
    const std::vector<View> in{x.view(), scale.view()}, y{out.view()};
    bench.measure(name("rms_norm"), 2 * one, [&] { QT_GPU::rms_norm_gpu(in, y, attrs, stream()); });
    const std::vector<View> gin{x.view(), scale.view(), dy.view()}, gout{out.view(), dscale.view()};
    bench.measure(name("rms_norm_grad"), 3 * one,
                  [&] { QT_GPU::rms_norm_grad_gpu(gin, gout, attrs, stream()); });
    const std::vector<View> ain{x.view(), dy.view(), scale.view()}, aout{sum.view(), out.view()};
    bench.measure(name("add_rms_norm"), 4 * one,
                  [&] { QT_GPU::add_rms_norm_gpu(ain, aout, attrs, stream()); });
    bench.measure(name("add_rms_norm_dropout"), 4 * one,
                  [&] { QT_GPU::add_rms_norm_gpu(ain, aout, dropout, stream()); });
    const std::vector<View> bin{x.view(), scale.view(), dy.view(), more.view()};
    const std::vector<View> bout{out.view(), View::none(), dscale.view()};
    bench.measure(name("add_rms_norm_grad"), 4 * one,
                  [&] { QT_GPU::add_rms_norm_grad_gpu(bin, bout, attrs, stream()); });
    const std::vector<View> dout{out.view(), sum.view(), dscale.view()};
    bench.measure(name("add_rms_norm_grad_dropout"), 5 * one,
                  [&] { QT_GPU::add_rms_norm_grad_gpu(bin, dout, dropout, stream()); });
  }
}

void bench_elementwise(MemoryBench& bench) {
  const int64_t rows = bench.options().tiny ? 64 : 20480, d = 1024;
  Array x({rows / 512 + 1, 512, d}, kBf16), y({rows / 512 + 1, 512, d}, kBf16);
  const Array z({rows / 512 + 1, 512, d}, kBf16), sum({x.elements()}, kF32);
  x.vary(-1, 1), y.vary(-1, 1);
  const double one = static_cast<double>(x.bytes());
  const std::vector<View> two{x.view(), y.view()}, first{x.view()}, out{z.view()};
  Attrs attrs{{"rate", 0.1}, {"key0", int64_t{1}}, {"key1", int64_t{2}}};
  bench.measure("add", 3 * one, [&] { QT_GPU::add_gpu(two, out, {}, stream()); });
  bench.measure("scale", 2 * one, [&] {
    QT_GPU::scale_gpu(first, out, {{"factor", 0.5}}, stream());
  });
  bench.measure("dropout_each", 2 * one, [&] { QT_GPU::dropout_gpu(first, out, attrs, stream()); });
  attrs.set("broadcast_dim", int64_t{-2});
  bench.measure("dropout_shared", 2 * one,
                [&] { QT_GPU::dropout_gpu(first, out, attrs, stream()); });
  bench.measure("add_dropout_shared", 3 * one, [&] { QT_GPU::add_gpu(two, out, attrs, stream()); });
  bench.measure("accumulate_bf16", 5 * one,
                [&] { QT_GPU::accumulate_gpu(sum.view(), x.view(), stream()); });
}

void bench_embed(MemoryBench& bench) {
  if (!bench.wants("embed")) return;
  const int64_t tokens = bench.options().tiny ? 64 : 20480, v = bench.options().tiny ? 100 : 32128,
                d = 1024;
  Array ids({tokens}, DType::i32);
  const Array table({v, d}, kBf16), y({tokens, d}, kBf16), dtable({v, d}, kF32);
  const double rows = static_cast<double>(y.bytes());
  for (bool skewed : {false, true}) {
    ids.ids(v, skewed);
    const std::string end = skewed ? "_skewed" : "";
    const std::vector<View> in{ids.view(), table.view()}, out{y.view()};
    bench.measure("embed" + end, 2 * rows, [&] { QT_GPU::embed_gpu(in, out, {}, stream()); });
    const std::vector<View> gin{ids.view(), y.view()}, gout{dtable.view()};
    bench.measure("embed_grad" + end, rows + static_cast<double>(dtable.bytes()),
                  [&] { QT_GPU::embed_grad_gpu(gin, gout, {}, stream()); });
  }
}

/// Forward and backward, all gradients of weights included: by the faster variant and, "unfused", by
/// cuBLASLt's products with the activations in between.
void bench_mlp(MemoryBench& bench, int64_t rows, int64_t e, int64_t f) {
  Array x({rows, e}, kBf16), w0({e, f}, kBf16), w1({e, f}, kBf16), wo({f, e}, kBf16);
  const Array y({rows, f}, kBf16), h0({rows, f}, kBf16), h1({rows, f}, kBf16), z({rows, e}, kBf16),
      dx({rows, e}, kBf16), dw0({e, f}, kF32), dw1({e, f}, kF32), dwo({f, e}, kF32);
  x.vary(-1, 1), w0.vary(-0.1f, 0.1f), w1.vary(-0.1f, 0.1f), wo.vary(-0.1f, 0.1f);
  const Attrs attrs{{"act0", static_cast<int64_t>(Activation::gelu)}, {"act1", int64_t{0}}};
  const std::vector<View> in{x.view(), w0.view(), w1.view(), wo.view()};
  const std::vector<View> out{z.view(), h0.view(), h1.view()};
  std::vector<View> gin = in;
  gin.insert(gin.end(), {h0.view(), h1.view(), z.view()});
  const std::vector<View> gout{dx.view(), dw0.view(), dw1.view(), y.view()};
  const auto forward = [&] { QT_GPU::mlp_gpu(in, out, attrs, stream()); };
  const auto backward = [&] {
    QT_GPU::mlp_grad_gpu(gin, gout, attrs, stream());
    QT_GPU::simt::gemm(stream(), {.m = f,
                                  .n = e,
                                  .k = rows,
                                  .a = y.data<void>(),
                                  .b = z.data<void>(),
                                  .c = dwo.data<void>(),
                                  .type = kBf16,
                                  .c_type = kF32,
                                  .a_transposed = true});
  };
  const double bytes = static_cast<double>(x.bytes() + 3 * w0.bytes() + 3 * y.bytes() + z.bytes());
  const double flops = 6.0 * static_cast<double>(rows) * static_cast<double>(e * f);
  const auto measure = [&](const char* what, double times, const std::function<void()>& body) {
    const double ms = bench.measure(fmt::format("{} {}x{}x{}", what, rows, e, f), bytes, body);
    if (ms > 0) std::printf("  %s: %.0f TFLOP/s\n", what, times * flops / ms * 1e-9);
  };
  measure("mlp", 1, forward);
  measure("mlp_grad", 2, backward);
  setenv("QUINTET_VARIANT", "1", 1);
  measure("mlp_unfused", 1, forward);
  measure("mlp_unfused_grad", 2, backward);
  unsetenv("QUINTET_VARIANT");
}

void bench_mlps(MemoryBench& bench) {
  if (!bench.wants("mlp")) return;
  if (bench.options().tiny) return bench_mlp(bench, 128, 64, 128);
  bench_mlp(bench, 16384, 1024, 2816);
  bench_mlp(bench, 81920, 512, 1024);
  bench_mlp(bench, 10240, 2048, 5120);
  bench_mlp(bench, 4096, 4096, 10240);
}

/// The product of the rows of `a` with the first matrix of `b`, dense, by cuBLASLt.
void bench_product(MemoryBench& bench, const char* name, const Array& a, const Array& b,
                   const Array& c) {
  const auto columns = [](const View& v) { return v.sizes[static_cast<size_t>(v.rank - 1)]; };
  const int64_t k = columns(a.view()), n = columns(c.view()), rows = a.elements() / k;
  bench.measure(name, static_cast<double>(a.bytes() + c.bytes() + 2 * k * n), [&] {
    QT_GPU::simt::gemm(stream(), {.m = rows,
                                  .n = n,
                                  .k = k,
                                  .a = a.data<void>(),
                                  .b = b.data<void>(),
                                  .c = c.data<void>(),
                                  .type = kBf16,
                                  .c_type = kBf16});
  });
}

/// A Switch layer of base size: 64 experts, one choice a token, groups of 4,096. The bounds: 155
/// GFLOP and 604 MB of weights for the two products.
void bench_moe(MemoryBench& bench) {
  if (!bench.wants("moe")) return;
  const bool tiny = bench.options().tiny;
  const int64_t b = tiny ? 2 : 32, l = tiny ? 32 : 512, e = tiny ? 64 : 768, f = tiny ? 128 : 3072,
                experts = tiny ? 4 : 64, group = tiny ? 32 : 4096, tokens = b * l;
  Array x({b, l, e}, kBf16), router({e, experts}, kF32), wi({experts, e, f}, kBf16),
      wo({experts, f, e}, kBf16);
  x.vary(-1, 1), router.vary(-0.1f, 0.1f), wi.vary(-0.1f, 0.1f), wo.vary(-0.1f, 0.1f);
  const Array gates({b, l, 1}, kF32), logits({b, l, experts}, kF32), auxiliary({}, kF32),
      z_loss({}, kF32), counts({5}, kF32), load({experts}, kF32), drouter({e, experts}, kF32);
  const Array rows({b, l, 1}, DType::i32), choices({b, l}, DType::i32),
      offsets({b, experts + 1}, DType::i32), chosen({b, l, 1}, DType::i32),
      positions({b, l, 1}, DType::i32);
  const Array packed({b, l, e}, kBf16), h({b, l, f}, kBf16), y({b, l, f}, kBf16),
      dx({b, l, e}, kBf16), dwi({experts, e, f}, kF32);
  const auto measure = [&](const std::string& name, double bytes, Kernel kernel,
                           std::vector<View> in, std::vector<View> out, const Attrs& attrs,
                           bool multiplies = false) {
    const double ms =
        bench.measure("moe_" + name, bytes, [&] { kernel(in, out, attrs, stream()); });
    if (ms > 0 && multiplies)
      std::printf("  moe_%s: %.0f TFLOP/s\n", name.c_str(),
                  2.0 * static_cast<double>(tokens) * static_cast<double>(e * f) / ms * 1e-9);
  };
  const Attrs route{{"router", static_cast<int64_t>(Router::tokens_choose)},
                    {"k", int64_t{1}},
                    {"capacity", group * 5 / 4 / experts},
                    {"group_size", group},
                    {"groups", tokens / group}};
  const Attrs relu{{"act0", static_cast<int64_t>(Activation::relu)}, {"act1", int64_t{0}}};
  const double small = static_cast<double>(x.bytes()), large = static_cast<double>(y.bytes()),
               weights = static_cast<double>(wi.bytes());
  const View none = View::none();
  const std::vector<View> routed{gates.view(),     logits.view(),  auxiliary.view(), z_loss.view(),
                                 rows.view(),      choices.view(), offsets.view(),   chosen.view(),
                                 positions.view(), counts.view(),  load.view()};
  const std::vector<View> tokens_and_router{x.view(), router.view()};
  QT_GPU::route_gpu(tokens_and_router, routed, route, stream());  // what the others work on
  measure("route", small, QT_GPU::route_gpu, tokens_and_router, routed, route);
  measure("route_grad", 2 * small, QT_GPU::route_grad_gpu,
          {x.view(), router.view(), logits.view(), chosen.view(), gates.view(), gates.view(),
           auxiliary.view(), z_loss.view()},
          {dx.view(), drouter.view()}, route);
  measure("dispatch", 2 * small, QT_GPU::dispatch_gpu,
          {x.view(), rows.view(), choices.view(), none}, {packed.view()}, {});
  measure("combine", 2 * small, QT_GPU::combine_gpu,
          {packed.view(), rows.view(), choices.view(), gates.view()}, {dx.view()}, {});
  measure("combine_grad_gates", 2 * small, QT_GPU::combine_grad_gates_gpu,
          {packed.view(), rows.view(), x.view()}, {gates.view()}, {});
  measure("experts_in", small + 2 * large + weights, QT_GPU::experts_in_gpu,
          {packed.view(), offsets.view(), wi.view(), none}, {y.view(), h.view(), none}, relu, true);
  measure("experts_out", small + large + weights, QT_GPU::grouped_matmul_gpu,
          {y.view(), offsets.view(), wo.view()}, {dx.view()}, {}, true);
  bench_product(bench, "moe_dense_in", packed, wi, y);
  bench_product(bench, "moe_dense_out", y, wo, dx);
  measure("experts_out_grad_x", small + large + weights, QT_GPU::grouped_matmul_t_gpu,
          {dx.view(), offsets.view(), wo.view()}, {y.view()}, {}, true);
  measure("experts_in_grad_w", small + large + 2 * weights, QT_GPU::grouped_matmul_grad_w_gpu,
          {packed.view(), offsets.view(), y.view()}, {dwi.view()}, {}, true);
}

void bench_cross_entropy(MemoryBench& bench, int64_t tokens, int64_t v, int64_t e) {
  if (!bench.wants("cross_entropy")) return;
  const std::string size = fmt::format(" {}x{}", tokens, v);
  Array targets({tokens}, DType::i32);
  targets.ids(v, false);
  const Array weights({tokens}, kF32, 1.0f);
  {
    // The row kernel alone, in place.
    Array logits({tokens, v}, kBf16);
    logits.vary(-8, 8);
    const Array losses({tokens, 3}, kF32), fault({64}, DType::u8);
    Device::current().fill(fault.data<char>(), 0, 64);
    const QT_GPU::cross_entropy::Rows<QT_GPU::simt::bf16> rows{
        .logits = logits.data<QT_GPU::simt::bf16>(),
        .stride = v,
        .vocabulary = static_cast<int32_t>(v),
        .all_columns = static_cast<int32_t>(v),
        .targets = targets.data<int32_t>(),
        .weights = weights.data<float>(),
        .losses = losses.data<QT_GPU::cross_entropy::TokenLoss>(),
        .log_probabilities = nullptr,
        .has_gradient = true,
        .first_token = 0,
        .fault = fault.data<FaultSlot>(),
        .rule = {1, 0, 0, 1e-4f}};
    bench.measure("cross_entropy_rows" + size, 2.0 * static_cast<double>(logits.bytes()),
                  [&] { QT_GPU::cross_entropy::process_rows(rows, tokens, stream()); });
  }
  Array x({tokens, e}, kBf16), w({e, v}, kBf16);
  x.vary(-1, 1), w.vary(-0.05f, 0.05f);
  const Array loss({}, kF32), z({}, kF32), correct({}, kF32), dx({tokens, e}, kBf16),
      dw({e, v}, kF32);
  const std::vector<View> in{x.view(), w.view(), targets.view(), weights.view()};
  const std::vector<View> out{loss.view(),  z.view(),  correct.view(),
                              View::none(), dx.view(), dw.view()};
  const Attrs attrs{{"z_loss", 1e-4}};
  const double ms =
      bench.measure("cross_entropy" + size, 2.0 * 2.0 * static_cast<double>(tokens * v),
                    [&] { QT_GPU::cross_entropy_gpu(in, out, attrs, stream()); });
  if (ms > 0)
    std::printf("  cross_entropy%s: %.0f TFLOP/s\n", size.c_str(),
                6.0 * static_cast<double>(tokens) * static_cast<double>(v * e) / ms * 1e-9);
}

/// Shapes of T5 1.1 large's parameters: 783 million numbers.
std::vector<std::vector<int64_t>> t5_large(bool tiny) {
  const int64_t e = tiny ? 64 : 1024, f = tiny ? 128 : 2816, v = tiny ? 256 : 32128;
  const int layers = tiny ? 1 : 24;
  std::vector<std::vector<int64_t>> shapes{{v, e}, {e, v}, {16, 32}, {16, 32}, {e}, {e}};
  for (int layer = 0; layer < layers; ++layer) {
    for (int i = 0; i < 12; ++i) shapes.push_back({e, e});  // three attentions
    for (int i = 0; i < 4; ++i) shapes.push_back({e, f});   // wi_0 and wi_1 of both stacks
    for (int i = 0; i < 2; ++i) shapes.push_back({f, e});
    for (int i = 0; i < 5; ++i) shapes.push_back({e});
  }
  return shapes;
}

void bench_optimizers(MemoryBench& bench) {
  if (!bench.wants("optim")) return;
  const auto shapes = t5_large(bench.options().tiny);
  int64_t total = 0;
  std::vector<int64_t> begins;
  for (const auto& shape : shapes) {
    begins.push_back(total);
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    total += (n + 63) / 64 * 64;
  }
  Array gradients({total}, kF32), params({total}, kF32), mu({total}, kF32, 0), nu({total}, kF32, 1);
  const Array copies({total}, kBf16);
  gradients.vary(-1, 1), params.vary(-1, 1);
  std::vector<UpdateArrays> arrays;
  std::vector<AdafactorGpuArray> factored;
  std::vector<View> views;
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t n = 1;
    for (int64_t s : shapes[i]) n *= s;
    const int64_t at = begins[i];
    arrays.push_back({gradients.data<float>() + at, params.data<float>() + at,
                      mu.data<float>() + at, nu.data<float>() + at, copies.data<uint16_t>() + at,
                      n});
    views.push_back(View::of(gradients.data<float>() + at, shapes[i]));
    AdafactorGpuArray a{};
    a.gradient = gradients.data<float>() + at, a.param = params.data<float>() + at;
    a.copy = copies.data<uint16_t>() + at;
    const bool both = shapes[i].size() == 2 &&
                      std::min(shapes[i][0], shapes[i][1]) >= (bench.options().tiny ? 64 : 128);
    std::vector<MomentAxisSize> axes;
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      const bool column = both && shapes[i][d] == std::max(shapes[i][0], shapes[i][1]) &&
                          !(d == 0 && shapes[i][0] == shapes[i][1]);
      axes.push_back({!both    ? MomentAxis::none
                      : column ? MomentAxis::column
                               : MomentAxis::row,
                      shapes[i][d]});
    }
    a.shape = adafactor_shape(axes);
    if (both) {
      const int64_t rows = std::min(shapes[i][0], shapes[i][1]);
      a.v_row = nu.data<float>() + at, a.v_col = nu.data<float>() + at + rows;
    } else {
      a.v = nu.data<float>() + at;
    }
    factored.push_back(a);
  }
  int64_t tiles = 0;
  for (const AdafactorGpuArray& a : factored) tiles += adafactor_tiles(a.shape);
  const Array param_squares({tiles}, kF32);  // not known: all bits set
  tiles = 0;
  for (AdafactorGpuArray& a : factored)
    a.param_squares =
        param_squares.data<float>() + std::exchange(tiles, tiles + adafactor_tiles(a.shape));
  const double n = static_cast<double>(total);
  const cpu::AdamStep adam{0.9f, 0.1f, 0.999f, 0.001f, 1, 0, 1, 1e-8f, 0, 1e-9f, 0.01f};
  bench.measure("optim_adamw t5_large", 30 * n,
                [&] { QT_GPU::update_adam_gpu(arrays, adam, {}, nullptr, stream()); });
  const cpu::LionStep lion{0.9f, 0.1f, 0.99f, 0.01f, 1e-9f, 0.01f};
  bench.measure("optim_lion t5_large", 22 * n,
                [&] { QT_GPU::update_lion_gpu(arrays, lion, {}, nullptr, stream()); });
  const AdafactorStep adafactor{
      .learning_rate = 1e-9f, .decay = 0.9f, .mixing = 0.1f, .clipping_threshold = 1.0};
  Device::current().fill(param_squares.data(), 0xff, param_squares.bytes());
  // Gradient and parameter read once, parameter and copy written once.
  bench.measure("optim_adafactor t5_large", 14 * n,
                [&] { QT_GPU::update_adafactor_gpu(factored, adafactor, nullptr, {}, stream()); });
  const Array statistics({static_cast<int64_t>(arrays.size() + 1) * 4}, kF32);
  bench.measure("optim_measure t5_large", 4 * n, [&] {
    QT_GPU::measure_arrays_gpu(views, statistics.data<ArrayStatistics>(), nullptr, stream());
  });
  std::vector<View> from, to;
  for (const UpdateArrays& a : arrays) {
    from.push_back(View::of(a.param, std::array{a.n}));
    to.push_back(from.back());
    to.back().pointer = a.copy, to.back().dtype = kBf16;
  }
  bench.measure("optim_cast t5_large", 6 * n, [&] { QT_GPU::cast_gpu(from, to, stream()); });
}

void run(const Options& options) {
  std::printf("# %s\n", Device::current().description().c_str());
  MemoryBench bench(options);
  bench_exponentials(bench);
  bench_norms(bench);
  bench_elementwise(bench);
  bench_embed(bench);
  bench_mlps(bench);
  bench_moe(bench);
  bench_optimizers(bench);
  const bool tiny = options.tiny;
  bench_cross_entropy(bench, tiny ? 64 : 4096, tiny ? 512 : 32128, tiny ? 64 : 1024);
  bench_cross_entropy(bench, tiny ? 64 : 16384, tiny ? 512 : 32128, tiny ? 64 : 1024);
  bench_cross_entropy(bench, tiny ? 16 : 4096, tiny ? 512 : 250112, tiny ? 64 : 1024);
}

}  // namespace
}  // namespace quintet::bench

int main(int argc, char** argv) {
  return quintet::bench::run_program(argc, argv, quintet::bench::run);
}
