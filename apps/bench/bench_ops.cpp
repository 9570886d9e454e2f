// `quintet bench gemm` and `quintet bench attention`: one op, forward and backward, on any device.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/bench/bench.h"
#include "apps/bench/dtype_flag.h"
#include "apps/flags/command_line.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/result_format.h"
#include "models/layers.h"
#include "runtime/base/clock.h"
#include "runtime/execution/tape.h"
#include "runtime/ops/ops.h"

namespace quintet {
namespace {

struct OpBench {
  ComputeFlags compute;
  ResultFormat format;
  std::string dtype = "float32";
  int64_t steps = 20;

  void add_to(CLI::App& app) {
    add_dtype_flag(app, dtype);
    app.add_option("--steps", steps, "timed repetitions")->check(CLI::Range(1, 100000));
    compute.add_to(app);
    format.add_to(app);
  }
  void start(const char* what) const {
    compute.start();
    check_dtype_flag(what, dtype);
  }

  /// Normal numbers, the same in every run. sizes: of axes named a, b, ...
  Tensor random(const std::vector<int64_t>& sizes, uint64_t seed) const {
    HostArray values(DType::f32, sizes);
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> normal;
    for (float& v : values.as<float>()) v = normal(engine);
    if (dtype == "bfloat16") {
      HostArray rounded(DType::bf16, sizes);
      std::transform(values.as<float>().begin(), values.as<float>().end(),
                     rounded.as<bfloat16>().begin(), [](float v) { return bfloat16(v); });
      values = std::move(rounded);
    }
    static const std::vector<std::string> names = {"a", "b", "c", "d"};
    return Tensor::from_host(values, {names.begin(), names.begin() + sizes.size()});
  }

  /// Seconds of body(): the least and the median of `steps`, after two to warm up.
  std::pair<double, double> time(const std::function<void()>& body) const {
    Device& device = Device::current();
    std::vector<double> seconds;
    for (int64_t i = 0; i < steps + 2; ++i) {
      device.synchronize();
      const auto start = Clock::now();
      body();
      device.synchronize();
      if (i >= 2) seconds.push_back(seconds_since(start));
    }
    std::sort(seconds.begin(), seconds.end());
    return {seconds.front(), seconds[seconds.size() / 2]};
  }

  void print(const std::string& what, const nlohmann::ordered_json& shape, double flops,
             const std::function<void()>& body) const {
    const auto [least, median] = time(body);
    nlohmann::ordered_json json = {{"bench", what}, {"device", Device::current().description()}};
    json.update(shape);
    json["dtype"] = dtype;
    json["seconds"] = {{"min", least}, {"median", median}};
    json["tflops"] = flops / median * 1e-12;
    format.print_object(json.dump());
    format.print_text(
        fmt::format("{}: {:.3f} ms, {:.2f} TFLOP/s\n", what, median * 1e3, flops / median * 1e-12));
  }
};

}  // namespace

int run_bench_gemm(std::span<char* const> args) {
  OpBench bench;
  int64_t m = 2048, n = 2048, k = 2048;
  CommandLine cli("bench gemm", "Times a matrix product [m, k] x [k, n].",
                  "quintet bench gemm --m=2048 --n=2048 --k=2048 --dtype=float32");
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 30);
  cli.app().add_option("--m", m, "rows")->check(positive);
  cli.app().add_option("--n", n, "columns")->check(positive);
  cli.app().add_option("--k", k, "inner size")->check(positive);
  bench.add_to(cli.app());
  if (!cli.parse(args)) return 0;
  bench.start("gemm");
  const Tensor x = bench.random({m, k}, 1);
  HostArray w_values = bench.random({k, n}, 2).to_host();
  const Tensor w = Tensor::from_host(w_values, {"b", "c"});
  bench.print("gemm", {{"m", m}, {"n", n}, {"k", k}},
              2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
              [&] { ops::matmul(x, w); });
  return 0;
}

int run_bench_attention(std::span<char* const> args) {
  OpBench bench;
  int64_t batch = 8, heads = 8, head_dim = 64, queries = 256, keys = 256;
  bool causal = false, no_bias = false;
  CommandLine cli(
      "bench attention",
      "Times attention with T5's relative position bias, forward and with gradients.",
      "quintet bench attention --batch=8 --heads=8 --head_dim=64 --queries=256 --keys=256");
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 30);
  cli.app().add_option("--batch", batch, "sequences")->check(positive);
  cli.app().add_option("--heads", heads, "heads")->check(positive);
  cli.app().add_option("--head_dim", head_dim, "size of a head")->check(positive);
  cli.app().add_option("--queries", queries, "queries of a sequence")->check(positive);
  cli.app().add_option("--keys", keys, "keys of a sequence")->check(positive);
  cli.app().add_flag("--causal", causal, "keys after the query are not seen");
  cli.app().add_flag("--no_bias", no_bias, "without a relative position bias");
  bench.add_to(cli.app());
  if (!cli.parse(args)) return 0;
  bench.start("attention");
  const auto tensor = [&](int64_t length, const char* axis, uint64_t seed) {
    const HostArray values = bench.random({batch, length, heads * head_dim}, seed).to_host();
    return Tensor::from_host(values, {"batch", axis, "joined_kv"}).set_needs_grad(true);
  };
  const Tensor q = tensor(queries, "queries", 1), k = tensor(keys, "keys", 2),
               v = tensor(keys, "keys", 3);
  const LayerConfig t5;
  Tensor table;
  if (!no_bias) {
    HostArray values(DType::f32, {heads, t5.num_buckets});
    for (size_t i = 0; i < values.as<float>().size(); ++i)
      values.as<float>()[i] = static_cast<float>(i % 7) * 0.1f;
    table = Tensor::from_host(values, {"heads", "relpos_buckets"}).set_needs_grad(true);
  }
  const auto forward = [&] {
    return ops::attention(
        q, k, v, table, {.query_segments = {}, .key_segments = {}, .prefix = {}, .causal = causal},
        {.num_heads = heads, .max_distance = t5.max_distance, .bidirectional = !causal});
  };
  const nlohmann::ordered_json shape = {
      {"batch", batch}, {"heads", heads},   {"head_dim", head_dim}, {"queries", queries},
      {"keys", keys},   {"causal", causal}, {"bias", !no_bias}};
  const double flops = 4.0 * static_cast<double>(batch * heads * head_dim) *
                       static_cast<double>(queries) * static_cast<double>(keys);
  bench.print("attention_forward", shape, flops, [&] { forward(); });
  const Tensor dy = forward().detach();
  bench.print("attention_forward_backward", shape, 3.5 * flops, [&] {
    Tape tape;
    Tensor y;
    {
      Tape::Recording recording(tape);
      y = forward();
    }
    tape.backward({y}, {dy});
    for (const Tensor* leaf : {&q, &k, &v, static_cast<const Tensor*>(&table)})
      if (*leaf) leaf->set_grad({});
  });
  return 0;
}

}  // namespace quintet
