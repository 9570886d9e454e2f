// Products of few rows with packed weights against plain loops in double.

#include "kernels/prepacked_matmul/prepacked_matmul.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "kernels/cpu/amx.h"
#include "kernels/prepacked_matmul/fetch_queue.h"
#include "tests/decode/plain_loops.h"

namespace quintet {
namespace {

struct Product {
  int64_t rows, k, n;
};
// Fewer and more rows than a group, columns that fill panels and do not, depths of all remainders, also of tiles.
const std::vector<Product> kProducts = {
    {1, 1, 1},    {1, 5, 33},     {2, 64, 64},  {8, 24, 7},   {13, 66, 40},  {14, 32, 96},
    {15, 7, 65},  {32, 128, 130}, {45, 31, 50}, {8, 512, 96}, {1, 64, 330},  {3, 30, 160},
    {6, 41, 160}, {5, 130, 40},   {11, 97, 70}, {33, 95, 64}, {8, 1100, 64}, {3, 600, 64}};

/// Whose tiles products go through, until the object goes.
struct TilesOf {
  explicit TilesOf(amx::Source source) : before(amx::source()) { amx::set_source_for_test(source); }
  ~TilesOf() { amx::set_source_for_test(before); }
  const amx::Source before;
};
/// Nobody's, emulated ones, and the CPU's where it has some.
std::vector<amx::Source> all_sources() {
  std::vector<amx::Source> sources{amx::Source::none, amx::Source::emulated};
  if (amx::source() == amx::Source::cpu) sources.push_back(amx::Source::cpu);
  return sources;
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

/// A thread that is done with its own panels makes those that another, which is late, has left, gates of the same columns
/// together; the next tile of each is named.
TEST(PackedMatmul, ThreadsMakeWhatOthersLeave) {
  constexpr int64_t kDepth = 24;
  const int64_t panels = 9, n = panels * panel_width();
  const auto w = random_floats(kDepth * n, 2);
  HugeArena arena;
  const PackedMatrix m = PackedMatrix::pack(w.data(), kDepth, n, arena);
  for (const int64_t rows : {1, 14})  // through two panels at a time and one
    for (const int64_t unit : {1, 2}) {
      const auto x = random_floats(rows * kDepth, 1);
      PackedRows packed;
      packed.pack(x.data(), rows, kDepth);
      std::vector<float> whole(static_cast<size_t>(rows * n)), shared_out(whole.size());
      multiply(packed, m, {0, panels},
               [&](const Tile& tile) { store_tile(tile, whole.data(), n); });
      SharedPanels shared(2);
      PanelSource late(shared, 0, {0, 8}, unit);
      const PanelRange first = late.take(unit);  // and is late
      int64_t next_column = -1, made = 0;
      const auto store = [&](const Tile& tile) {
        if (made > 0 && tile.row == 0 && rows == 14) {
          EXPECT_EQ(tile.column, next_column);
        }
        next_column = tile.next_column;
        ++made;
        store_tile(tile, shared_out.data(), n);
      };
      multiply(packed, m, PanelSource(shared, 1, {8, panels}, unit), store);
      EXPECT_EQ(late.take(1).count(), 0);
      made = 0;
      multiply(packed, m, first, store);
      EXPECT_EQ(shared_out, whole) << rows << " rows, units of " << unit;
    }
}

constexpr WeightType kAllTypes[] = {WeightType::f32, WeightType::bf16, WeightType::int8,
                                    WeightType::int8_dynamic, WeightType::fp8};
constexpr auto kNarrowTypes = std::span(kAllTypes).subspan<1>();

/// x [rows, k] times a matrix.
std::vector<float> product_of(PackedRows& packed, const float* x, int64_t rows,
                              const PackedMatrix& w) {
  packed.pack(x, rows, w.k());
  std::vector<float> y(static_cast<size_t>(rows * w.n()));
  multiply(packed, w, {0, w.panels()},
           [&](const Tile& tile) { store_tile(tile, y.data(), w.n()); });
  return y;
}
std::vector<float> product_of(const float* x, int64_t rows, const PackedMatrix& w) {
  PackedRows packed;
  return product_of(packed, x, rows, w);
}

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
  const auto y = product_of(x.data(), rows, m);
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
std::string difference_among_rows(WeightType type, int64_t k) {
  const int64_t n = 5 * panel_width() - 3, most = 33;  // more than a group has
  const auto x = random_floats(most * k, 1), w = random_floats(k * n, 2);
  HugeArena arena;
  const PackedMatrix m = PackedMatrix::pack(w.data(), k, n, arena, type);
  for (int64_t rows = 2; rows <= most; ++rows) {
    const auto together = product_of(x.data(), rows, m);
    for (int64_t r = 0; r < rows; ++r)
      if (!std::ranges::equal(product_of(x.data() + r * k, 1, m),
                              std::span(together).subspan(r * n, n)))
        return fmt::format("row {} alone and among {} rows, {} deep", r, rows, k);
  }
  return "";
}

/// A row that has a number that is not finite has no finite results, and others are as without it.
std::string difference_beside_nan(WeightType type, int64_t k, float number) {
  const int64_t n = panel_width(), rows = 3;
  auto x = random_floats(rows * k, 1);
  const auto w = random_floats(k * n, 2);
  HugeArena arena;
  const PackedMatrix m = PackedMatrix::pack(w.data(), k, n, arena, type);
  const auto before = product_of(x.data(), rows, m);
  x[k + 3] = number;
  const auto y = product_of(x.data(), rows, m);
  for (int64_t i = 0; i < rows * n; ++i)
    if (i / n == 1 ? std::isfinite(y[i]) : y[i] != before[i])
      return fmt::format("row {} beside {}, {} deep: {} for {}", i / n, number, k, y[i], before[i]);
  return "";
}

/// Beside one number that is much larger others of a row keep what is above 2^-24 of it (row_pieces.h). Numbers are such that
/// digits carry, too.
std::string difference_beside_large(WeightType type, int64_t k) {
  const int64_t n = panel_width();
  const auto w = random_floats(k * n, 2);
  HugeArena arena;
  const PackedMatrix m = PackedMatrix::pack(w.data(), k, n, arena, type);
  std::vector<float> column(static_cast<size_t>(k));
  for (const float large : {1.0F, -1.0F, 1e3F, 1e6F}) {
    auto x = random_floats(k, 1);
    for (int64_t i = 0; i < k; i += 3) x[i] = large * (static_cast<float>(i) + 0.5F) / 65536;
    x[5] = large;
    const auto y = product_of(x.data(), 1, m);
    for (int64_t c = 0; c < n; ++c) {
      m.column(c, column.data());
      double exact = 0, limit = 0, weights = 0;
      for (int64_t i = 0; i < k; ++i) {
        exact += static_cast<double>(x[i]) * column[i];
        limit += 1e-6 * std::abs(x[i] * column[i]);
        weights += std::abs(column[i]);
      }
      if (type == WeightType::int8)
        limit += 0x1.01p-24 *
                 std::abs(*std::ranges::max_element(x, {}, [](float v) { return std::abs(v); })) *
                 weights;
      if (!(std::abs(y[c] - exact) <= limit))
        return fmt::format("beside {}, {} deep, column {}: {} for {}, within {}", large, k, c, y[c],
                           exact, limit);
    }
  }
  return "";
}

/// On one instruction set, in a process of its own, as widths are fixed at their first use.
[[noreturn]] void check_on(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  int failed = 0;
  for (const amx::Source source : all_sources()) {
    const TilesOf made_by(source);
    const auto expect_empty = [&](WeightType type, const std::string& text) {
      if (text.empty()) return;
      fmt::print(stderr, "{}, tiles {}, {}: {}\n", hwy::TargetName(target),
                 static_cast<int>(source), name_of(type), text);
      failed = 1;
    };
    for (const WeightType type : kNarrowTypes)
      for (const Product& size : kProducts)
        if (const std::string text = narrow_difference(size, type); !text.empty())
          expect_empty(type, fmt::format("{} x {} x {}: {}", size.rows, size.k, size.n, text));
    for (const WeightType type : kAllTypes)
      for (const int64_t k : {37, 131}) {
        expect_empty(type, difference_among_rows(type, k));
        if (type != WeightType::int8_dynamic) expect_empty(type, difference_beside_large(type, k));
        for (const float number :
             {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
              std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
          expect_empty(type, difference_beside_nan(type, k, number));
      }
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

/// int8_dynamic's sums are exact; other products differ by the tiles' order of sums.
TEST(PackedMatmul, TilesOfTheCpuAndEmulatedOnesAgreeAndDynamicRowsAreThoseOfVectors) {
  if (panel_width() != 32) GTEST_SKIP() << "needs AVX-512: tiles take panels of 32 columns";
  for (const Product& size : kProducts) {
    const auto x = random_floats(size.rows * size.k, 1), w = random_floats(size.k * size.n, 2);
    HugeArena arena;
    for (const WeightType type : kNarrowTypes) {
      const PackedMatrix m = PackedMatrix::pack(w.data(), size.k, size.n, arena, type);
      std::vector<std::vector<float>> products;
      for (const amx::Source source : all_sources()) {
        const TilesOf made_by(source);
        products.push_back(product_of(x.data(), size.rows, m));
      }
      if (type == WeightType::int8_dynamic) {
        EXPECT_EQ(products[0], products[1]) << size.rows << " " << size.k;
      }
      if (products.size() == 3) {
        EXPECT_EQ(products[1], products[2]) << name_of(type) << " " << size.rows << " " << size.k;
      }
    }
  }
}

TEST(PackedMatmul, RowsMeetWeightsOfAllTypesByTurns) {
  constexpr int64_t kRows = 9, kDepth = 70;
  const int64_t n = panel_width();
  const auto x = random_floats(kRows * kDepth, 1), w = random_floats(kDepth * n, 2);
  for (const amx::Source source : all_sources()) {
    const TilesOf made_by(source);
    HugeArena arena;
    PackedRows rows;
    rows.pack(x.data(), kRows, kDepth);
    for (int turn = 0; turn < 2; ++turn)
      for (const WeightType type : kAllTypes) {
        const PackedMatrix m = PackedMatrix::pack(w.data(), kDepth, n, arena, type);
        std::vector<float> y(static_cast<size_t>(kRows * n));
        multiply(rows, m, {0, 1}, [&](const Tile& tile) { store_tile(tile, y.data(), n); });
        EXPECT_EQ(y, product_of(x.data(), kRows, m)) << name_of(type);
      }
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

TEST(PackedMatmul, DynamicWeightsWhoseSumsDoNotFitAreRefused) {
  HugeArena arena;
  EXPECT_NO_THROW(PackedMatrix(kMostInt8Depth, 1, arena, WeightType::int8_dynamic));
  EXPECT_THROW(PackedMatrix(kMostInt8Depth + 1, 1, arena, WeightType::int8_dynamic), Error);
  // int8's are made in float32, or where they fit of digits in tiles.
  for (const amx::Source source : all_sources())
    for (const int64_t k : {kMostInt8Depth - 3, kMostInt8Depth + 1})
      for (const float number : {1.0F, -1.0F}) {
        const TilesOf made_by(source);
        const std::vector<float> x(static_cast<size_t>(k), number), w(x.size(), 1.0F);
        const auto y =
            product_of(x.data(), 1, PackedMatrix::pack(w.data(), k, 1, arena, WeightType::int8));
        EXPECT_NEAR(y[0], number * static_cast<float>(k), 1e-3 * static_cast<double>(k));
      }
}

TEST(PackedMatmul, RowsArePackedAnew) {
  PackedRows rows;
  for (const amx::Source source : all_sources())
    for (const auto& [count, k] : {std::pair<int64_t, int64_t>{9, 70}, {8, 130}, {8, 70}}) {
      const TilesOf made_by(source);
      const auto x = random_floats(count * k, static_cast<uint32_t>(k)),
                 w = random_floats(k * 32, 2);
      HugeArena arena;
      for (const WeightType type : kAllTypes) {
        const PackedMatrix m = PackedMatrix::pack(w.data(), k, 32, arena, type);
        EXPECT_EQ(product_of(rows, x.data(), count, m), product_of(x.data(), count, m))
            << name_of(type);
        const std::vector<int64_t> order{2, 0, 2};
        rows.pack_gathered(x.data(), order, k);
        std::vector<float> gathered(order.size() * static_cast<size_t>(k)), y(order.size() * 32);
        rows.unpack(gathered.data());
        multiply(rows, m, {0, m.panels()},
                 [&](const Tile& tile) { store_tile(tile, y.data(), 32); });
        EXPECT_EQ(y, product_of(gathered.data(), 3, m)) << name_of(type);
        EXPECT_TRUE(std::equal(x.begin(), x.begin() + k, gathered.begin() + k));
      }
    }
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
  for (const WeightType type : kAllTypes)
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

/// Depths, and whose tiles the products go through that are deep enough for them.
class PackedMatmulOrder : public ::testing::TestWithParam<std::pair<amx::Source, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(, PackedMatmulOrder,
                         ::testing::Values(std::pair{amx::Source::none, 24},
                                           std::pair{amx::Source::emulated, 64},
                                           std::pair{amx::Source::emulated, 200}));

TEST_P(PackedMatmulOrder, FetchesALineBesideThePanelsEveryFourSteps) {
  constexpr int64_t kRows = 14;  // too many for two panels at a time
  const auto [source, depth] = GetParam();
  const TilesOf made_by(source);
  const int64_t n = 3 * panel_width();
  const auto x = random_floats(kRows * depth, 8), w = random_floats(depth * n, 9);
  const std::vector<char> memory(1024 * FetchQueue::kLine);
  for (const WeightType type : {WeightType::f32, WeightType::int8, WeightType::int8_dynamic}) {
    HugeArena arena;
    const PackedMatrix packed = PackedMatrix::pack(w.data(), depth, n, arena, type);
    PackedRows rows;
    rows.pack(x.data(), kRows, depth);
    FetchQueue queue;
    queue.add(memory.data(), static_cast<int64_t>(memory.size()));
    multiply(
        rows, packed, {0, 3}, [](const Tile&) {}, {}, &queue);
    // Each time for a group of rows, of which other instruction sets have more.
    EXPECT_EQ(queue.next_line(), memory.data() + 3 * row_groups(kRows, depth, type).count *
                                                     (depth / 4) * FetchQueue::kLine)
        << name_of(type);
  }
}

TEST_P(PackedMatmulOrder, FetchesWhatTheNextProductReadsFirstInPlaceOfOtherLines) {
  constexpr int64_t kRows = 14;
  const auto [source, depth] = GetParam();
  const TilesOf made_by(source);
  const auto x = random_floats(kRows * depth, 8), w = random_floats(depth * 4 * panel_width(), 9);
  const std::vector<char> memory(1024 * FetchQueue::kLine);
  HugeArena arena;
  const PackedMatrix packed =
      PackedMatrix::pack(w.data(), depth, 4 * panel_width(), arena, WeightType::int8);
  PackedRows rows;
  rows.pack(x.data(), kRows, depth);
  const int64_t places =
      row_groups(kRows, depth, WeightType::int8).count * (depth / 4);  // of a panel
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

TEST_P(PackedMatmulOrder, ATileNamesTheOneAfterIt) {
  const auto [source, depth] = GetParam();
  const TilesOf made_by(source);
  const int64_t width = panel_width(), n = 5 * width - 3;
  for (const auto& [count, type] : {std::pair{1, WeightType::f32},
                                    {8, WeightType::f32},
                                    {8, WeightType::bf16},
                                    {14, WeightType::int8},
                                    {45, WeightType::f32}}) {
    const auto x = random_floats(count * depth, 8), w = random_floats(depth * n, 9);
    HugeArena arena;
    const PackedMatrix packed = PackedMatrix::pack(w.data(), depth, n, arena, type);
    PackedRows rows;
    rows.pack(x.data(), count, depth);
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

}  // namespace
}  // namespace quintet
