// Products of few rows against plain loops.

#include <cmath>

#include "runtime/base/float8.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

struct Case {
  int64_t rows, k, n;
  bool norm = false, gate = false, residual = false, transposed = false, wide_out = false;
  Activation act0 = Activation::linear, act1 = Activation::linear;
  float scale = 1;
  int shift = 0;  // of the weights in memory, in elements
};

double plain(Activation act, double h) {
  switch (act) {
    case Activation::linear:
      return h;
    case Activation::relu:
      return std::max(h, 0.0);
    case Activation::gelu:
      return h / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (h + 0.044715 * h * h * h)));
    case Activation::silu:
      return h / (1 + std::exp(-h));
    case Activation::gelu_erf:
      return h / 2 * std::erfc(-h / std::sqrt(2.0));
  }
  return NAN;
}

/// Operands as the device sees them, widened.
struct Operands {
  std::vector<float> x, norm, weights, gate, residual, weight_scales, gate_scales;
};

/// Tensor cores take x * norm rounded.
bool rounds_normed(const Case& c, bool half, size_t weight_bytes) {
  SmallBatchMatmul p{.rows = c.rows, .k = c.k, .n = c.n, .transposed = c.transposed};
  p.dtype = half ? DType::bf16 : DType::f32;
  p.weight_dtype = weight_bytes == 1 ? DType::i8 : weight_bytes == 2 ? DType::bf16 : DType::f32;
  return p.takes_tiles() && c.shift == 0;
}

double scale_at(const std::vector<float>& scales, int64_t column) {
  return scales.empty() ? 1 : static_cast<double>(scales[static_cast<size_t>(column)]);
}

std::vector<float> expected(const Case& c, const Operands& in, bool rounded) {
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<float> out;
  for (int64_t r = 0; r < c.rows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < c.k; ++i) squares += std::pow(in.x[at(r * c.k + i)], 2);
    const double factor = c.norm ? 1 / std::sqrt(squares / static_cast<double>(c.k) + 1e-6) : 1;
    for (int64_t j = 0; j < c.n; ++j) {
      double main = 0, gate = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        const float x = in.x[at(r * c.k + i)], norm = c.norm ? in.norm[at(i)] : 1;
        const double h =
            factor * (rounded ? static_cast<double>(static_cast<float>(bfloat16(x * norm)))
                              : static_cast<double>(x) * static_cast<double>(norm));
        main += h * static_cast<double>(in.weights[at(c.transposed ? j * c.k + i : i * c.n + j)]);
        if (c.gate) gate += h * static_cast<double>(in.gate[at(i * c.n + j)]);
      }
      main *= scale_at(in.weight_scales, j);
      gate *= scale_at(in.gate_scales, j);
      double y = plain(c.act0, main) * (c.gate ? plain(c.act1, gate) : 1);
      y *= static_cast<double>(c.scale);
      if (c.residual) y += static_cast<double>(in.residual[at(r * c.n + j)]);
      out.push_back(static_cast<float>(y));
    }
  }
  return out;
}

template <typename W>
constexpr DType kDType = DType::u8;  // float8's bits
template <>
constexpr DType kDType<int8_t> = DType::i8;
template <>
constexpr DType kDType<float> = DType::f32;
template <>
constexpr DType kDType<bfloat16> = DType::bf16;

class SmallBatch : public DeviceTest {
 protected:
  /// Weights that use all of a narrow type's range, whose scales make them as large as the others.
  template <typename W>
  static std::vector<W> weights_of(size_t n, uint64_t seed, double deviation) {
    std::vector<W> weights;
    for (const float x : normals(n, seed, sizeof(W) == 1 ? 1 : deviation))
      if constexpr (std::is_same_v<W, int8_t>)
        weights.push_back(static_cast<W>(std::lround(std::clamp(x * 40, -127.0f, 127.0f))));
      else
        weights.push_back(W(std::is_same_v<W, float8> ? std::pow(x, 3.0f) * 8 : x));
    return weights;
  }
  template <typename W>
  static std::vector<float> scales_of(int64_t n, uint64_t seed, double deviation) {
    if (sizeof(W) != 1 || n == 0) return {};
    std::vector<float> scales = normals(static_cast<size_t>(n), seed, deviation / 40);
    for (float& x : scales) x = std::fabs(x) + 1e-4f;
    return scales;
  }

  template <typename T, typename W = T>
  void check(const Case& c) {
    SCOPED_TRACE(fmt::format("{} bytes, weights {}, rows {}, k {}, n {}", sizeof(T),
                             name_of(kDType<W>), c.rows, c.k, c.n));
    const auto count = [](int64_t n) { return static_cast<size_t>(n); };
    const double deviation = 1 / std::sqrt(static_cast<double>(c.k));
    const auto x = as<T>(normals(count(c.rows * c.k), 1));
    const auto weights = weights_of<W>(count(c.k * c.n), 2, deviation);
    const auto gate = weights_of<W>(count(c.gate ? c.k * c.n : 0), 3, deviation);
    const auto weight_scales = scales_of<W>(c.n, 6, deviation);
    const auto gate_scales = scales_of<W>(c.gate ? c.n : 0, 7, deviation);
    const auto residual = as<T>(normals(count(c.rows * c.n), 4));
    const auto norm = normals(count(c.norm ? c.k : 0), 5);
    const OnDevice<T> x_there(device(), x), out(device(), residual);
    const OnDevice<W> weights_there(device(), weights, c.shift),
        gate_there(device(), gate, c.shift);
    const OnDevice<float> norm_there(device(), norm), scales_there(device(), weight_scales),
        gate_scales_there(device(), gate_scales),
        wide_out(device(), std::vector<float>(residual.size()));
    const SmallBatchMatmul task{
        .dtype = kDType<T>,
        .weight_dtype = kDType<W>,
        .rows = c.rows,
        .k = c.k,
        .n = c.n,
        .x = x_there.data(),
        .norm = c.norm ? norm_there.data() : nullptr,
        .weights = weights_there.data(),
        .transposed = c.transposed,
        .gate = c.gate ? gate_there.data() : nullptr,
        .weight_scales = sizeof(W) == 1 ? scales_there.data() : nullptr,
        .gate_scales = sizeof(W) == 1 && c.gate ? gate_scales_there.data() : nullptr,
        .act0 = c.act0,
        .act1 = c.act1,
        .scale = c.scale,
        .residual = c.residual ? out.data() : nullptr,
        .out = c.wide_out ? static_cast<void*>(wide_out.data()) : out.data(),
        .out_dtype = c.wide_out || sizeof(T) == 4 ? DType::f32 : DType::bf16};
    run_behind_writers(
        device(), [&] { device().kernels().small_batch_matmul(task, device().stream()); }, x_there,
        out);
    const auto want = expected(c,
                               {widened(x), norm, widened(weights), widened(gate),
                                widened(residual), weight_scales, gate_scales},
                               rounds_normed(c, sizeof(T) == 2, sizeof(W)));
    const bool exact = sizeof(T) == 4 || c.wide_out;
    expect_near(c.wide_out ? wide_out.back() : widened(out.back()), want, exact ? 2e-6 : 4.1e-3,
                exact ? 3 : 0.03, "out");
  }
  /// Columns that make wide blocks for more than 32 rows.
  static int64_t wide_columns() { return name().starts_with("emulated") ? 192 : 64 * 132; }

  /// The same bits for a row whatever stands behind it: blocks of 64, 32 and 16 rows, wide and narrow.
  template <typename W>
  void expect_the_same_bits() {
    const int64_t most = kMaxTileRows, k = 808, n = wide_columns();
    const auto count = [](int64_t c) { return static_cast<size_t>(c); };
    const OnDevice<bfloat16> x(device(), as<bfloat16>(normals(count(most * k), 1)));
    const OnDevice<W> weights(device(), weights_of<W>(count(k * n), 2, 0.04));
    const OnDevice<float> norm(device(), normals(count(k), 5)),
        scales(device(), scales_of<W>(n, 6, 0.04));
    std::vector<float> all;
    for (int64_t rows : {most, int64_t{65}, int64_t{33}, int64_t{32}, int64_t{16}, int64_t{5}}) {
      const OnDevice<float> out(device(), std::vector<float>(count(rows * n)));
      const SmallBatchMatmul task{.weight_dtype = kDType<W>,
                                  .rows = rows,
                                  .k = k,
                                  .n = n,
                                  .x = x.data(),
                                  .norm = norm.data(),
                                  .weights = weights.data(),
                                  .weight_scales = sizeof(W) == 1 ? scales.data() : nullptr,
                                  .out = out.data(),
                                  .out_dtype = DType::f32};
      ASSERT_TRUE(task.takes_tiles());
      device().kernels().small_batch_matmul(task, device().stream());
      const std::vector<float> got = out.back();
      if (rows == most) all = got;
      EXPECT_EQ(got, std::vector<float>(all.begin(), all.begin() + rows * n)) << rows << " rows";
    }
  }
  void check_both(const Case& c) {
    on_every_schedule([&] {
      check<float>(c);
      check<bfloat16>(c);
    });
  }
  /// Against the products of the same narrow weights, widened.
  void check_narrow(const Case& c) {
    on_every_schedule([&] {
      check<float, int8_t>(c);
      check<bfloat16, int8_t>(c);
      check<float, float8>(c);
      check<bfloat16, float8>(c);
      check<float, bfloat16>(c);
    });
  }
};

TEST_F(SmallBatch, AllNumbersOfRows) {
  for (int64_t rows : {1, 2, 3, 5, 8, 9, 32}) check_both({.rows = rows, .k = 72, .n = 48});
}
TEST_F(SmallBatch, OddSizesAndAddresses) {
  check_both({.rows = 3, .k = 37, .n = 13, .norm = true, .residual = true});
  check_both({.rows = 1, .k = 1, .n = 1});
  check_both({.rows = 2, .k = 40, .n = 24, .gate = true, .shift = 1});
  check_both({.rows = 2, .k = 37, .n = 21, .transposed = true});
  check_both({.rows = 3, .k = 37, .n = 16, .norm = true});  // rows of x at no multiples of 16 bytes
}
TEST_F(SmallBatch, NormsAndResiduals) {
  check_both({.rows = 1, .k = 264, .n = 40, .norm = true});
  check_both({.rows = 4, .k = 136, .n = 32, .norm = true, .residual = true});
}
TEST_F(SmallBatch, GatedActivations) {
  for (auto act : {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    check_both({.rows = 2, .k = 64, .n = 32, .norm = true, .gate = true, .act0 = act});
    check_both({.rows = 5, .k = 64, .n = 24, .act0 = act});
  }
  check_both({.rows = 1,
              .k = 64,
              .n = 24,
              .gate = true,
              .act0 = Activation::silu,
              .act1 = Activation::relu});
}
TEST_F(SmallBatch, Logits) {
  check_both({.rows = 1, .k = 64, .n = 3200, .norm = true, .wide_out = true, .scale = 0.25f});
  check_both({.rows = 4,
              .k = 80,
              .n = 101,
              .norm = true,
              .transposed = true,
              .wide_out = true,
              .scale = 0.5f});
  check_both({.rows = 6, .k = 640, .n = 33, .norm = true, .transposed = true, .wide_out = true});
}
TEST_F(SmallBatch, LongRowsGoInParts) {
  check<float>({.rows = 8, .k = 2500, .n = 16, .norm = true});
  check<bfloat16>({.rows = 8, .k = 4704, .n = 8, .norm = true});
  check<bfloat16>({.rows = 7, .k = 4104, .n = 9, .transposed = true, .wide_out = true});
  check<bfloat16>({.rows = 1, .k = 17000, .n = 8, .residual = true});
}
TEST_F(SmallBatch, NarrowWeights) {
  for (int64_t rows : {1, 2, 3, 8, 9}) check_narrow({.rows = rows, .k = 72, .n = 48});
  check_narrow({.rows = 3, .k = 37, .n = 13, .norm = true, .residual = true});
  check_narrow({.rows = 1, .k = 1, .n = 1});
  check_narrow({.rows = 2, .k = 40, .n = 24, .gate = true, .shift = 1});
  check_narrow({.rows = 2, .k = 37, .n = 21, .transposed = true});
  check_narrow({.rows = 2, .k = 64, .n = 32, .norm = true, .gate = true, .act0 = Activation::gelu});
  check_narrow({.rows = 1, .k = 64, .n = 3200, .norm = true, .wide_out = true, .scale = 0.25f});
  check_narrow({.rows = 6, .k = 640, .n = 33, .norm = true, .transposed = true, .wide_out = true});
}
TEST_F(SmallBatch, MoreRowsOnTensorCores) {
  const auto check_all = [&](const Case& c) {
    on_every_schedule([&] {
      check<bfloat16>(c);
      check<bfloat16, int8_t>(c);
      check<bfloat16, float8>(c);
    });
  };
  check_all({.rows = 5, .k = 8, .n = 16});
  check_all({.rows = 8, .k = 808, .n = 16, .norm = true, .gate = true, .residual = true});
  check_all({.rows = 16, .k = 64, .n = 48, .norm = true, .residual = true});
  check_all({.rows = 17, .k = 296, .n = 40, .norm = true, .gate = true, .act0 = Activation::gelu});
  check_all({.rows = 32, .k = 2600, .n = 16, .norm = true});  // more chunks than a ring holds
  check_all({.rows = 8, .k = 2600, .n = 16, .norm = true});
  check_all({.rows = 8, .k = 1320, .n = 16, .norm = true, .gate = true});
  check_all({.rows = 17, .k = 1320, .n = 32, .gate = true});
  check_all({.rows = 64, .k = 2600, .n = 32});
  check_all({.rows = 33, .k = 72, .n = 64, .wide_out = true, .scale = 0.5f});
  check_all({.rows = 64, .k = 544, .n = 32, .norm = true, .gate = true, .act0 = Activation::silu});
  check_all({.rows = 70, .k = 40, .n = 32, .residual = true});
}
TEST_F(SmallBatch, TilesAreForSoManyRowsAndSuchSizes) {
  SmallBatchMatmul p{.rows = 128, .k = 4096, .n = 4096};
  EXPECT_TRUE(p.takes_tiles());
  p.n = 4104;  // more than 32 MB
  EXPECT_FALSE(p.takes_tiles());
  p.rows = 64;
  EXPECT_TRUE(p.takes_tiles());
  p.weight_dtype = DType::i8;
  EXPECT_FALSE(p.takes_tiles());  // no whole 16 bytes
  p.n = 8192, p.rows = 128;
  EXPECT_TRUE(p.takes_tiles());
  p.rows = 129;
  EXPECT_FALSE(p.takes_tiles());
  p.rows = 4;
  EXPECT_FALSE(p.takes_tiles());
}
TEST_F(SmallBatch, WideBlocksOfManyRows) {
  const int64_t wide = wide_columns();
  const Case one{.rows = 33, .k = 840, .n = wide + 16, .norm = true, .residual = true};
  const Case gated{
      .rows = 128, .k = 840, .n = wide, .norm = true, .gate = true, .act0 = Activation::gelu};
  for (const Case& c : {one, gated}) {
    check<bfloat16>(c);
    check<bfloat16, int8_t>(c);
    check<bfloat16, float8>(c);
  }
}
TEST_F(SmallBatch, ARowsBitsDoNotDependOnTheNumberOfRows) {
  expect_the_same_bits<bfloat16>();
  expect_the_same_bits<int8_t>();
}
TEST_F(SmallBatch, LongRowsOfNarrowWeightsGoInParts) {
  check<bfloat16, int8_t>({.rows = 8, .k = 4704, .n = 8, .norm = true, .gate = true});
  check<bfloat16, float8>({.rows = 7, .k = 4104, .n = 9, .transposed = true, .wide_out = true});
  check<float, int8_t>({.rows = 1, .k = 17000, .n = 8, .residual = true});
}

}  // namespace
}  // namespace quintet::testing
