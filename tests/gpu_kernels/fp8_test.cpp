// FP8 products and the update of their scales, on the CPU and on the device, against plain loops and what is recorded.

#include "kernels/fp8/fp8.h"

#include "kernels/mlp/mlp.h"
#include "kernels/optimizers/gpu_arrays.h"
#include "runtime/op/op.h"
#include "tests/gpu_kernels/on_device.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

using Numbers = std::vector<float>;

Fp8Scaling scaling_of(const std::array<float, 3>& scales, const std::array<float, 3>& amax) {
  Fp8Scaling s{};
  for (size_t i = 0; i < kFp8Operands; ++i) {
    s.scale[i] = scales[i];
    s.scale_inv[i].value = 1 / scales[i];
    s.amax[i] = amax[i];
  }
  return s;
}

class Fp8 : public DeviceTest {
 protected:
  /// Tensor cores add up in fewer bits than float32.
  static double tolerance() { return name().starts_with("emulated") ? 1e-5 : 2e-3; }
};

struct Case {
  int64_t rows, k, n;
  size_t layers;
  bool is_current;
  Float8 gradients = Float8::e5m2;
};

/// Inputs of a case, and what loops make of them.
struct Expected {
  Numbers x;
  std::vector<Numbers> w, dy;
  Fp8Scaling before = scaling_of({3.5f, 40, 700}, {0.25f, 1e9f, 0});
  Numbers dx;
  std::vector<Numbers> y, dw;

  Expected(const Case& c, bool is_bf16) {
    const auto make = [&](int64_t size, uint64_t seed, double deviation) {
      Numbers numbers = normals(static_cast<size_t>(size), seed, deviation);
      if (is_bf16) numbers = widened(rounded(numbers));
      return numbers;
    };
    x = make(c.rows * c.k, 1, 2);
    for (size_t i = 0; i < c.layers; ++i) {
      w.push_back(make(c.k * c.n, 10 + i, 0.1));
      dy.push_back(make(c.rows * c.n, 20 + i, 0.003));
    }
    x[3] = -1000;  // beyond the largest number
    const Numbers x8 = cast({x}, kFp8X, Float8::e4m3, c)[0];
    const auto w8 = cast(w, kFp8W, Float8::e4m3, c), dy8 = cast(dy, kFp8Gradient, c.gradients, c);
    dx.assign(x.size(), 0);
    for (size_t i = 0; i < c.layers; ++i) {
      const auto at = [&](const Numbers& a, int64_t row, int64_t columns, int64_t column) {
        return static_cast<double>(a[static_cast<size_t>(row * columns + column)]);
      };
      Numbers &y_i = y.emplace_back(), &dw_i = dw.emplace_back();
      for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t j = 0; j < c.n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < c.k; ++l) sum += at(x8, r, c.k, l) * at(w8[i], l, c.n, j);
          y_i.push_back(static_cast<float>(sum));
        }
      for (int64_t l = 0; l < c.k; ++l)
        for (int64_t j = 0; j < c.n; ++j) {
          double sum = 0;
          for (int64_t r = 0; r < c.rows; ++r) sum += at(x8, r, c.k, l) * at(dy8[i], r, c.n, j);
          dw_i.push_back(static_cast<float>(sum));
        }
      for (int64_t r = 0; r < c.rows; ++r)
        for (int64_t l = 0; l < c.k; ++l) {
          double sum = 0;
          for (int64_t j = 0; j < c.n; ++j) sum += at(dy8[i], r, c.n, j) * at(w8[i], l, c.n, j);
          dx[static_cast<size_t>(r * c.k + l)] += static_cast<float>(sum);
        }
    }
  }

  static float largest(const std::vector<Numbers>& arrays) {
    float most = 0;
    for (const Numbers& array : arrays)
      for (const float v : array) most = std::max(most, std::abs(v));
    return most;
  }
  std::vector<Numbers> cast(std::vector<Numbers> arrays, Fp8Operand operand, Float8 format,
                            const Case& c) const {
    const float scale = c.is_current ? largest_of(format) / largest(arrays) : before.scale[operand];
    for (Numbers& array : arrays)
      for (float& v : array) v = widened(narrowed(v * scale, format), format) / scale;
    return arrays;
  }
};

double size_of_terms(const Numbers& want) {
  double squares = 0;
  for (const float v : want) squares += static_cast<double>(v) * v;
  return std::sqrt(squares / static_cast<double>(want.size())) * 4;
}

Numbers doubled(Numbers numbers) {
  for (float& v : numbers) v *= 2;
  return numbers;
}

/// Runs both ops in the memory of the current device; -> the scaling afterwards.
template <typename T>
Fp8Scaling run(Device& device, const Case& c, const Expected& e, double tolerance) {
  const auto on_device = [&](const Numbers& numbers) {
    return OnDevice<T>(device, as<T>(numbers));
  };
  std::vector<OnDevice<T>> w, dy, y;
  std::vector<OnDevice<float>> dw;
  for (size_t i = 0; i < c.layers; ++i) {
    w.push_back(on_device(e.w[i]));
    dy.push_back(on_device(e.dy[i]));
    y.push_back(on_device(Numbers(e.y[i].size())));
    dw.emplace_back(device, Numbers(e.dw[i].size()));
  }
  const OnDevice<T> x = on_device(e.x), dx = on_device(e.x);
  Numbers table(2 * kFp8ScalingFloats, -1);  // layer 1 of two
  std::memcpy(&table[kFp8ScalingFloats], &e.before, sizeof e.before);
  const OnDevice<float> scaling(device, table);
  const auto views = [&](const auto& arrays, int64_t rows) {
    std::vector<View> all(3, View::none());
    for (size_t i = 0; i < arrays.size(); ++i) all[i] = arrays[i].view({rows, c.n});
    return all;
  };
  std::vector<View> in{x.view({c.rows, c.k})};
  for (const View& view : views(w, c.k)) in.push_back(view);
  in.push_back(c.is_current ? View::none() : scaling.view({2, kFp8ScalingFloats}));
  in.insert(in.end(), 2, View::none());  // nothing is cast before
  const Attrs attrs{{"layer", int64_t{1}}, {"gradient_format", static_cast<int64_t>(c.gradients)}};
  const auto out = views(y, c.rows);
  kernel_of(ops::table::matmul_fp8, device)(in, out, attrs, device.stream());
  for (const View& view : views(dy, c.rows)) in.push_back(view);
  std::vector<View> gradients{dx.view({c.rows, c.k})};
  for (const View& view : views(dw, c.k)) gradients.push_back(view);
  kernel_of(ops::table::matmul_fp8_grad, device)(in, gradients, attrs, device.stream());
  in.insert(in.end(), gradients.begin(), gradients.end());  // once more, added to what they are
  kernel_of(ops::table::matmul_fp8_grad, device)(in, gradients, attrs, device.stream());
  const double rounding = std::is_same_v<T, float> ? 0 : 4e-3;
  for (size_t i = 0; i < c.layers; ++i) {
    expect_near(widened(y[i].back()), e.y[i], tolerance + rounding, size_of_terms(e.y[i]),
                fmt::format("y_{}", i));
    expect_near(dw[i].back(), doubled(e.dw[i]), tolerance, 2 * size_of_terms(e.dw[i]),
                fmt::format("dw_{}", i));
  }
  expect_near(widened(dx.back()), doubled(e.dx), tolerance + rounding, 2 * size_of_terms(e.dx),
              "dx");
  const Numbers after = scaling.back();
  for (int64_t i = 0; i < kFp8ScalingFloats; ++i) EXPECT_EQ(after[static_cast<size_t>(i)], -1);
  Fp8Scaling result;
  std::memcpy(&result, &after[kFp8ScalingFloats], sizeof result);
  return result;
}

void check_amax(const Case& c, const Expected& e, const Fp8Scaling& after) {
  const float x = Expected::largest({e.x}), dy = Expected::largest(e.dy);
  const bool grows = !c.is_current;
  EXPECT_EQ(after.amax[kFp8X], grows ? x : 0.25f);
  EXPECT_EQ(after.amax[kFp8W], 1e9f);  // it was larger before
  EXPECT_EQ(after.amax[kFp8Gradient], grows ? dy : 0);
  for (int i = 0; i < kFp8Operands; ++i) EXPECT_EQ(after.scale[i], e.before.scale[i]);
}

const std::vector<Case> kCases = {
    {37, 48, 32, 3, false},  {37, 48, 32, 3, true},
    {128, 16, 80, 2, false}, {5, 144, 16, 1, false, Float8::e4m3},
    {131, 80, 48, 1, true},
};

TEST_F(Fp8, ProductsAreThoseOfRoundedNumbers) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("{} x {} x {}, {} layers", c.rows, c.k, c.n, c.layers));
    const Expected e(c, false), e16(c, true);
    on_every_schedule([&] {
      if (!device().multiplies_float8()) return;
      check_amax(c, e, run<float>(device(), c, e, tolerance()));
      check_amax(c, e16, run<bfloat16>(device(), c, e16, tolerance()));
    });
    Device::use(Device::cpu());
    check_amax(c, e, run<float>(Device::cpu(), c, e, 1e-5));
    Device::use(device());
  }
}

TEST_F(Fp8, WhatIsNotFiniteIsSeenInTheResults) {
  const auto products = [&](Device& on, float bad) {
    Device::use(on);
    Numbers numbers(256, 1);
    numbers[20] = bad;
    const OnDevice<float> x(on, numbers), w(on, Numbers(256, 1)), y(on, Numbers(256));
    Fp8Scaling s = scaling_of({1, 1, 1}, {});
    Numbers table(kFp8ScalingFloats);
    std::memcpy(table.data(), &s, sizeof s);
    const OnDevice<float> scaling(on, table);
    const View none = View::none();
    const std::vector<View> in{x.view({16, 16}),
                               w.view({16, 16}),
                               none,
                               none,
                               scaling.view({1, kFp8ScalingFloats}),
                               none,
                               none},
        out{y.view({16, 16}), none, none};
    kernel_of(ops::table::matmul_fp8, on)(
        in, out, {{"layer", int64_t{0}}, {"gradient_format", int64_t{1}}}, on.stream());
    const Numbers got = y.back(), after = scaling.back();
    for (size_t i = 0; i < 256; ++i)
      EXPECT_EQ(std::isnan(got[i]), i / 16 == 1) << i << " of " << bad;
    std::memcpy(&s, after.data(), sizeof s);
    EXPECT_FALSE(std::isfinite(s.amax[kFp8X])) << bad;
    Device::use(device());
  };
  if (!device().multiplies_float8()) GTEST_SKIP() << device().description();
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    products(device(), bad);
    products(Device::cpu(), bad);
  }
}

/// Bytes that an op leaves, their transpose, and the largest magnitude.
struct Bytes {
  std::vector<uint8_t> plain, transposed;
  float amax;
};

/// Of numbers as they are stored, what a cast makes.
template <typename T>
Bytes cast_of(const std::vector<T>& y, int64_t rows, int64_t columns, float scale) {
  Bytes made{std::vector<uint8_t>(y.size()), std::vector<uint8_t>(y.size()), 0};
  uint32_t most = 0;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto v = static_cast<float>(y[static_cast<size_t>(i)]);
    most = std::max(most, std::bit_cast<uint32_t>(v) & 0x7fffffffu);
    const float scaled = v * scale + v * 0.0f;
    const uint8_t byte = std::isnan(scaled) ? 0x7f : narrowed(scaled, Float8::e4m3);
    made.plain[static_cast<size_t>(i)] = byte;
    made.transposed[static_cast<size_t>(i % columns * rows + i / columns)] = byte;
  }
  made.amax = std::bit_cast<float>(most);
  return made;
}

/// With one sign for NaN, which a CPU keeps.
std::vector<uint8_t> without_sign_of_nan(std::vector<uint8_t> bytes) {
  std::ranges::replace(bytes, uint8_t{0xff}, uint8_t{0x7f});
  return bytes;
}

/// Runs `op`, which leaves numbers as its last result, and `fp8`, of the same operands and a scaling: the same bits.
template <typename T>
void check_bytes(Device& device, const Op& op, const Op& fp8, std::vector<View> in,
                 const Attrs& attrs, int64_t rows, int64_t columns, float amax_before) {
  const OnDevice<T> y(device, std::vector<T>(static_cast<size_t>(rows * columns))),
      sum(device, std::vector<T>(static_cast<size_t>(rows * columns))),
      sum_fp8(device, std::vector<T>(static_cast<size_t>(rows * columns)));
  const auto shaped = [&](const auto& array) { return array.view({rows, columns}); };
  const bool sums = op.rule.outputs.size() == 2;
  kernel_of(op, device)(in, sums ? std::vector{shaped(sum), shaped(y)} : std::vector{shaped(y)},
                        attrs, device.stream());
  for (const bool transposes : {true, false}) {
    Numbers table(2 * kFp8ScalingFloats, -1);  // layer 1 of two
    Fp8Scaling s = scaling_of({3.5f, 40, 700}, {amax_before, 1, 2});
    std::memcpy(&table[kFp8ScalingFloats], &s, sizeof s);
    const OnDevice<float> scaling(device, table);
    const OnDevice<uint8_t> plain(device, std::vector<uint8_t>(y.back().size())),
        transposed(device, std::vector<uint8_t>(y.back().size()));
    std::vector<View> with = in, out{shaped(plain), transposes ? shaped(transposed) : View::none()};
    with.push_back(scaling.view({2, kFp8ScalingFloats}));
    if (sums) out.insert(out.begin(), shaped(sum_fp8));
    Attrs of_layer = attrs;
    of_layer.set("layer", int64_t{1});
    kernel_of(fp8, device)(with, out, of_layer, device.stream());
    const Bytes want = cast_of(y.back(), rows, columns, 3.5f);
    EXPECT_TRUE(without_sign_of_nan(plain.back()) == want.plain);
    EXPECT_TRUE(without_sign_of_nan(transposed.back()) ==
                (transposes ? want.transposed : std::vector<uint8_t>(want.plain.size())));
    if (sums) {
      const std::vector<T> got = sum_fp8.back(), as_without = sum.back();
      EXPECT_EQ(std::memcmp(got.data(), as_without.data(), got.size() * sizeof(T)), 0);
    }
    const Numbers after = scaling.back();
    std::memcpy(&s, &after[kFp8ScalingFloats], sizeof s);
    const auto bits = [](float v) { return std::bit_cast<uint32_t>(v); };
    EXPECT_EQ(bits(s.amax[kFp8X]), std::max(bits(want.amax), bits(amax_before)));
    EXPECT_EQ(s.amax[kFp8W], 1);
    EXPECT_EQ(s.amax[kFp8Gradient], 2);
    for (int64_t i = 0; i < kFp8ScalingFloats; ++i) EXPECT_EQ(after[static_cast<size_t>(i)], -1);
  }
}

/// Numbers of which some are not finite or beyond the largest of E4M3.
template <typename T>
OnDevice<T> with_extremes(Device& device, int64_t n, uint64_t seed, bool not_finite) {
  Numbers numbers = normals(static_cast<size_t>(n), seed, 2);
  numbers[5] = -3e4f;
  if (not_finite) numbers[numbers.size() / 2] = std::numeric_limits<float>::infinity();
  if (not_finite) numbers[numbers.size() - 3] = std::numeric_limits<float>::quiet_NaN();
  return OnDevice<T>(device, as<T>(numbers));
}

template <typename T>
void check_norms(Device& device, int64_t rows, int64_t columns, bool not_finite) {
  SCOPED_TRACE(fmt::format("{} x {} of {} bytes", rows, columns, sizeof(T)));
  const auto x = with_extremes<T>(device, rows * columns, 1, not_finite),
             y = with_extremes<T>(device, rows * columns, 2, false);
  const OnDevice<float> gains(device, normals(static_cast<size_t>(columns), 3, 1));
  const View x_view = x.view({rows, columns}), y_view = y.view({rows, columns}),
             gain = gains.view({columns});
  const Attrs plain{{"eps", 1e-6}},
      drops{{"eps", 1e-6}, {"rate", 0.25}, {"key0", int64_t{1}}, {"key1", int64_t{2}}};
  for (const float before : {0.0f, 1e9f}) {
    check_bytes<T>(device, ops::table::rms_norm, ops::table::rms_norm_fp8, {x_view, gain}, plain,
                   rows, columns, before);
    for (const Attrs& attrs : {plain, drops})
      check_bytes<T>(device, ops::table::add_rms_norm, ops::table::add_rms_norm_fp8,
                     {x_view, y_view, gain}, attrs, rows, columns, before);
  }
}

TEST_F(Fp8, NormsLeaveTheBytesOfACast) {
  const std::pair<int64_t, int64_t> sizes[] = {{48, 16}, {16, 528}, {80, 1024}};
  const std::pair<int64_t, int64_t> wide[] = {{48, 2048}, {32, kMostFp8NormDepth}};
  const auto check = [](Device& on, const auto& all) {
    for (const auto& [rows, columns] : all)
      for (const bool not_finite : {false, true}) {
        check_norms<float>(on, rows, columns, not_finite);
        if (!on.is_cpu()) check_norms<bfloat16>(on, rows, columns, not_finite);
      }
  };
  on_every_schedule([&] { check(device(), sizes); }, {90});
  check(device(), wide);
  Device::use(Device::cpu());
  check(Device::cpu(), sizes);
  Device::use(device());
}

template <typename T>
void check_gates(Device& device, int64_t rows, int64_t columns, bool not_finite) {
  SCOPED_TRACE(fmt::format("{} x {} of {} bytes", rows, columns, sizeof(T)));
  const auto h0 = with_extremes<T>(device, rows * columns, 1, not_finite),
             h1 = with_extremes<T>(device, rows * columns, 2, false);
  const View h0_view = h0.view({rows, columns}), h1_view = h1.view({rows, columns});
  for (int64_t act0 = 0; act0 <= static_cast<int64_t>(Activation::gelu_erf); ++act0) {
    Attrs attrs{{"act0", act0}};
    check_bytes<T>(device, ops::table::gate, ops::table::gate_fp8, {h0_view, View::none()}, attrs,
                   rows, columns, 0);
    attrs.set("act1", (act0 + 3) % 5);
    check_bytes<T>(device, ops::table::gate, ops::table::gate_fp8, {h0_view, h1_view}, attrs, rows,
                   columns, 1e9f);
  }
}

TEST_F(Fp8, ActivationsLeaveTheBytesOfACast) {
  const auto check = [](Device& on) {
    for (const auto& [rows, columns] : {std::pair{48, 16}, {144, 80}})
      for (const bool not_finite : {false, true}) {
        check_gates<float>(on, rows, columns, not_finite);
        if (!on.is_cpu()) check_gates<bfloat16>(on, rows, columns, not_finite);
      }
  };
  on_every_schedule([&] { check(device()); }, {90});
  Device::use(Device::cpu());
  check(Device::cpu());
  Device::use(device());
}

template <typename T>
void check_weights(Device& device) {
  std::vector<OnDevice<T>> w;
  std::vector<OnDevice<uint8_t>> bytes;
  std::vector<Fp8Weights> layers;
  Numbers table(3 * kFp8ScalingFloats);
  const Fp8Scaling before = scaling_of({1, 3.5f, 1}, {1, 0.5f, 2});
  const std::array<int64_t, 3> sizes[] = {{3, 48, 144}, {1, 272, 16}, {2, 16, 64}};  // count, k, n
  for (const auto& [count, k, n] : sizes) {
    std::memcpy(&table[layers.size() * kFp8ScalingFloats], &before, sizeof before);
    bytes.emplace_back(device, std::vector<uint8_t>(static_cast<size_t>(2 * count * k * n)));
    Fp8Weights& layer =
        layers.emplace_back(Fp8Weights{.count = count, .k = k, .n = n, .dtype = dtype_of<T>()});
    for (int64_t i = 0; i < count; ++i) {
      w.push_back(with_extremes<T>(device, k * n, w.size(), layers.size() == 2));
      layer.w.at(static_cast<size_t>(i)) = w.back().data();
    }
    layer.bytes = bytes.back().data();
  }
  const OnDevice<float> scaling(device, table);
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].scaling = reinterpret_cast<Fp8Scaling*>(scaling.data()) + i;
  device.is_cpu() ? cast_fp8_weights_cpu(layers)
                  : device.kernels().cast_fp8_weights(layers, device.stream());
  size_t matrix = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto [count, k, n] = sizes[l];
    const std::vector<uint8_t> got = without_sign_of_nan(bytes[l].back());
    uint32_t most = std::bit_cast<uint32_t>(before.amax[kFp8W]);
    for (int64_t i = 0; i < count; ++i) {
      const Bytes want = cast_of(w[matrix++].back(), k, n, 3.5f);
      most = std::max(most, std::bit_cast<uint32_t>(want.amax));
      EXPECT_TRUE(
          std::equal(want.transposed.begin(), want.transposed.end(), got.begin() + i * k * n));
      for (int64_t row = 0; row < k; ++row)
        EXPECT_TRUE(std::equal(want.plain.begin() + row * n, want.plain.begin() + (row + 1) * n,
                               got.begin() + count * k * n + (row * count + i) * n))
            << l << " " << i << " " << row;
    }
    Fp8Scaling after;
    std::memcpy(&after, &scaling.back()[l * kFp8ScalingFloats], sizeof after);
    EXPECT_EQ(std::bit_cast<uint32_t>(after.amax[kFp8W]), most);
    EXPECT_EQ(after.amax[kFp8X], 1);
  }
}

TEST_F(Fp8, WeightsOfAllLayersAreCastInOneLaunch) {
  on_every_schedule(
      [&] {
        const int64_t before = device().counters().read().launches;
        check_weights<bfloat16>(device());
        EXPECT_EQ(device().counters().read().launches - before, 1);
        check_weights<float>(device());
      },
      {90});
  Device::use(Device::cpu());
  check_weights<float>(Device::cpu());
  Device::use(device());
}

/// A layer's scales and history under delayed scaling, as Fp8State has them.
struct Delayed {
  Device& on;
  int64_t length;
  double margin = 0;
  bool most_recent = false;
  Fp8Scaling s = scaling_of({1, 1, 1}, {});
  Numbers history = Numbers(static_cast<size_t>(kFp8Operands * length));

  Numbers table() const {
    Numbers numbers(kFp8ScalingFloats);
    std::memcpy(numbers.data(), &s, sizeof s);
    return numbers;
  }
  void take(const Numbers& numbers) { std::memcpy(&s, numbers.data(), sizeof s); }
  /// The end of a step whose largest magnitudes are s.amax.
  void update(bool skips = false) {
    const OnDevice<float> scaling(on, table()), places(on, history);
    Fp8Update u{.scalings = reinterpret_cast<Fp8Scaling*>(scaling.data()),
                .history = places.data(),
                .count = 1,
                .length = length,
                .most_recent = most_recent};
    for (int i = 0; i < kFp8Operands; ++i)
      u.scaled_max[i] =
          (i == kFp8Gradient ? 57344.0f : 448.0f) * static_cast<float>(std::pow(2, -margin));
    const std::vector<int32_t> numbers{std::bit_cast<int32_t>(1.0f), skips ? 1 : 0};
    const OnDevice<int32_t> given(on, numbers);
    const auto* control = reinterpret_cast<const UpdateControl*>(given.data());
    on.is_cpu() ? update_fp8_scaling_cpu(u, control)
                : on.kernels().update_fp8_scaling(u, control, on.stream());
    take(scaling.back());
    history = places.back();
  }
};

/// Number `step` of an array [steps, ...].
std::span<const float> of_step(const HostArray& array, int64_t step) {
  const size_t size = array.as<float>().size() / static_cast<size_t>(array.shape[0]);
  return array.as<float>().subspan(static_cast<size_t>(step) * size, size);
}

/// Updates of the recipe <amax_compute_algo>_<amax_history_len>_<margin>.
void follow_recorded(Device& on, const HostArrays& recorded, const std::string& name) {
  const HostArray &amax = recorded.at("amax"), &scale = recorded.at(name + "/scale"),
                  &history = recorded.at(name + "/history");
  Delayed layer{.on = on,
                .length = history.shape[2],
                .margin = std::stod(name.substr(name.rfind('_') + 1)),
                .most_recent = name.starts_with("most_recent")};
  for (int64_t step = 0; step < amax.shape[0]; ++step) {
    for (const bool skips : {true, false}) {  // a skipped step leaves no trace
      for (size_t i = 0; i < kFp8Operands; ++i)
        layer.s.amax[i] = skips ? 1e30f : of_step(amax, step)[i];
      layer.update(skips);
    }
    for (size_t i = 0; i < kFp8Operands; ++i) {
      EXPECT_EQ(layer.s.scale[i], of_step(scale, step)[i]) << name << ", step " << step;
      EXPECT_EQ(layer.s.scale_inv[i].value, 1 / layer.s.scale[i]);
      EXPECT_EQ(layer.s.amax[i], 0);
    }
    const auto now = of_step(history, step);
    ASSERT_EQ(layer.history.size(), now.size());
    for (size_t i = 0; i < now.size(); ++i)
      ASSERT_TRUE(layer.history[i] == now[i] ||
                  (std::isnan(layer.history[i]) && std::isnan(now[i])))
          << name << ", step " << step << ", " << i;
  }
}

TEST_F(Fp8, ScalesFollowTheirHistoryAsRecorded) {
  for (const char* file : {"fp8/scaling.safetensors", "fp8/transformer_engine.safetensors"}) {
    SCOPED_TRACE(file);
    const HostArrays recorded = read_safetensors(fixture_root() / file);
    int recipes = 0;
    for (const auto& [name, array] : recorded) {
      if (!name.ends_with("/scale")) continue;
      ++recipes;
      follow_recorded(Device::cpu(), recorded, name.substr(0, name.rfind('/')));
      follow_recorded(device(), recorded, name.substr(0, name.rfind('/')));
    }
    EXPECT_GT(recipes, 0);
  }
}

/// By the scales after the step before, those of recipe max_4_0.
TEST_F(Fp8, CastsAreTransformerEngines) {
  const HostArrays recorded =
      read_safetensors(fixture_root() / "fp8/transformer_engine.safetensors");
  const HostArray &x = recorded.at("x"), &scales = recorded.at("max_4_0/scale");
  const auto bytes = recorded.at("bytes").as<uint8_t>();
  const size_t size = static_cast<size_t>(x.shape[2]);
  size_t at = 0;
  for (int64_t step = 0; step < x.shape[0]; ++step)
    for (size_t operand = 0; operand < kFp8Operands; ++operand)
      for (size_t i = 0; i < size; ++i, ++at) {
        const float scale = step == 0 ? 1 : of_step(scales, step - 1)[operand];
        EXPECT_EQ(narrowed(of_step(x, step)[operand * size + i] * scale,
                           operand == kFp8Gradient ? Float8::e5m2 : Float8::e4m3),
                  bytes[at])
            << step << " " << operand << " " << i;
      }
}

/// Products, scales and history of a layer, step by step. flax divides by the scale's inverse, and moves a history down and
/// takes the scale from it when the next step begins; Transformer Engine and we when a step ends.
void follow_flax(Device& on, const HostArrays& recorded, double tolerance) {
  const HostArray &x = recorded.at("x"), &dy = recorded.at("dy"), &history = recorded.at("history");
  const int64_t rows = x.shape[1], k = x.shape[2], n = dy.shape[2];
  const double of_scales = recorded.at("tolerance").as<float>()[0];
  const auto given = [&](const char* name, int64_t step) {
    const auto numbers = of_step(recorded.at(name), step);
    return OnDevice<float>(on, Numbers(numbers.begin(), numbers.end()));
  };
  const auto expect_equal = [&](const OnDevice<float>& got, const char* name, int64_t step) {
    const auto want = of_step(recorded.at(name), step);
    const Numbers numbers(want.begin(), want.end());
    expect_near(got.back(), numbers, tolerance, size_of_terms(numbers),
                fmt::format("{} of step {}", name, step));
  };
  const View none = View::none();
  Delayed layer{.on = on, .length = history.shape[2]};
  for (int64_t step = 0; step < x.shape[0]; ++step) {
    for (size_t i = 0; i < kFp8Operands; ++i) {
      const float want = of_step(recorded.at("scale"), step)[i];
      EXPECT_NEAR(layer.s.scale_inv[i].value, want, of_scales * want) << step << " " << i;
    }
    const auto x_now = given("x", step), w = given("w", step), dy_now = given("dy", step);
    const OnDevice<float> scaling(on, layer.table()), y(on, Numbers(static_cast<size_t>(rows * n))),
        dx(on, Numbers(static_cast<size_t>(rows * k))), dw(on, Numbers(static_cast<size_t>(k * n)));
    std::vector<View> in{x_now.view({rows, k}),
                         w.view({k, n}),
                         none,
                         none,
                         scaling.view({1, kFp8ScalingFloats}),
                         none,
                         none};
    const Attrs attrs{{"layer", int64_t{0}}, {"gradient_format", int64_t{1}}};
    const std::vector<View> out{y.view({rows, n}), none, none},
        gradients{dx.view({rows, k}), dw.view({k, n}), none, none};
    kernel_of(ops::table::matmul_fp8, on)(in, out, attrs, on.stream());
    in.insert(in.end(), {dy_now.view({rows, n}), none, none});
    kernel_of(ops::table::matmul_fp8_grad, on)(in, gradients, attrs, on.stream());
    expect_equal(y, "y", step);
    expect_equal(dx, "dx", step);
    expect_equal(dw, "dw", step);
    layer.take(scaling.back());
    layer.update();
    const auto kept = of_step(history, step);
    Numbers want(kept.begin(), kept.end());
    for (auto first = want.begin(); first != want.end(); first += layer.length) {
      std::rotate(first, first + 1, first + layer.length);
      *first = 0;
    }
    EXPECT_EQ(layer.history, want) << step;
  }
}

TEST_F(Fp8, LayersAreThoseOfFlax) {
  const HostArrays recorded = read_safetensors(fixture_root() / "fp8/flax.safetensors");
  const auto tolerances = recorded.at("tolerance").as<float>();
  follow_flax(Device::cpu(), recorded, tolerances[1]);
  if (!device().multiplies_float8()) return;
  follow_flax(device(), recorded, tolerances[name().starts_with("emulated") ? 1 : 2]);
}

TEST_F(Fp8, SizesThatTensorCoresDoNotTakeAreRefused) {
  for (const auto& [k, n] : {std::pair{24, 32}, {32, 8}}) {
    try {
      check_fp8_sizes(k, n);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("multiples of 16"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace quintet::testing
