#include "apps/bench/cluster_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "apps/bench/cluster_links.h"
#include "apps/plan/model_case.h"
#include "kernels/device.h"
#include "kernels/strided_copy.h"
#include "runtime/base/median.h"
#include "runtime/ops/ops.h"
#include "runtime/optim/optax/optax.h"

namespace quintet {
namespace {

constexpr int64_t kSteps = 4;

using PlannedOps = std::map<std::string, StepClock::OpTotal, std::less<>>;
using Samples = std::map<std::string, std::vector<OpSample>, std::less<>>;

/// Sizes far apart, so that an op's time of a call, of arithmetic, of memory and of exponentials differ.
std::vector<LayoutCase> sample_cases(const Comm& comm, const std::string& dtype) {
  struct Size {
    int64_t emb_dim, heads, head_dim, mlp_dim, vocab_size, rows, inputs, targets;
  };
  const std::vector<Size> on_cpu = {
      {8, 2, 4, 32, 32128, 4, 128, 32},   {16, 4, 4, 32, 32128, 4, 192, 64},
      {16, 8, 8, 64, 4096, 4, 96, 96},    {64, 4, 16, 128, 32128, 2, 256, 32},
      {128, 8, 16, 512, 2048, 4, 64, 64}, {256, 4, 64, 1024, 8192, 2, 128, 64}};
  const std::vector<Size> on_gpu = {{512, 8, 64, 1024, 32128, 8, 512, 128},
                                    {1024, 16, 64, 2816, 32128, 8, 512, 128},
                                    {2048, 32, 64, 5120, 8192, 4, 1024, 256},
                                    {4096, 64, 64, 10240, 4096, 2, 512, 512}};
  std::vector<LayoutCase> cases;
  for (const Size& size : Device::current().is_cpu() ? on_cpu : on_gpu) {
    T5Config config;
    config.vocab_size = size.vocab_size;
    config.emb_dim = size.emb_dim;
    config.num_heads = size.heads;
    config.head_dim = size.head_dim;
    config.mlp_dim = size.mlp_dim;
    config.num_encoder_layers = config.num_decoder_layers = 2;
    config.mlp_activations = {"gelu", "linear"};
    config.dropout_rate = 0;
    config.dtype = dtype;
    cases.push_back(layout_case(config, {.batch = size.rows * comm.size(),
                                         .inputs = size.inputs,
                                         .targets = size.targets,
                                         .dtype = dtype}));
  }
  return cases;
}

/// A profile waits for every op, a step does not: how much longer a call takes for it.
double profile_overhead(Comm& comm) {
  if (Device::current().is_cpu()) return 0;
  const Tensor x = Tensor::zeros({{{"a", 8}}, DType::f32});
  constexpr int kCalls = 64;
  const double together = median_seconds(comm, [&] {
    for (int i = 0; i < kCalls; ++i) ops::scale(x, 1);
  });
  const double alone = median_seconds(comm, [&] {
    for (int i = 0; i < kCalls; ++i) {
      ops::scale(x, 1);
      Device::current().synchronize();
    }
  });
  return std::max(0.0, (alone - together) / kCalls);
}

/// Seconds of each op of `planned` in this rank's step, and last those that are no op's, but for copies.
std::vector<double> seconds_of(const StepProfile& step, const PlannedOps& planned) {
  std::vector<double> seconds(planned.size(), 0);
  double others = step.compute;
  for (const auto& [name, entry] : step.ops.entries()) {
    others -= entry.seconds;
    const auto op = planned.find(name == "check_gradients" ? "optimizer" : name);
    if (op != planned.end())
      seconds[static_cast<size_t>(std::distance(planned.begin(), op))] += entry.seconds;
  }
  seconds.push_back(others);
  return seconds;
}

/// The ops of a layout's step. Ranks wait for the slowest at every collective, whichever it is then: an op takes as long
/// as on that one. What is between them, the host's work and memory that it clears, is of ops' calls and bytes, too.
void sample_step(const LayoutCase& what, const TrainingLayout& layout, Comm& comm, int repeats,
                 double overhead, const OpTime& copy, Samples& samples,
                 std::vector<OpSample>& host) {
  const PlannedOps planned = planned_ops(what, layout);
  std::vector<std::vector<double>> of_steps(planned.size() + 1);
  for (int i = 0; i < repeats; ++i) {
    std::vector<StepProfile> steps;
    measure_layout(what, layout, comm, kSteps, &steps);
    for (const StepProfile& step : steps) {
      const std::vector<double> seconds = slowest(comm, seconds_of(step, planned));
      for (size_t op = 0; op < seconds.size(); ++op) of_steps[op].push_back(seconds[op]);
    }
  }
  OpSample between{.seconds = median(of_steps.back())};
  for (auto of_op = of_steps.begin(); const auto& [name, total] : planned) {
    const auto count = static_cast<double>(total.calls);
    between.calls += count;
    between.cost.bytes += total.cost.bytes;
    if (name == "copy") between.seconds -= copy.sum(total.cost, count);
    const double seconds = median(*of_op++) - count * overhead;
    if (seconds > 0) samples[name].push_back({count, total.cost, seconds});
  }
  if (Device::current().is_cpu() && between.seconds > 0) host.push_back(between);
}

std::vector<Product> measure_products(Comm& comm, const std::string& dtype) {
  const bool on_cpu = Device::current().is_cpu();
  const std::vector<std::array<int64_t, 3>> shapes =
      on_cpu
          ? std::vector<std::array<int64_t, 3>>{{256, 16, 64},   {1024, 64, 64},    {64, 256, 1024},
                                                {512, 512, 512}, {1024, 512, 1024}, {768, 768, 768}}
          : std::vector<std::array<int64_t, 3>>{{1024, 512, 512},    {4096, 1024, 1024},
                                                {512, 4096, 4096},   {4096, 4096, 4096},
                                                {8192, 4096, 10240}, {8192, 8192, 8192}};
  std::vector<Product> products;
  for (const auto& [m, k, n] : shapes) {
    const DType type = dtype == "bfloat16" ? DType::bf16 : DType::f32;
    const Tensor x = Tensor::zeros({{{"m", m}, {"k", k}}, type});
    const Tensor w = Tensor::zeros({{{"k", k}, {"n", n}}, type});
    constexpr int kCalls = 4;
    const double seconds = median_seconds(comm, [&] {
      for (int i = 0; i < kCalls; ++i) ops::matmul(x, w);
    });
    products.push_back({m, k, n, seconds / kCalls});
  }
  return products;
}

/// Of blocks that lie apart, as gathers leave them.
std::vector<OpSample> measure_copies(Comm& comm) {
  Device& device = Device::current();
  std::vector<OpSample> samples;
  for (const int64_t bytes :
       {int64_t{1} << 12, int64_t{1} << 18, int64_t{1} << 22, int64_t{1} << 25}) {
    const Buffer from = device.memory().allocate(bytes), to = device.memory().allocate(bytes);
    device.fill(from.get(), 0, bytes);
    const int64_t run = bytes / 16;
    const StridedCopy copy{to.get(), from.get(), run, {2, 8}, {8 * run, run}, {run, 2 * run}};
    constexpr int kCalls = 8;
    const double seconds = median_seconds(comm, [&] {
      for (int i = 0; i < kCalls; ++i) device.copy(copy);
    });
    samples.push_back({1, {.bytes = 2.0 * static_cast<double>(bytes)}, seconds / kCalls});
  }
  return samples;
}

/// The least sum of squares of what `samples` took beside what they should, each divided by its scale: by coordinate
/// descent, no part below 0.
OpTime least_squares(const std::vector<OpSample>& samples, const std::vector<double>& scales) {
  std::vector<std::array<double, 4>> rows;
  std::vector<double> rest;
  for (size_t i = 0; i < samples.size(); ++i) {
    const OpSample& s = samples[i];
    rows.push_back({s.calls / scales[i], s.cost.flops / scales[i], s.cost.bytes / scales[i],
                    s.cost.exponentials / scales[i]});
    rest.push_back(s.seconds / scales[i]);
  }
  std::array<double, 4> part{};
  constexpr int kSweeps = 2000;
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (size_t c = 0; c < part.size(); ++c) {
      double squares = 0, product = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        squares += rows[i][c] * rows[i][c];
        product += rows[i][c] * rest[i];
      }
      if (squares == 0) continue;
      const double next = std::max(0.0, part[c] + product / squares);
      for (size_t i = 0; i < rows.size(); ++i) rest[i] -= rows[i][c] * (next - part[c]);
      part[c] = next;
    }
  return {part[0], part[1], part[2], part[3]};
}

/// With the host's work `between` ops.
OpTime op_time(const std::vector<OpSample>& samples, const OpTime& between) {
  OpTime time = fit_op_time(samples);
  time.call += between.call;
  time.byte += between.byte;
  for (const auto& [calls, cost, seconds] : samples)
    time.measured.push_back({{.flops = cost.flops / calls,
                              .bytes = cost.bytes / calls,
                              .exponentials = cost.exponentials / calls},
                             (seconds + between.sum(cost, calls)) / time.sum(cost, calls)});
  return time;
}

}  // namespace

OpTime fit_op_time(const std::vector<OpSample>& samples) {
  std::vector<double> scales;
  for (const OpSample& s : samples) scales.push_back(s.seconds);
  OpTime time = least_squares(samples, scales);
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < samples.size(); ++i)
      scales[i] = time.sum(samples[i].cost, samples[i].calls);
    time = least_squares(samples, scales);
  }
  return time;
}

OpMeasurements measure_ops(Comm& comm, const std::string& dtype, int repeats) {
  OpMeasurements measured;
  measured.products = measure_products(comm, dtype);
  for (const auto& [m, k, n, seconds] : measured.products)
    measured.flops = std::max(measured.flops, 2.0 * static_cast<double>(m * k * n) / seconds);
  const std::vector<OpSample> copies = measure_copies(comm);
  measured.bytes = copies.back().cost.bytes / copies.back().seconds;
  const OpTime copy = measured.ops["copy"] = fit_op_time(copies);
  const double overhead = profile_overhead(comm);
  Samples samples;
  std::vector<OpSample> host;
  for (const LayoutCase& what : sample_cases(comm, dtype))
    for (const TrainingLayout& layout : all_layouts(comm.size()))
      sample_step(what, layout, comm, repeats, overhead, copy, samples, host);
  const OpTime between = host.empty() ? OpTime{} : fit_op_time(host);
  measured.launch = between.call;
  for (const auto& [name, of_op] : samples) {
    measured.ops[name] = op_time(of_op, between);
  }
  return measured;
}

}  // namespace quintet
