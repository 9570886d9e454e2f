// The kernels of generation against plain loops in double.

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "kernels/decode_attention/decode_attention.h"
#include "kernels/logits/logits.h"
#include "kernels/prepacked_matmul/fetch_queue.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"

namespace quintet {
namespace {

std::vector<float> random_floats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = normal(random);
  return values;
}

struct Product {
  int64_t rows, k, n;
};
// Fewer and more rows than a group, columns that fill panels and do not, depths of all remainders.
const std::vector<Product> kProducts = {{1, 1, 1},    {1, 5, 33},   {2, 64, 64},  {8, 24, 7},
                                        {13, 66, 40}, {14, 32, 96}, {15, 7, 65},  {32, 128, 130},
                                        {45, 31, 50}, {8, 512, 96}, {1, 64, 330}, {3, 30, 160},
                                        {6, 41, 160}};

double dot(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += static_cast<double>(a[i * a_stride]) * static_cast<double>(b[i * b_stride]);
  return sum;
}

TEST(PackedMatmul, AgreesWithTheOracle) {
  for (const auto& [rows, k, n] : kProducts) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", rows, k, n));
    const auto x = random_floats(rows * k, 1), w = random_floats(k * n, 2);
    std::vector<float> transposed(w.size());
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j)
        transposed[static_cast<size_t>(j * k + i)] = w[static_cast<size_t>(i * n + j)];
    HugeArena arena;
    PackedRows packed;
    packed.pack(x.data(), rows, k);
    for (const PackedMatrix& m : {PackedMatrix::pack(w.data(), k, n, arena),
                                  PackedMatrix::pack_transposed(transposed.data(), n, k, arena)}) {
      for (const int64_t parts : {1, 3}) {
        std::vector<float> y(static_cast<size_t>(rows * n),
                             std::numeric_limits<float>::quiet_NaN());
        for (int64_t part = 0; part < parts; ++part)
          multiply(packed, m, m.share(part, parts),
                   [&](const Tile& tile) { store_tile(tile, y.data(), n); });
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t j = 0; j < n; ++j)
            ASSERT_NEAR(y[static_cast<size_t>(r * n + j)],
                        dot(x.data() + r * k, 1, w.data() + j, n, k),
                        1e-5 * std::sqrt(static_cast<double>(k)) + 1e-5)
                << r << ", " << j;
      }
    }
  }
}

constexpr WeightType kNarrowTypes[] = {WeightType::bf16, WeightType::int8, WeightType::int8_dynamic,
                                       WeightType::fp8};

/// A row in 8 bits and back, as int8_dynamic sees it.
std::vector<float> rounded_row(const float* x, int64_t k) {
  float largest = 0;
  for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(x[i]));
  std::vector<float> row;
  for (int64_t i = 0; i < k; ++i)
    row.push_back(std::nearbyint(x[i] * (127 / largest)) * largest / 127);
  return row;
}

/// Products with rounded weights are those of the weights that column() says. Empty: all are.
std::string narrow_difference(const Product& size, WeightType type) {
  const auto& [rows, k, n] = size;
  const auto x = random_floats(rows * k, 1), w = random_floats(k * n, 2);
  HugeArena arena;
  const PackedMatrix m = PackedMatrix::pack(w.data(), k, n, arena, type);
  PackedRows packed(type);
  packed.pack(x.data(), rows, k);
  std::vector<float> y(static_cast<size_t>(rows * n));
  multiply(packed, m, {0, m.panels()}, [&](const Tile& tile) { store_tile(tile, y.data(), n); });
  std::vector<float> column(static_cast<size_t>(k));
  for (int64_t c = 0; c < n; ++c) {
    m.column(c, column.data());
    float largest = 0;
    for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(w[i * n + c]));
    for (int64_t i = 0; i < k; ++i) {
      const float exact = w[i * n + c];
      const float limit = type == WeightType::bf16 ? std::abs(exact) / 256
                          : type == WeightType::fp8  // 3 bits after the first, or a step of 2^-9
                              ? std::max(std::abs(exact) / 15.99f, largest / 448 * 0x1.0001p-10f)
                              : largest / 127 * 0.50001f;
      if (std::abs(column[i] - exact) > limit)
        return fmt::format("weight {} {}: {} for {}", i, c, column[i], exact);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data() + r * k;
      std::vector<float> rounded(row, row + k);
      if (type == WeightType::int8_dynamic) rounded = rounded_row(row, k);
      const double want = dot(rounded.data(), 1, column.data(), 1, k);
      double magnitude = 1;  // of what is summed in float32
      for (int64_t i = 0; i < k; ++i) magnitude += std::abs(rounded[i] * column[i]);
      // A value between two steps may be rounded to the other one: its step times a weight.
      const double limit = 1e-6 * magnitude + (type == WeightType::int8_dynamic ? 0.05 : 0);
      if (!(std::abs(y[r * n + c] - want) <= limit))
        return fmt::format("row {} column {}: {} for {}", r, c, y[r * n + c], want);
    }
  }
  return "";
}

/// A row's bits are the same alone and among others, whatever number of panels they go through together.
std::string difference_among_rows(WeightType type) {
  const int64_t k = 37, n = 5 * panel_width() - 3, most = group_rows() + 1;
  const auto x = random_floats(most * k, 1), w = random_floats(k * n, 2);
  HugeArena arena;
  const PackedMatrix m = PackedMatrix::pack(w.data(), k, n, arena, type);
  const auto product = [&](int64_t first, int64_t rows) {
    PackedRows packed(type);
    packed.pack(x.data() + first * k, rows, k);
    std::vector<float> y(static_cast<size_t>(rows * n));
    multiply(packed, m, {0, m.panels()}, [&](const Tile& tile) { store_tile(tile, y.data(), n); });
    return y;
  };
  for (int64_t rows = 2; rows <= most; ++rows) {
    const auto together = product(0, rows);
    for (int64_t r = 0; r < rows; ++r)
      if (!std::ranges::equal(product(r, 1), std::span(together).subspan(r * n, n)))
        return fmt::format("row {} alone and among {} rows", r, rows);
  }
  return "";
}

/// On one instruction set, in a process of its own, as widths are fixed at their first use.
[[noreturn]] void check_on(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  int failed = 0;
  for (const WeightType type : kNarrowTypes)
    for (const Product& size : kProducts)
      if (const std::string text = narrow_difference(size, type); !text.empty()) {
        fmt::print(stderr, "{} {}, {} x {} x {}: {}\n", hwy::TargetName(target), name_of(type),
                   size.rows, size.k, size.n, text);
        failed = 1;
      }
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int8,
                                WeightType::int8_dynamic, WeightType::fp8})
    if (const std::string text = difference_among_rows(type); !text.empty()) {
      fmt::print(stderr, "{} {}: {}\n", hwy::TargetName(target), name_of(type), text);
      failed = 1;
    }
  std::exit(failed);
}

TEST(PackedMatmulDeathTest, NarrowWeightsAgreeWithTheOracleOnEveryInstructionSet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    EXPECT_EXIT(check_on(target), ::testing::ExitedWithCode(0), "");
  }
}

TEST(PackedMatmul, NarrowWeightsTakeFewerBytes) {
  HugeArena arena;
  const auto w = random_floats(64 * 64, 3);
  const auto bytes = [&](WeightType type) {
    return PackedMatrix::pack(w.data(), 64, 64, arena, type).bytes();
  };
  EXPECT_EQ(bytes(WeightType::bf16) * 2, bytes(WeightType::f32));
  EXPECT_EQ(bytes(WeightType::int8) * 4, bytes(WeightType::f32));
  EXPECT_EQ(bytes(WeightType::fp8), bytes(WeightType::int8));
}

TEST(PackedMatmul, RowsComeBackNormalised) {
  constexpr int64_t kRows = 17, kDepth = 37;
  const auto x = random_floats(kRows * kDepth, 3), gain = random_floats(kDepth, 4);
  PackedRows packed;
  packed.pack_normalized(x.data(), kRows, kDepth, gain.data(), 1e-6f);
  std::vector<float> got(x.size());
  packed.unpack(got.data());
  for (int64_t r = 0; r < kRows; ++r) {
    const float* row = x.data() + r * kDepth;
    const double scale = 1 / std::sqrt(dot(row, 1, row, 1, kDepth) / kDepth + 1e-6);
    for (int64_t i = 0; i < kDepth; ++i)
      EXPECT_NEAR(
          got[static_cast<size_t>(r * kDepth + i)],
          static_cast<double>(row[i]) * scale * static_cast<double>(gain[static_cast<size_t>(i)]),
          1e-5);
  }
}

/// Columns of a wider matrix, from either order, a few at a time and into every second panel, are the
/// columns of the whole.
TEST(PackedMatmul, ColumnsComeInParts) {
  constexpr int64_t kDepth = 67, kSpare = 3;
  const int64_t width = panel_width(), n = 2 * width + 5;
  const int64_t row = n + kSpare, column = kDepth + kSpare;
  const auto w = random_floats(kDepth * row, 7);
  std::vector<float> by_column(static_cast<size_t>(row * column));
  for (int64_t i = 0; i < kDepth; ++i)
    for (int64_t j = 0; j < n; ++j)
      by_column[static_cast<size_t>(j * column + i)] = w[static_cast<size_t>(i * row + j)];
  const StoredMatrix orders[] = {{w.data(), DType::f32, nullptr, row, 1},
                                 {by_column.data(), DType::f32, nullptr, 1, column}};
  std::vector<float> want(kDepth), got(kDepth);
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int8,
                                WeightType::int8_dynamic, WeightType::fp8})
    for (const StoredMatrix& stored : orders) {
      HugeArena arena;
      PackedMatrix whole(kDepth, n, arena, type), parts(kDepth, 2 * 3 * width, arena, type);
      whole.set_columns(0, stored, n);
      for (int64_t first = 0, count = 7; first < n; first += count, count = width + 1)
        parts.set_columns(first, stored.from(0, first), std::min(count, n - first), {1, 2});
      for (int64_t c = 0; c < n; ++c) {
        whole.column(c, want.data());
        parts.column((2 * (c / width) + 1) * width + c % width, got.data());
        EXPECT_EQ(got, want) << name_of(type) << " " << c;
        if (type != WeightType::f32) continue;
        for (int64_t i = 0; i < kDepth; ++i)
          EXPECT_EQ(want[static_cast<size_t>(i)], w[static_cast<size_t>(i * row + c)]);
      }
    }
}

TEST(FetchQueue, GivesTheLinesOfItsRangesInOrder) {
  constexpr int64_t kLine = FetchQueue::kLine;
  const std::vector<char> memory(16 * kLine);
  const auto at = [&](int64_t line) { return memory.data() + line * kLine; };
  FetchQueue queue;
  EXPECT_EQ(queue.next_line(), nullptr);
  queue.add(at(0), kLine);
  queue.add(at(1), kLine);      // continues the last
  queue.add(at(8), kLine + 1);  // two lines, the second in part
  queue.add(at(4), kLine);
  for (const int64_t line : {0, 1, 8, 9, 4}) EXPECT_EQ(queue.next_line(), at(line)) << line;
  EXPECT_EQ(queue.next_line(), nullptr);
  queue.add(at(2), kLine);
  queue.add(at(0), FetchQueue::kMostBytes - 6 * kLine);
  EXPECT_FALSE(queue.full());
  queue.add(at(0), kLine);
  EXPECT_TRUE(queue.full());
  queue.clear();
  EXPECT_FALSE(queue.full());
  queue.add(at(6), kLine);
  EXPECT_EQ(queue.next_line(), at(6));
  EXPECT_EQ(queue.next_line(), nullptr);
}

TEST(PackedMatmul, FetchesALineBesideThePanelsEveryFourSteps) {
  constexpr int64_t kRows = 14, kDepth = 24;  // too many for two panels at a time
  const int64_t n = 3 * panel_width();
  const auto x = random_floats(kRows * kDepth, 8), w = random_floats(kDepth * n, 9);
  const std::vector<char> memory(64 * FetchQueue::kLine);
  for (const WeightType type : {WeightType::f32, WeightType::int8, WeightType::int8_dynamic}) {
    HugeArena arena;
    const PackedMatrix packed = PackedMatrix::pack(w.data(), kDepth, n, arena, type);
    PackedRows rows;
    rows.pack(x.data(), kRows, kDepth);
    FetchQueue queue;
    queue.add(memory.data(), static_cast<int64_t>(memory.size()));
    multiply(
        rows, packed, {0, 3}, [](const Tile&) {}, {}, &queue);
    // Each time for a group of rows, of which other instruction sets have more.
    EXPECT_EQ(queue.next_line(),
              memory.data() + 3 * rows.groups() * (kDepth / 4) * FetchQueue::kLine)
        << name_of(type);
  }
}

TEST(PackedMatmul, FetchesWhatTheNextProductReadsFirstInPlaceOfOtherLines) {
  constexpr int64_t kRows = 14, kDepth = 24;
  const auto x = random_floats(kRows * kDepth, 8), w = random_floats(kDepth * 4 * panel_width(), 9);
  const std::vector<char> memory(64 * FetchQueue::kLine);
  HugeArena arena;
  const PackedMatrix packed =
      PackedMatrix::pack(w.data(), kDepth, 4 * panel_width(), arena, WeightType::int8);
  PackedRows rows;
  rows.pack(x.data(), kRows, kDepth);
  const int64_t places = rows.groups() * (kDepth / 4);  // of a panel
  const auto taken = [&](int64_t more) {
    FetchQueue queue;
    queue.add(memory.data(), static_cast<int64_t>(memory.size()));
    multiply(
        rows, packed, {0, 4}, [](const Tile&) {},
        {packed.panel(0), packed.panel_bytes() + more * FetchQueue::kLine}, &queue);
    return (queue.next_line() - memory.data()) / FetchQueue::kLine;
  };
  EXPECT_EQ(taken(0), 4 * places);
  EXPECT_EQ(taken(1), 3 * places);
  EXPECT_EQ(taken(places), 3 * places);
  EXPECT_EQ(taken(places + 1), 2 * places);
  EXPECT_EQ(taken(9 * places), 0);
}

TEST(PackedMatmul, ATileNamesTheOneAfterIt) {
  constexpr int64_t kDepth = 8;
  const int64_t width = panel_width(), n = 5 * width - 3;
  for (const auto& [count, type] : {std::pair{1, WeightType::f32},
                                    {8, WeightType::f32},
                                    {8, WeightType::bf16},
                                    {14, WeightType::int8},
                                    {45, WeightType::f32}}) {
    const auto x = random_floats(count * kDepth, 8), w = random_floats(kDepth * n, 9);
    HugeArena arena;
    const PackedMatrix packed = PackedMatrix::pack(w.data(), kDepth, n, arena, type);
    PackedRows rows(type);
    rows.pack(x.data(), count, kDepth);
    std::vector<Tile> tiles;
    multiply(rows, packed, {1, 5}, [&](const Tile& tile) { tiles.push_back(tile); });
    const int64_t at_once = packed.first_panels({1, 5}, count).bytes / packed.panel_bytes();
    for (size_t i = 0; i < tiles.size(); ++i) {
      const bool ends = i + static_cast<size_t>(at_once) >= tiles.size();
      const Tile& after = tiles[ends ? i : i + static_cast<size_t>(at_once)];
      EXPECT_EQ(tiles[i].next_row, after.row) << count << " rows, tile " << i;
      EXPECT_EQ(tiles[i].next_column, after.column) << count << " rows, tile " << i;
    }
  }
}

TEST(PackedMatmul, TilesAreUsedAsTheyShould) {
  const int64_t width = panel_width(), columns = width - 1;
  std::vector<float> values = random_floats(2 * width, 5);
  for (float& x : values) x *= 4;
  alignas(128) float aligned[2 * 64];
  std::copy(values.begin(), values.end(), aligned);
  const Tile tile{
      .panel = 0, .row = 1, .rows = 2, .column = 2, .columns = columns, .values = aligned};
  const int64_t stride = columns + 5;
  const auto before = random_floats(3 * stride, 6);
  const auto check = [&](const char* what, const std::function<void(float*)>& use,
                         const std::function<double(double, double)>& want) {
    SCOPED_TRACE(what);
    std::vector<float> y = before;
    use(y.data());
    for (int64_t i = 0; i < 3 * stride; ++i) {
      const int64_t r = i / stride - 1, c = i % stride - 2;
      const double old = static_cast<double>(before[static_cast<size_t>(i)]);
      const bool inside = r >= 0 && c >= 0 && c < columns;
      const double expected = inside ? want(static_cast<double>(aligned[r * width + c]), old) : old;
      ASSERT_NEAR(y[static_cast<size_t>(i)], expected, 2e-6 * std::max(1.0, std::abs(expected)));
    }
  };
  const auto gelu = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  const auto gelu_erf = [](double x) { return 0.5 * x * std::erfc(-x / M_SQRT2); };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  check(
      "store", [&](float* y) { store_tile(tile, y, stride); }, [](double t, double) { return t; });
  check(
      "add", [&](float* y) { add_tile(tile, y, stride); },
      [](double t, double o) { return t + o; });
  check(
      "scale", [&](float* y) { scale_tile(tile, y, stride, 0.25f); },
      [](double t, double) { return t / 4; });
  check(
      "gelu", [&](float* y) { activate_tile(tile, Activation::gelu, y, stride); },
      [&](double t, double) { return gelu(t); });
  check(
      "gelu_erf", [&](float* y) { activate_tile(tile, Activation::gelu_erf, y, stride); },
      [&](double t, double) { return gelu_erf(t); });
  check(
      "relu", [&](float* y) { activate_tile(tile, Activation::relu, y, stride); },
      [](double t, double) { return std::max(t, 0.0); });
  check(
      "silu gate", [&](float* y) { multiply_activated_tile(tile, Activation::silu, y, stride); },
      [&](double t, double o) { return o * silu(t); });
  check(
      "linear gate",
      [&](float* y) { multiply_activated_tile(tile, Activation::linear, y, stride); },
      [](double t, double o) { return o * t; });
}

/// softmax(q k^T + bias) v for one query; keys and values by token.
std::vector<double> attention_oracle(const float* q, const std::vector<const float*>& keys,
                                     const std::vector<const float*>& values, const float* bias,
                                     int64_t d) {
  std::vector<double> scores, out(static_cast<size_t>(d), 0);
  double most = -1e300, sum = 0;
  for (size_t t = 0; t < keys.size(); ++t) {
    scores.push_back(dot(q, 1, keys[t], 1, d) +
                     (bias == nullptr ? 0 : static_cast<double>(bias[t])));
    most = std::max(most, scores.back());
  }
  for (double& s : scores) sum += s = std::exp(s - most);
  for (size_t t = 0; t < keys.size(); ++t)
    for (int64_t i = 0; i < d; ++i)
      out[static_cast<size_t>(i)] += scores[t] / sum * static_cast<double>(values[t][i]);
  return out;
}

struct AttentionCase {
  int64_t queries, length, head_dim;
};
const std::vector<AttentionCase> kAttention = {{1, 1, 8},   {4, 3, 6},     {5, 16, 64}, {7, 17, 64},
                                               {3, 33, 80}, {2, 100, 128}, {9, 64, 5}};

TEST(DecodeAttention, SharedKeysAgreeWithTheOracle) {
  for (const auto& [queries, length, d] : kAttention)
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(fmt::format("{} queries, {} tokens, head {}", queries, length, d));
      const auto q = random_floats(queries * d, 7), k = random_floats(length * d, 8);
      const auto v = random_floats(length * d, 9), bias = random_floats(queries * length, 10);
      HugeArena arena;
      const auto memory = arena.allocate(SharedKeys::floats(length, d));
      const SharedKeys keys = SharedKeys::at(memory.get(), length, d);
      std::vector<const float*> key_rows, value_rows;
      for (int64_t t = 0; t < length; ++t) {
        keys.set(t, k.data() + t * d, v.data() + t * d, d);
        key_rows.push_back(k.data() + t * d);
        value_rows.push_back(v.data() + t * d);
      }
      std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN()), scratch;
      std::vector<SharedQuery> asked;
      for (int64_t r = 0; r < queries; ++r)
        asked.push_back({.query = q.data() + r * d,
                         .out = out.data() + r * d,
                         .limit = 1 + r * 5 % length,
                         .bias = with_bias ? bias.data() + r * length : nullptr});
      attend_shared(asked, keys, d, scratch);
      for (int64_t r = 0; r < queries; ++r) {
        const auto n = asked[static_cast<size_t>(r)].limit;
        const auto want = attention_oracle(
            q.data() + r * d, {key_rows.begin(), key_rows.begin() + n},
            {value_rows.begin(), value_rows.begin() + n}, asked[static_cast<size_t>(r)].bias, d);
        for (int64_t i = 0; i < d; ++i)
          ASSERT_NEAR(out[static_cast<size_t>(r * d + i)], want[static_cast<size_t>(i)], 2e-5);
      }
    }
}

TEST(DecodeAttention, ACacheIsReadWhereverItsTokensStand) {
  for (const auto& [slots, length, d] : kAttention) {
    SCOPED_TRACE(fmt::format("{} slots, {} tokens, head {}", slots, length, d));
    const int64_t depth = padded_to_vectors(d), places = length * slots;
    const auto k = random_floats(places * d, 11), v = random_floats(places * d, 12);
    const auto q = random_floats(d, 13), bias = random_floats(length, 14);
    HugeArena arena;
    const auto memory = arena.allocate(2 * places * depth);
    const CachedHead head{.keys = 0, .values = places * depth};
    std::vector<float*> table;
    std::vector<const float*> keys, values;
    for (int64_t place = 0; place < places; ++place)
      append_to_cache(head, memory.get() + place * depth, k.data() + place * d,
                      v.data() + place * d, d);
    for (int64_t t = 0; t < length; ++t) {
      const int64_t place = t * slots + t * 7 % slots;
      table.push_back(memory.get() + place * depth);
      keys.push_back(k.data() + place * d);
      values.push_back(v.data() + place * d);
    }
    std::vector<float> out(static_cast<size_t>(d)), scratch;
    attend_cache(q.data(), out.data(), head, table, bias.data(), d, scratch);
    const auto want = attention_oracle(q.data(), keys, values, bias.data(), d);
    for (int64_t i = 0; i < d; ++i)
      ASSERT_NEAR(out[static_cast<size_t>(i)], want[static_cast<size_t>(i)], 2e-5);
  }
}

constexpr CacheType kCachesInBytes[] = {CacheType::int8, CacheType::fp8};

/// A key and a value [d] of one token of a cache, to which a query of zeros attends: the value as it reads back.
std::vector<float> read_back(const float* x, int64_t d, CacheType type) {
  HugeArena arena;
  const int64_t floats = cached_floats(d, type);
  const auto memory = arena.allocate(2 * floats);
  const CachedHead head{.keys = 0, .values = floats, .type = type};
  const std::vector<float> zeros(static_cast<size_t>(d));
  std::vector<float> out(zeros), scratch;
  append_to_cache(head, memory.get(), zeros.data(), x, d);
  float* const slots[] = {memory.get()};
  attend_cache(zeros.data(), out.data(), head, slots, nullptr, d, scratch);
  return out;
}

std::vector<float> read_back_rows(const std::vector<float>& x, int64_t d, CacheType type) {
  std::vector<float> all;
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(d)) {
    const auto row = read_back(x.data() + at, d, type);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

/// Half a step of int8; of fp8 half a step of 3 bits after the first, or of 2^-9 below 2^-6.
std::string round_trip_difference(const std::vector<float>& x, CacheType type) {
  const auto got = read_back(x.data(), std::ssize(x), type);
  float largest = 1e-30f;
  for (const float each : x) largest = std::max(largest, std::abs(each));
  const float scale = largest / largest_of(type);
  for (size_t i = 0; i < x.size(); ++i) {
    const float limit =
        type == CacheType::int8 ? scale / 2 : std::max(std::abs(x[i]) / 16, scale * 0x1p-10f);
    if (!(std::abs(got[i] - x[i]) <= limit * 1.00001f))
      return fmt::format("{} of {}, element {}: {} for {}", name_of(type), x.size(), i, got[i],
                         x[i]);
  }
  return "";
}

/// Both kinds of attention over a cache in bytes are those over what its vectors read back as. Empty: they are.
std::string cache_difference(const AttentionCase& size, CacheType type) {
  const auto& [queries, length, d] = size;
  auto q = random_floats(queries * d, 7), k = random_floats(length * d, 8),
       v = random_floats(length * d, 9);
  const auto bias = random_floats(length, 10);
  for (int64_t t = 0; t < length; ++t)  // of scales that differ a lot
    for (int64_t i = 0; i < d; ++i) {
      k[t * d + i] *= static_cast<float>(1 + t % 5) / 4;
      v[t * d + i] *= static_cast<float>(1 + t % 7);
    }
  const auto cached_k = read_back_rows(k, d, type), cached_v = read_back_rows(v, d, type);
  HugeArena arena;
  const int64_t floats = cached_floats(d, type);
  const auto shared = arena.allocate(SharedKeys::floats(length, d, type));
  const auto cached = arena.allocate(2 * length * floats);
  const SharedKeys keys = SharedKeys::at(shared.get(), length, d, type);
  const CachedHead head{.keys = 0, .values = length * floats, .type = type};
  std::vector<const float*> key_rows, value_rows;
  std::vector<float*> slots;
  for (int64_t t = 0; t < length; ++t) {
    keys.set(t, k.data() + t * d, v.data() + t * d, d);
    slots.push_back(cached.get() + (t * 7 + 3) % length * floats);
    append_to_cache(head, slots.back(), k.data() + t * d, v.data() + t * d, d);
    key_rows.push_back(cached_k.data() + t * d);
    value_rows.push_back(cached_v.data() + t * d);
  }
  std::vector<float> out(q.size()), of_cache(q.size()), scratch;
  std::vector<SharedQuery> asked;
  for (int64_t r = 0; r < queries; ++r)
    asked.push_back({.query = q.data() + r * d,
                     .out = out.data() + r * d,
                     .limit = 1 + r * 5 % length,
                     .bias = bias.data()});
  attend_shared(asked, keys, d, scratch);
  for (int64_t r = 0; r < queries; ++r) {
    const auto n = asked[static_cast<size_t>(r)].limit;
    attend_cache(q.data() + r * d, of_cache.data() + r * d, head,
                 std::span(slots).first(static_cast<size_t>(n)), bias.data(), d, scratch);
    const auto want =
        attention_oracle(q.data() + r * d, {key_rows.begin(), key_rows.begin() + n},
                         {value_rows.begin(), value_rows.begin() + n}, bias.data(), d);
    for (int64_t i = 0; i < d; ++i)
      for (const auto* got : {&out, &of_cache})
        if (!(std::abs((*got)[r * d + i] - want[i]) <= 2e-4))
          return fmt::format("{} {}, {} tokens of {}, row {} element {}: {} for {}",
                             got == &out ? "shared" : "cached", name_of(type), length, d, r, i,
                             (*got)[r * d + i], want[i]);
  }
  return "";
}

/// Vectors with all kinds of numbers, then attention. Empty: all is as it should be.
std::string caches_difference(CacheType type) {
  for (const int64_t d : {1, 5, 8, 63, 64, 80, 128, 130}) {
    std::vector<float> x = random_floats(d, 5), one(static_cast<size_t>(d), 1e-7f);
    one.back() = 3e4f;
    for (const auto& vector :
         {x, one, std::vector<float>(x.size(), 0.0f), std::vector<float>(x.size(), -1e-38f),
          std::vector<float>(x.size(), 3e38f)})
      if (const auto text = round_trip_difference(vector, type); !text.empty()) return text;
  }
  for (const AttentionCase& size : kAttention)
    if (const auto text = cache_difference(size, type); !text.empty()) return text;
  return "";
}

[[noreturn]] void check_caches_on(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  int failed = 0;
  for (const CacheType type : kCachesInBytes)
    if (const std::string text = caches_difference(type); !text.empty()) {
      fmt::print(stderr, "{}: {}\n", hwy::TargetName(target), text);
      failed = 1;
    }
  std::exit(failed);
}

TEST(DecodeAttentionDeathTest, CachesInBytesAgreeWithTheOracleOnEveryInstructionSet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    SCOPED_TRACE(hwy::TargetName(target));
    EXPECT_EXIT(check_caches_on(target), ::testing::ExitedWithCode(0), "");
  }
}

/// Scores of rounded keys differ by at most sum |q| e; weights then by a factor, values by their own error.
TEST(DecodeAttention, CachesInBytesDifferFromFloatsAsTheirRoundingSays) {
  constexpr int64_t kLength = 40, kDim = 64;
  const auto q = random_floats(kDim, 11), k = random_floats(kLength * kDim, 12),
             v = random_floats(kLength * kDim, 13);
  for (const CacheType type : kCachesInBytes) {
    HugeArena arena;
    const auto attended = [&](CacheType kept) {
      const int64_t floats = cached_floats(kDim, kept);
      const auto memory = arena.allocate(2 * kLength * floats);
      const CachedHead head{.keys = 0, .values = kLength * floats, .type = kept};
      std::vector<float*> slots;
      for (int64_t t = 0; t < kLength; ++t) {
        slots.push_back(memory.get() + t * floats);
        append_to_cache(head, slots.back(), k.data() + t * kDim, v.data() + t * kDim, kDim);
      }
      std::vector<float> out(kDim), scratch;
      attend_cache(q.data(), out.data(), head, slots, nullptr, kDim, scratch);
      return out;
    };
    const auto cached_k = read_back_rows(k, kDim, type), cached_v = read_back_rows(v, kDim, type);
    double of_scores = 0, of_values = 0, largest = 0;
    for (int64_t t = 0; t < kLength; ++t) {
      double of_score = 0;
      for (int64_t i = 0; i < kDim; ++i) {
        of_score += (cached_k[t * kDim + i] - k[t * kDim + i]) * q[i];
        of_values = std::max<double>(of_values, std::abs(cached_v[t * kDim + i] - v[t * kDim + i]));
        largest = std::max<double>(largest, std::abs(v[t * kDim + i]));
      }
      of_scores = std::max(of_scores, std::abs(of_score));
    }
    const auto exact = attended(CacheType::native), got = attended(type);
    double difference = 0;
    for (int64_t i = 0; i < kDim; ++i)
      difference = std::max<double>(difference, std::abs(got[i] - exact[i]));
    EXPECT_LE(difference, largest * (std::exp(2 * of_scores) - 1) + of_values + 1e-5);
    EXPECT_GT(difference, 1e-4) << name_of(type) << " is not rounded";
  }
}

/// In no place a finite number: of the keys, of the values, of either kind of attention.
TEST(DecodeAttention, NumbersThatAreNotFiniteStaySeenInBytes) {
  constexpr int64_t kLength = 3, kDim = 20;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const CacheType type : kCachesInBytes)
    for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()})
      for (const bool in_keys : {false, true})
        for (const size_t at : {size_t{0}, size_t{kDim - 1}}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", name_of(type), bad, in_keys, at));
          HugeArena arena;
          const int64_t floats = cached_floats(kDim, type);
          const auto cached = arena.allocate(2 * kLength * floats),
                     shared = arena.allocate(SharedKeys::floats(kLength, kDim, type));
          const CachedHead head{.keys = 0, .values = kLength * floats, .type = type};
          const SharedKeys keys = SharedKeys::at(shared.get(), kLength, kDim, type);
          std::vector<float*> slots;
          for (int64_t t = 0; t < kLength; ++t) {
            auto key = random_floats(kDim, 1), value = random_floats(kDim, 2);
            if (t == 1) (in_keys ? key : value)[at] = bad;
            slots.push_back(cached.get() + t * floats);
            append_to_cache(head, slots.back(), key.data(), value.data(), kDim);
            keys.set(t, key.data(), value.data(), kDim);
          }
          const auto q = random_floats(kDim, 3);
          std::vector<float> out(kDim), other(kDim), scratch;
          attend_cache(q.data(), out.data(), head, slots, nullptr, kDim, scratch);
          const SharedQuery asked{.query = q.data(), .out = other.data(), .limit = kLength};
          attend_shared({&asked, 1}, keys, kDim, scratch);
          for (size_t i = 0; i < kDim; ++i)
            EXPECT_TRUE(std::isnan(out[i]) && std::isnan(other[i])) << i;
        }
}

TEST(DecodeAttention, CachesInBytesTakeAByteAnElementAndAScale) {
  for (const CacheType type : kCachesInBytes) {
    EXPECT_EQ(4 * cached_floats(64, type), 64 + 4);
    EXPECT_EQ(4 * SharedKeys::floats(128, 64, type), 128 * 2 * (64 + 4));
  }
  EXPECT_EQ(4 * cached_floats(64, CacheType::native), 4 * 64);
  EXPECT_EQ(4 * SharedKeys::floats(128, 64), 128 * 2 * 4 * 64);
}

const std::vector<int64_t> kRowSizes = {1, 2, 15, 16, 17, 255, 1000, 32128};

TEST(Logits, SummariesAndSelectionsAgreeWithSorting) {
  for (int64_t n : kRowSizes) {
    SCOPED_TRACE(n);
    auto row = random_floats(n, static_cast<uint32_t>(n));
    for (float& x : row) x = std::round(x * 50) / 50;  // ties
    std::vector<float> sorted = row, scratch;
    std::sort(sorted.begin(), sorted.end(), std::greater<float>());
    const RowSummary s = summarize(row);
    EXPECT_EQ(s.max, sorted[0]);
    EXPECT_EQ(s.argmax, std::find(row.begin(), row.end(), sorted[0]) - row.begin());
    EXPECT_EQ(argmax(row), s.argmax);
    double sum = 0;
    for (float x : row) sum += std::exp(static_cast<double>(x) - static_cast<double>(s.max));
    EXPECT_NEAR(s.log_sum, std::log(sum), 1e-5);
    for (int64_t k : {1, 2, 8, 40, 300, 1000}) {
      const float kth = kth_largest(row, k, scratch);
      if (k > n) {
        EXPECT_EQ(kth, std::numeric_limits<float>::lowest());
        continue;
      }
      EXPECT_EQ(kth, sorted[static_cast<size_t>(k - 1)]) << k;
      std::vector<int32_t> kept, want;
      indices_at_least(row, kth, kept);
      for (int64_t i = 0; i < n; ++i)
        if (row[static_cast<size_t>(i)] >= kth) want.push_back(static_cast<int32_t>(i));
      EXPECT_EQ(kept, want);
    }
  }
}

TEST(Logits, VectorAndScalarNoiseDrawTheSameToken) {
  for (int64_t n : kRowSizes) {
    const auto row = random_floats(n, 3);
    for (uint32_t draw = 0; draw < 20; ++draw) {
      const Key key = fold_in(key_from_seed(4), draw);
      const uint64_t first = 77 * draw;
      int64_t want = 0;
      float best = -std::numeric_limits<float>::infinity();
      for (int64_t i = 0; i < n; ++i) {
        const float score =
            row[static_cast<size_t>(i)] + gumbel_noise(key, first + static_cast<uint64_t>(i));
        if (score > best) {
          best = score;
          want = i;
        }
      }
      EXPECT_EQ(draw_categorical(row, key, first), want);
    }
  }
}

}  // namespace
}  // namespace quintet
