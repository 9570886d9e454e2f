// The kernels of generation's attention and choices against plain loops in double.

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/decode_attention/decode_attention.h"
#include "kernels/logits/logits.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "tests/decode/plain_loops.h"

namespace quintet {
namespace {

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
