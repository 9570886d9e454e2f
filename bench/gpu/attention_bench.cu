// Attention on a GPU: times by CUDA events, and the distance of each result from the float32 path
// on the first sequence.
//
//   attention_bench --device=cuda [--tiny] [--only=512x512] [--runs=30]
//
// A line a measurement (bench/gpu/README.md): variants quintet (the op, as a step calls it: with a
// mask whose ranges are there) and quintet_sm80 (the kernels for older devices), each also with _no_bias; backward
// includes the gradient of the table. `error`s are relative L2 distances.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "kernels/attention/attention_gpu.h"
#include "kernels/attention/gpu/tensor_core.cuh"
#include "kernels/attention/ranges.h"
#include "kernels/device.h"
#include "kernels/simt/cuda_check.h"
#include "runtime/device/devices.h"

namespace quintet {
namespace {

using cuda::attention::Prepared;

struct Case {
  int64_t batch, heads, depth, queries, keys;
  std::string how;  // "", "causal", "cross", "packed4"
  std::string name() const {
    return fmt::format("b{}_h{}_d{}_{}x{}{}{}", batch, heads, depth, queries, keys,
                       how.empty() ? "" : "_", how);
  }
  double flops() const { return 4.0 * static_cast<double>(batch * heads * queries * keys * depth); }
};

const std::vector<Case> kCases = {
    {32, 16, 64, 512, 512, ""},        {32, 16, 64, 128, 128, "causal"},
    {32, 16, 64, 128, 512, "cross"},   {4, 16, 64, 2048, 2048, ""},
    {32, 16, 64, 512, 512, "packed4"}, {32, 16, 128, 512, 512, ""},
    {4, 16, 128, 2048, 2048, ""},      {2, 16, 64, 4096, 4096, ""},
    {2, 16, 128, 4096, 4096, ""},      {1, 16, 64, 8192, 8192, ""}};
const std::vector<Case> kTinyCases = {{1, 2, 16, 32, 32, ""},
                                      {1, 2, 16, 16, 16, "causal"},
                                      {1, 2, 16, 16, 32, "cross"},
                                      {1, 2, 16, 32, 32, "packed4"}};

/// An array on the device.
class Array {
 public:
  Array() = default;
  Array(std::vector<int64_t> sizes, DType dtype) : sizes_(std::move(sizes)), dtype_(dtype) {
    buffer_ = Device::current().memory().allocate(std::max<int64_t>(bytes(), 1));
  }
  View view() const {
    View v = View::of(reinterpret_cast<float*>(buffer_.get()), sizes_);
    v.dtype = dtype_;
    return v;
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t s : sizes_) n *= s;
    return n;
  }
  int64_t bytes() const { return elements() * size_of(dtype_); }
  /// Normal numbers, rounded to bfloat16 whatever the dtype; the same ones for the same seed.
  void fill_normal(uint64_t seed, double deviation) {
    std::vector<float> values(static_cast<size_t>(elements()));
    uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
    for (float& x : values) {
      double sum = -6;
      for (int i = 0; i < 3; ++i) {  // the sum of 12 uniform numbers
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        for (int part = 0; part < 4; ++part)
          sum += static_cast<double>((state >> (16 * part)) & 0xffffU) / 65536.0;
      }
      x = static_cast<float>(bfloat16(static_cast<float>(sum * deviation)));
    }
    store(values);
  }
  void store(const std::vector<float>& values) {
    if (dtype_ == DType::bf16) {
      std::vector<bfloat16> rounded;
      for (float x : values) rounded.emplace_back(x);
      Device::current().copy_in(buffer_.get(), rounded.data(), bytes());
    } else {
      Device::current().copy_in(buffer_.get(), values.data(), bytes());
    }
  }
  void store(const std::vector<int32_t>& values) {
    Device::current().copy_in(buffer_.get(), values.data(), bytes());
  }
  /// The first `count` elements.
  std::vector<float> load(int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    if (dtype_ == DType::bf16) {
      std::vector<bfloat16> rounded(values.size());
      Device::current().copy_out(rounded.data(), buffer_.get(), count * 2);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rounded[i]);
    } else {
      Device::current().copy_out(values.data(), buffer_.get(), count * 4);
    }
    return values;
  }

 private:
  std::vector<int64_t> sizes_;
  DType dtype_ = DType::f32;
  Buffer buffer_;
};

/// Operands and results of a case for `batch` sequences of the given dtype.
struct Problem {
  Case c;
  Array q, k, v, table, q_segments, kv_segments, ranges, out, lse, dout, dq, dk, dv, dtable;
  bool has_bias;

  Problem(const Case& its, int64_t batch, DType dtype, bool bias, uint64_t seed)
      : c(its), has_bias(bias) {
    c.batch = batch;
    const int64_t width = c.heads * c.depth;
    const double deviation = std::pow(static_cast<double>(c.depth), -0.25);
    const auto array = [&](int64_t length) { return Array({batch, length, width}, dtype); };
    q = array(c.queries), k = array(c.keys), v = array(c.keys), out = array(c.queries);
    dout = array(c.queries), dq = array(c.queries), dk = array(c.keys), dv = array(c.keys);
    q.fill_normal(seed + 1, deviation), k.fill_normal(seed + 2, deviation);
    v.fill_normal(seed + 3, 1), dout.fill_normal(seed + 4, 1);
    lse = Array({batch, c.heads, c.queries}, DType::f32);
    table = Array({c.heads, 32}, DType::f32), dtable = Array({c.heads, 32}, DType::f32);
    table.fill_normal(5, 1);
    const int64_t examples = c.how == "packed4" ? 4 : 1;  // a row; training always names them
    for (auto [array_of, length] : {std::pair(&q_segments, c.queries), {&kv_segments, c.keys}}) {
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < batch * length; ++i)
        ids.push_back(static_cast<int32_t>(1 + i % length * examples / length));
      *array_of = Array({batch, length}, DType::i32);
      array_of->store(ids);
    }
    ranges = Array({batch, attention::ranges_length(c.queries)}, DType::i32);
    cuda::attention_ranges_gpu(
        std::vector<View>{q_segments.view(), kv_segments.view(), View::none()},
        std::vector<View>{ranges.view()}, {{"causal", c.how == "causal"}},
        Device::current().stream());
  }
  Attrs attrs() const {
    const bool causal = c.how == "causal";
    return {{"h", c.heads},
            {"causal", causal},
            {"bidirectional", !causal},
            {"max_distance", int64_t{128}}};  // T5's
  }
  std::vector<View> inputs() const {
    return {
        q.view(),          k.view(),           v.view(),     has_bias ? table.view() : View::none(),
        q_segments.view(), kv_segments.view(), View::none(), ranges.view()};
  }
  int64_t bytes() const { return 4 * q.bytes() + 4 * k.bytes(); }
};

enum class Path { kOp, kSm80 };

void forward(const Problem& p, Path path, Stream stream) {
  if (path == Path::kOp)
    return cuda::attention_gpu(p.inputs(), std::vector<View>{p.out.view(), p.lse.view()}, p.attrs(),
                               stream);
  const Prepared prepared(p.inputs(), p.attrs(), true, stream);
  auto* out = static_cast<cuda::simt::bf16*>(p.out.view().pointer);
  auto* lse = static_cast<float*>(p.lse.view().pointer);
  cuda::attention::forward_mma(prepared, out, lse, stream);
}

void backward(const Problem& p, Path path, Stream stream) {
  std::vector<View> in = p.inputs();
  for (const Array* a : {&p.out, &p.lse, &p.dout}) in.push_back(a->view());
  if (path == Path::kOp)
    return cuda::attention_grad_gpu(in,
                                    std::vector<View>{p.dq.view(), p.dk.view(), p.dv.view(),
                                                      p.has_bias ? p.dtable.view() : View::none()},
                                    p.attrs(), stream);
  const float unit = cuda::attention::kLog2E;
  const Prepared prepared(p.inputs(), p.attrs(), true, stream);
  const auto s = cuda::attention::make_statistics(prepared, p.out.view(), p.lse.view(),
                                                  p.dout.view(), unit, stream);
  const auto of = [](const Array& a) { return static_cast<cuda::simt::bf16*>(a.view().pointer); };
  auto* dtable = p.has_bias ? static_cast<float*>(p.dtable.view().pointer) : nullptr;
  cuda::attention::backward_mma(prepared, s, of(p.dout), of(p.dq), of(p.dk), of(p.dv), dtable,
                                stream);
}

double distance(const Array& got, const Array& want) {
  const auto x = got.load(want.elements()), y = want.load(want.elements());
  double error = 0, norm = 1e-30;
  for (size_t i = 0; i < y.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    norm += std::pow(static_cast<double>(y[i]), 2);
  }
  return std::sqrt(error / norm);
}

/// Milliseconds of `runs` calls, each on the next of the problems in turn.
template <typename Call>
std::vector<double> time_calls(const std::vector<Problem>& problems, int runs, cudaStream_t stream,
                               const Call& call) {
  constexpr int kWarmUp = 5;
  std::vector<cudaEvent_t> events(static_cast<size_t>(runs) + 1);
  for (auto& event : events) check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  for (int i = 0; i < kWarmUp; ++i) call(problems[static_cast<size_t>(i) % problems.size()]);
  check_cuda(cudaEventRecord(events[0], stream), "cudaEventRecord");
  for (int i = 0; i < runs; ++i) {
    call(problems[static_cast<size_t>(i) % problems.size()]);
    check_cuda(cudaEventRecord(events[static_cast<size_t>(i) + 1], stream), "cudaEventRecord");
  }
  check_cuda(cudaEventSynchronize(events.back()), "cudaEventSynchronize");
  std::vector<double> times;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, events[i], events[i + 1]), "cudaEventElapsedTime");
    times.push_back(static_cast<double>(ms));
  }
  for (auto& event : events) cudaEventDestroy(event);
  return times;
}

void print(const Case& c, const char* part, const std::string& variant, std::vector<double> ms,
           double flops, const std::string& errors) {
  std::string list;
  for (double t : ms) list += fmt::format("{}{:.5f}", list.empty() ? "" : ", ", t);
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2];
  fmt::print(
      "{{\"workload\": \"K1\", \"case\": \"{}\", \"part\": \"{}\", \"variant\": \"{}\", "
      "\"median_ms\": {:.5f}, \"tflops\": {:.1f}, \"error\": {{{}}}, \"ms\": [{}]}}\n",
      c.name(), part, variant, median, flops / median * 1e-9, errors, list);
  std::fflush(stdout);
}

void measure(const Case& c, bool bias, Path path, int runs) {
  Device& device = Device::current();
  const auto stream = static_cast<cudaStream_t>(device.stream().handle);
  std::vector<Problem> problems;
  int64_t bytes = 0;
  while (problems.empty() || (bytes < (200 << 20) && problems.size() < 8)) {
    problems.emplace_back(c, c.batch, DType::bf16, bias, 0);
    bytes += problems.back().bytes();
  }
  std::string variant = path == Path::kSm80 ? "quintet_sm80" : "quintet";
  if (!bias && c.how != "cross") variant += "_no_bias";
  const auto first = [&](const Array& a, const char* name, const Array& want, std::string& text) {
    text += fmt::format("{}\"{}\": {:.2e}", text.empty() ? "" : ", ", name, distance(a, want));
  };
  std::string forward_errors, backward_errors;
  if (c.queries * c.keys <= 2048 * 2048) {
    const Problem wide(c, 1, DType::f32, bias, 0);
    Problem one(c, 1, DType::bf16, bias, 0);
    forward(wide, Path::kOp, device.stream()), backward(wide, Path::kOp, device.stream());
    forward(one, path, device.stream()), backward(one, path, device.stream());
    first(one.out, "out", wide.out, forward_errors),
        first(one.lse, "lse", wide.lse, forward_errors);
    first(one.dq, "dq", wide.dq, backward_errors), first(one.dk, "dk", wide.dk, backward_errors);
    first(one.dv, "dv", wide.dv, backward_errors);
    if (bias) first(one.dtable, "dtable", wide.dtable, backward_errors);
  }
  auto ms = time_calls(problems, runs, stream,
                       [&](const Problem& p) { forward(p, path, device.stream()); });
  print(c, "forward", variant, ms, c.flops(), forward_errors);
  ms = time_calls(problems, runs, stream,
                  [&](const Problem& p) { backward(p, path, device.stream()); });
  print(c, "backward", variant, ms, 2.5 * c.flops(), backward_errors);
  device.synchronize();
}

int run(int argc, char** argv) {
  std::string device = "cuda", only;
  bool tiny = false;
  int runs = 30;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--device="))
      device = arg.substr(9);
    else if (arg.starts_with("--only="))
      only = arg.substr(7);
    else if (arg.starts_with("--runs="))
      runs = std::atoi(argv[i] + 7);
    else if (arg == "--tiny")
      tiny = true;
    else
      fail(ExitCode::kUsage, "attention_bench: unknown argument {}", arg);
  }
  if (!device.starts_with("cuda")) return 0;  // nothing to measure elsewhere
  use_device(device);
  std::vector<Path> paths = {Path::kOp};
  if (cuda::simt::device().sm >= 90) paths.push_back(Path::kSm80);
  for (const Case& c : tiny ? kTinyCases : kCases) {
    if (c.name().find(only) == std::string::npos) continue;
    for (const Path path : paths)
      for (const bool bias : {true, false}) {
        if (bias && c.how == "cross") continue;
        try {
          measure(c, bias, path, tiny ? 3 : runs);
        } catch (const Error& error) {
          fmt::print(
              "{{\"workload\": \"K1\", \"case\": \"{}\", \"variant\": \"{}\", \"error\": "
              "\"{}\"}}\n",
              c.name(), path == Path::kSm80 ? "quintet_sm80" : "quintet", error.what());
        }
      }
  }
  return 0;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  try {
    return quintet::run(argc, argv);
  } catch (const quintet::Error& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
