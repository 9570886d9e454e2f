// Products of few rows with the matrices of their experts against plain loops.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

struct Case {
  int64_t rows, k, n, experts, chosen;
  bool joins = false, norm = false, gate = false, residual = false, bytes = false;
  Activation act0 = Activation::linear;
  int shift = 0;                   // of the weights in memory, in elements
  std::vector<float> logits = {};  // empty: random
};

size_t count(int64_t n) { return static_cast<size_t>(n); }

/// Each row's choices: expert and probability.
using Choices = std::vector<std::vector<std::pair<size_t, double>>>;
Choices choices_of(const Case& c, const std::vector<float>& logits) {
  Choices all;
  for (int64_t r = 0; r < c.rows; ++r) {
    const float* row = logits.data() + r * c.experts;
    double sum = 0;
    for (int64_t e = 0; e < c.experts; ++e) sum += std::exp(static_cast<double>(row[e]));
    std::vector<size_t> order(count(c.experts));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return row[a] > row[b]; });
    auto& own = all.emplace_back();
    for (size_t j = 0; j < count(c.chosen); ++j)
      own.emplace_back(order[j], std::exp(static_cast<double>(row[order[j]])) / sum);
  }
  return all;
}

/// Operands as the device sees them, widened; weights in bytes with their scales.
struct Operands {
  std::vector<float> logits, x, norm, weights, gate, residual;
};

std::vector<float> expected(const Case& c, const Operands& in) {
  const Choices choices = choices_of(c, in.logits);
  std::vector<float> out;
  if (c.joins) out = in.residual;
  for (size_t r = 0; r < count(c.rows); ++r)
    for (size_t j = 0; j < count(c.chosen); ++j) {
      const auto [expert, weight] = choices[r][j];
      const float* x = in.x.data() + (c.joins ? r * count(c.chosen) + j : r) * count(c.k);
      double squares = 0;
      for (size_t i = 0; i < count(c.k); ++i) squares += std::pow(x[i], 2);
      const double factor = c.norm ? 1 / std::sqrt(squares / static_cast<double>(c.k) + 1e-6) : 1;
      for (size_t column = 0; column < count(c.n); ++column) {
        double main = 0, gate = 0;
        for (size_t i = 0; i < count(c.k); ++i) {
          const double h =
              factor * static_cast<double>(x[i]) * (c.norm ? static_cast<double>(in.norm[i]) : 1);
          const size_t at = (expert * count(c.k) + i) * count(c.n) + column;
          main += h * static_cast<double>(in.weights[at]);
          if (c.gate) gate += h * static_cast<double>(in.gate[at]);
        }
        if (c.act0 == Activation::relu) main = std::max(main, 0.0);
        if (c.joins)
          out[r * count(c.n) + column] += static_cast<float>(weight * main);
        else
          out.push_back(static_cast<float>(c.gate ? main * gate : main));
      }
    }
  return out;
}

class SmallBatchExpertsTest : public DeviceTest {
 protected:
  static std::vector<float> logits_of(const Case& c) {
    return c.logits.empty() ? normals(count(c.rows * c.experts), 6, 2) : c.logits;
  }

  /// What the kernel leaves; `in`: what it read.
  template <typename T>
  static std::vector<float> run(const Case& c, Operands& in) {
    const int64_t in_rows = c.joins ? c.rows * c.chosen : c.rows;
    const int64_t out_rows = c.joins ? c.rows : c.rows * c.chosen;
    const int64_t of_weights = c.experts * c.k * c.n;
    const double deviation = 1 / std::sqrt(static_cast<double>(c.k));
    const auto x = as<T>(normals(count(in_rows * c.k), 1));
    const auto weights = as<T>(normals(count(of_weights), 2, deviation));
    const auto gate = as<T>(normals(count(c.gate ? of_weights : 0), 3, deviation));
    const auto residual = as<T>(normals(count(out_rows * c.n), 4));
    in = {logits_of(c),
          widened(x),
          normals(count(c.norm ? c.k : 0), 5),
          widened(weights),
          widened(gate),
          c.residual ? widened(residual) : std::vector<float>(residual.size())};
    std::vector<int8_t> bytes;
    std::vector<float> scales;
    if (c.bytes) {
      for (int64_t i = 0; i < c.experts * c.n; ++i)
        scales.push_back(0.001f * static_cast<float>(1 + i % 7));
      for (size_t i = 0; i < count(of_weights); ++i) {
        bytes.push_back(static_cast<int8_t>(static_cast<int>(i * 37 % 251) - 125));
        const size_t scale = i / count(c.k * c.n) * count(c.n) + i % count(c.n);
        in.weights[i] = static_cast<float>(bytes[i]) * scales[scale];
      }
    }
    const OnDevice<T> x_there(device(), x), weights_there(device(), weights, c.shift),
        gate_there(device(), gate, c.shift), out(device(), residual);
    const OnDevice<int8_t> bytes_there(device(), bytes, c.shift);
    const OnDevice<float> norm_there(device(), in.norm), logits_there(device(), in.logits),
        scales_there(device(), scales);
    const DType dtype = sizeof(T) == 4 ? DType::f32 : DType::bf16;
    const SmallBatchMatmul task{
        .dtype = dtype,
        .weight_dtype = c.bytes ? DType::i8 : dtype,
        .rows = c.rows,
        .k = c.k,
        .n = c.n,
        .x = x_there.data(),
        .norm = c.norm ? norm_there.data() : nullptr,
        .weights = c.bytes ? static_cast<const void*>(bytes_there.data()) : weights_there.data(),
        .gate = c.gate ? gate_there.data() : nullptr,
        .weight_scales = c.bytes ? scales_there.data() : nullptr,
        .act0 = c.act0,
        .residual = c.residual ? out.data() : nullptr,
        .experts = {.logits = logits_there.data(),
                    .count = c.experts,
                    .chosen = c.chosen,
                    .joins = c.joins},
        .out = out.data(),
        .out_dtype = dtype};
    run_behind_writers(
        device(), [&] { device().kernels().small_batch_matmul(task, device().stream()); }, x_there,
        logits_there, out);
    return widened(out.back());
  }

  template <typename T>
  static void check(const Case& c) {
    SCOPED_TRACE(fmt::format("{} bytes, rows {}, k {}, n {}, {} of {} experts", sizeof(T), c.rows,
                             c.k, c.n, c.chosen, c.experts));
    Operands in;
    const std::vector<float> got = run<T>(c, in);
    const bool exact = sizeof(T) == 4;
    expect_near(got, expected(c, in), exact ? 2e-6 : 4.1e-3, exact ? 3 : 0.03, "out");
  }
  void check_both(const Case& c) {
    on_every_schedule([&] {
      check<float>(c);
      check<bfloat16>(c);
    });
  }
};

TEST_F(SmallBatchExpertsTest, EveryChoiceHasItsRow) {
  for (int64_t rows : {1, 2, 5, 8}) check_both({rows, 72, 48, 4, 1});
  check_both({.rows = 8, .k = 40, .n = 24, .experts = 6, .chosen = 4, .norm = true});
  check_both({.rows = 3,
              .k = 64,
              .n = 32,
              .experts = 40,
              .chosen = 2,
              .norm = true,
              .gate = true,
              .act0 = Activation::relu});
}
TEST_F(SmallBatchExpertsTest, ChoicesAreJoined) {
  for (int64_t rows : {1, 4, 8})
    check_both({.rows = rows,
                .k = 72,
                .n = 48,
                .experts = 5,
                .chosen = 1,
                .joins = true,
                .residual = true});
  check_both(
      {.rows = 8, .k = 48, .n = 40, .experts = 7, .chosen = 3, .joins = true, .residual = true});
  check_both({.rows = 1, .k = 48, .n = 300, .experts = 2, .chosen = 2, .joins = true});
}
TEST_F(SmallBatchExpertsTest, OddSizesAndAddresses) {
  check_both({.rows = 7, .k = 37, .n = 13, .experts = 3, .chosen = 2, .norm = true, .gate = true});
  check_both(
      {.rows = 5, .k = 13, .n = 37, .experts = 3, .chosen = 2, .joins = true, .residual = true});
  check_both({.rows = 2, .k = 40, .n = 24, .experts = 4, .chosen = 1, .gate = true, .shift = 1});
  check_both({.rows = 1, .k = 1, .n = 1, .experts = 1, .chosen = 1});
}
TEST_F(SmallBatchExpertsTest, AllRowsWithOneExpertAndEachWithItsOwn) {
  const int64_t rows = 8, experts = 12;
  for (const bool own : {false, true}) {
    std::vector<float> logits(count(rows * experts));
    for (int64_t r = 0; r < rows; ++r) logits[count(r * experts + (own ? 11 - r : 9))] = 3;
    check_both({.rows = rows, .k = 40, .n = 24, .experts = experts, .chosen = 1, .logits = logits});
    check_both({.rows = rows,
                .k = 40,
                .n = 24,
                .experts = experts,
                .chosen = 1,
                .joins = true,
                .residual = true,
                .logits = logits});
  }
  // Equal probabilities: the lower expert.
  check_both({.rows = 3,
              .k = 40,
              .n = 24,
              .experts = 70,
              .chosen = 3,
              .logits = std::vector<float>(210, 0.5f)});
}
TEST_F(SmallBatchExpertsTest, WeightsInBytesWithAScaleAColumnOfEachExpert) {
  check_both({.rows = 3, .k = 72, .n = 48, .experts = 4, .chosen = 2, .norm = true, .bytes = true});
  check_both({.rows = 6,
              .k = 33,
              .n = 21,
              .experts = 4,
              .chosen = 2,
              .joins = true,
              .residual = true,
              .bytes = true});
}
TEST_F(SmallBatchExpertsTest, LongRowsGoInParts) {
  check<float>({.rows = 8, .k = 2500, .n = 8, .experts = 2, .chosen = 1, .norm = true});
  // Two lanes side by side: threads read what others hold.
  check<float>({.rows = 8, .k = 2064, .n = 768, .experts = 1, .chosen = 1});
  check<bfloat16>({.rows = 3, .k = 4704, .n = 8, .experts = 2, .chosen = 2, .joins = true});
}
TEST_F(SmallBatchExpertsTest, BatchInvariance) {
  Case alone{.rows = 8, .k = 72, .n = 48, .experts = 4, .chosen = 2, .norm = true};
  alone.logits = normals(count(alone.rows * alone.experts), 9, 2);
  Case together = alone;  // all others choose what row 3 chooses
  for (int64_t r = 0; r < alone.rows; ++r)
    std::copy_n(alone.logits.begin() + 3 * alone.experts, alone.experts,
                together.logits.begin() + r * alone.experts);
  on_every_schedule([&] {
    for (const bool joins : {false, true}) {
      alone.joins = together.joins = joins;
      Operands in;
      const std::vector<float> a = run<bfloat16>(alone, in), b = run<bfloat16>(together, in);
      const int64_t width = joins ? alone.n : alone.chosen * alone.n;
      for (int64_t i = 3 * width; i < 4 * width; ++i) ASSERT_EQ(a[count(i)], b[count(i)]);
    }
  });
}

}  // namespace
}  // namespace quintet::testing
