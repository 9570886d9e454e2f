// Attention on a GPU: times by CUDA events, and the distance of each result from the float32 path
// on the first sequence.
//
//   attention_bench --device=cuda [--tiny] [--only=512x512] [--runs=30]
//   compute-sanitizer --tool=racecheck attention_bench --check --runs=1
//
// A line a measurement (bench/gpu/README.md): variants quintet (the op, as a step calls it: with a
// mask whose ranges are there) and quintet_sm80 (the kernels for older devices), each also with _no_bias; backward
// includes the gradient of the table. `error`s are relative L2 distances.

#include <cmath>
#include <string>

#include "bench/gpu/device_bench.cuh"
#include "kernels/attention/attention_gpu.h"
#include "kernels/attention/gpu/tensor_core.cuh"
#include "kernels/attention/ranges.h"

namespace quintet::bench {
namespace {

using QT_GPU::attention::Prepared;

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

/// For a sanitizer: twice as many heads of sequences as multiprocessors, so that each block takes a second one (and the gradient's
/// blocks all of its keys), and four blocks of keys, more than the rings have places; heads of both sizes.
std::vector<Case> check_cases(bool tiny) {
  const int64_t batch = QT_GPU::simt::device().multiprocessors;
  std::vector<Case> cases;
  for (const int64_t depth : {64, 128}) {
    cases.push_back({batch, 2, depth, 128, 128, "causal"});
    cases.push_back({batch, 2, depth, 130, 400, "cross"});
    if (!tiny) cases.push_back({batch, 2, depth, 400, 400, ""});
  }
  return cases;
}

/// Operands and results of a case for `batch` sequences of the given dtype.
struct Problem {
  Case c;
  Array q, k, v, table, q_segments, kv_segments, ranges, out, lse, dout, dq, dk, dv, dtable;
  bool has_bias;

  Problem(const Case& its, int64_t batch, DType dtype, bool bias, uint32_t seed)
      : c(its), has_bias(bias) {
    c.batch = batch;
    const int64_t width = c.heads * c.depth;
    const float deviation = std::pow(static_cast<float>(c.depth), -0.25f);
    const auto array = [&](int64_t length) { return Array({batch, length, width}, dtype); };
    q = array(c.queries), k = array(c.keys), v = array(c.keys), out = array(c.queries);
    dout = array(c.queries), dq = array(c.queries), dk = array(c.keys), dv = array(c.keys);
    q.vary_normally(deviation, seed + 1), k.vary_normally(deviation, seed + 2);
    v.vary_normally(1, seed + 3), dout.vary_normally(1, seed + 4);
    lse = Array({batch, c.heads, c.queries}, DType::f32);
    table = Array({c.heads, 32}, DType::f32), dtable = Array({c.heads, 32}, DType::f32);
    table.vary_normally(1, 5);
    const int64_t examples = c.how == "packed4" ? 4 : 1;  // a row; training always names them
    for (auto [array_of, length] : {std::pair(&q_segments, c.queries), {&kv_segments, c.keys}}) {
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < batch * length; ++i)
        ids.push_back(static_cast<int32_t>(1 + i % length * examples / length));
      *array_of = Array({batch, length}, DType::i32);
      array_of->store(ids);
    }
    ranges = Array({batch, attention::ranges_length(c.queries)}, DType::i32);
    QT_GPU::attention_ranges_gpu(
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

enum class Path { kOp, kSm80, kNoPingPong };  // the last one: forward, heads of at most 64, sm_90a
constexpr const char* kVariants[] = {"quintet", "quintet_sm80", "quintet_no_ping_pong"};

void forward(const Problem& p, Path path, Stream stream) {
  if (path == Path::kOp)
    return QT_GPU::attention_gpu(p.inputs(), std::vector<View>{p.out.view(), p.lse.view()},
                                 p.attrs(), stream);
  const Prepared prepared(p.inputs(), p.attrs(), true, stream);
  auto* out = static_cast<QT_GPU::simt::bf16*>(p.out.view().pointer);
  auto* lse = static_cast<float*>(p.lse.view().pointer);
  if (path == Path::kSm80)
    QT_GPU::attention::forward_mma(prepared, out, lse, stream);
  else
    QT_GPU::attention::forward_wgmma(prepared, out, lse, stream, false);
}

void backward(const Problem& p, Path path, Stream stream) {
  std::vector<View> in = p.inputs();
  for (const Array* a : {&p.out, &p.lse, &p.dout}) in.push_back(a->view());
  if (path != Path::kSm80)
    return QT_GPU::attention_grad_gpu(
        in,
        std::vector<View>{p.dq.view(), p.dk.view(), p.dv.view(),
                          p.has_bias ? p.dtable.view() : View::none()},
        p.attrs(), stream);
  const float unit = QT_GPU::attention::kLog2E;
  const Prepared prepared(p.inputs(), p.attrs(), true, stream);
  const auto s = QT_GPU::attention::make_statistics(prepared, p.out.view(), p.lse.view(),
                                                    p.dout.view(), unit, stream);
  const auto of = [](const Array& a) { return static_cast<QT_GPU::simt::bf16*>(a.view().pointer); };
  auto* dtable = p.has_bias ? static_cast<float*>(p.dtable.view().pointer) : nullptr;
  QT_GPU::attention::backward_mma(prepared, s, of(p.dout), of(p.dq), of(p.dk), of(p.dv), dtable,
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

void print(const Case& c, const char* part, const std::string& variant,
           const std::vector<double>& ms, double flops, const std::string& errors) {
  std::string list;
  for (double t : ms) list += fmt::format("{}{:.5f}", list.empty() ? "" : ", ", t);
  const double middle = median(ms);
  fmt::print(
      "{{\"workload\": \"K1\", \"case\": \"{}\", \"part\": \"{}\", \"variant\": \"{}\", "
      "\"median_ms\": {:.5f}, \"tflops\": {:.1f}, \"error\": {{{}}}, \"ms\": [{}]}}\n",
      c.name(), part, variant, middle, flops / middle * 1e-9, errors, list);
  std::fflush(stdout);
}

void measure(const Case& c, bool bias, Path path, int runs) {
  std::vector<Problem>
      problems;  // by turns, so that a call finds nothing in the second-level cache
  int64_t bytes = 0;
  while (problems.empty() || (bytes < (200 << 20) &&
                              problems.size() < std::min<size_t>(8, static_cast<size_t>(runs)))) {
    problems.emplace_back(c, c.batch, DType::bf16, bias, 0);
    bytes += problems.back().bytes();
  }
  std::string variant = kVariants[static_cast<int>(path)];
  if (!bias && c.how != "cross") variant += "_no_bias";
  const auto first = [&](const Array& a, const char* name, const Array& want, std::string& text) {
    text += fmt::format("{}\"{}\": {:.2e}", text.empty() ? "" : ", ", name, distance(a, want));
  };
  std::string forward_errors, backward_errors;
  if (c.queries * c.keys <= 2048 * 2048) {
    const Problem wide(c, 1, DType::f32, bias, 0);
    Problem one(c, 1, DType::bf16, bias, 0);
    forward(wide, Path::kOp, stream()), backward(wide, Path::kOp, stream());
    forward(one, path, stream()), backward(one, path, stream());
    first(one.out, "out", wide.out, forward_errors),
        first(one.lse, "lse", wide.lse, forward_errors);
    first(one.dq, "dq", wide.dq, backward_errors), first(one.dk, "dk", wide.dk, backward_errors);
    first(one.dv, "dv", wide.dv, backward_errors);
    if (bias) first(one.dtable, "dtable", wide.dtable, backward_errors);
  }
  const auto turn = [&](int call) -> const Problem& {
    return problems[static_cast<size_t>(call) % problems.size()];
  };
  print(c, "forward", variant,
        time_calls(runs, [&](int call) { forward(turn(call), path, stream()); }), c.flops(),
        forward_errors);
  if (path == Path::kNoPingPong) return;
  print(c, "backward", variant,
        time_calls(runs, [&](int call) { backward(turn(call), path, stream()); }), 2.5 * c.flops(),
        backward_errors);
}

void run(const Options& options) {
  std::vector<Path> paths = {Path::kOp};
  if (QT_GPU::simt::device().sm == 90 && !options.check)
    paths.insert(paths.end(), {Path::kSm80, Path::kNoPingPong});
  const auto cases = options.check ? check_cases(options.tiny) : options.tiny ? kTinyCases : kCases;
  for (const Case& c : cases) {
    if (!options.wants(c.name())) continue;
    for (const Path path : paths)
      for (const bool bias : {true, false}) {
        if (bias && c.how == "cross") continue;
        if (path == Path::kNoPingPong && c.depth > 64) continue;
        try {
          measure(c, bias, path, options.runs);
        } catch (const Error& error) {
          fmt::print(
              "{{\"workload\": \"K1\", \"case\": \"{}\", \"variant\": \"{}\", \"error\": "
              "\"{}\"}}\n",
              c.name(), kVariants[static_cast<int>(path)], error.what());
        }
      }
  }
}

}  // namespace
}  // namespace quintet::bench

int main(int argc, char** argv) {
  return quintet::bench::run_program(argc, argv, quintet::bench::run, true);
}
