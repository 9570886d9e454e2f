// Caches in 8 bits on a device: bytes and scales are the CPU's, whose rounding has its own tests, and attention over
// them agrees with the CPU's over the same bytes: odd sizes, beams, chunks, both types, both element types.

#include <numeric>

#include "tests/gpu_ops/decode_memory.h"

namespace quintet::testing {
namespace {

constexpr CacheType kTypes[] = {CacheType::int8, CacheType::fp8};

/// What the CPU keeps of a vector: its bytes and its scale.
struct OfCpu {
  std::vector<uint8_t> bytes;
  float scale;

  OfCpu(const std::vector<float>& x, CacheType type) {
    const auto d = std::ssize(x);
    AlignedFloats memory(2 * cached_floats(d, type));
    append_to_cache({.keys = 0, .values = cached_floats(d, type), .type = type}, memory.start,
                    x.data(), x.data(), d);
    scale = *memory.start;
    const auto* first = reinterpret_cast<const uint8_t*>(memory.start + 1);
    bytes.assign(first, first + d);
  }
};

/// Vectors [vectors, head_dim] of keys and values on the device, and what they were before.
struct BytesCache {
  OnDevice<uint8_t> keys, values;
  OnDevice<float> key_scales, value_scales;

  BytesCache(Device& device, int64_t vectors, int64_t head_dim)
      : keys(device, std::vector<uint8_t>(static_cast<size_t>(vectors * head_dim), 0x55)),
        values(device, std::vector<uint8_t>(static_cast<size_t>(vectors * head_dim), 0x55)),
        key_scales(device, std::vector<float>(static_cast<size_t>(vectors), -1.0f)),
        value_scales(device, std::vector<float>(static_cast<size_t>(vectors), -1.0f)) {}
  DecodeCache at(CacheType type, int64_t sequence, int64_t head, int64_t token,
                 int64_t max_length) const {
    return {.keys = keys.data(),
            .values = values.data(),
            .sequence_stride = sequence,
            .head_stride = head,
            .token_stride = token,
            .max_length = max_length,
            .type = type,
            .key_scales = key_scales.data(),
            .value_scales = value_scales.data()};
  }
};

class CacheInBytes
    : public DeviceTest,
      public ::testing::WithParamInterface<std::tuple<int64_t, DType, CacheType, uint64_t>> {
 protected:
  CacheInBytes() { emulated::simt::emulator::set_seed(std::get<3>(GetParam())); }
  int64_t head_dim() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  CacheType type() const { return std::get<2>(GetParam()); }
  Elements drawn(int64_t vectors, float deviation = 1) {
    return Elements(vectors * head_dim(), dtype(), &random_, deviation);
  }
  std::vector<float> vector(const Elements& from, int64_t index) const {
    return from.part(index * head_dim(), head_dim());
  }
  /// Keys and values [tokens, heads, head_dim] to slots of a pool.
  void store(const DecodeCache& pool, const Elements& keys, const Elements& values, int64_t heads,
             const std::vector<int32_t>& slots) {
    const OnDevice<int32_t> there(device(), slots);
    device().kernels().store_paged({.dtype = dtype(),
                                    .pool = pool,
                                    .tokens = std::ssize(slots),
                                    .heads = heads,
                                    .head_dim = head_dim(),
                                    .keys = keys.data(),
                                    .values = values.data(),
                                    .stride = heads * head_dim(),
                                    .slots = there.data()},
                                   device().stream());
    device().synchronize();
  }
  /// All of a contiguous cache.
  void fill(const BytesCache& cache, const Elements& keys, const Elements& values,
            int64_t vectors) {
    std::vector<int32_t> slots(static_cast<size_t>(vectors));
    std::iota(slots.begin(), slots.end(), 0);
    store(cache.at(type(), 0, head_dim(), head_dim(), vectors), keys, values, 1, slots);
  }
  DecodeRows rows(int64_t items, int64_t decodes, int64_t heads, const Elements& query,
                  const Elements& out) const {
    return {.dtype = dtype(),
            .items = items,
            .decodes = decodes,
            .heads = heads,
            .head_dim = head_dim(),
            .query = query.data(),
            .out = out.data(),
            .query_stride = heads * head_dim(),
            .out_stride = heads * head_dim()};
  }
  /// The CPU's attention over these vectors, in bytes too.
  std::vector<float> want(const std::vector<float>& query,
                          const std::vector<std::vector<float>>& keys,
                          const std::vector<std::vector<float>>& values,
                          const float* bias = nullptr) {
    const int64_t floats = cached_floats(head_dim(), type()), n = std::ssize(keys);
    AlignedFloats memory(2 * n * floats);
    const CachedHead head{.keys = 0, .values = n * floats, .type = type()};
    std::vector<float*> slots;
    for (int64_t t = 0; t < n; ++t) {
      slots.push_back(memory.start + t * floats);
      append_to_cache(head, slots.back(), keys[static_cast<size_t>(t)].data(),
                      values[static_cast<size_t>(t)].data(), head_dim());
    }
    std::vector<float> out(static_cast<size_t>(head_dim())), scratch;
    attend_cache(query.data(), out.data(), head, slots, bias, head_dim(), scratch);
    return out;
  }

  std::mt19937 random_{11};
};

TEST_P(CacheInBytes, IsStoredAsTheCpuStoresIt) {
  constexpr int64_t kTokens = 5, kHeads = 3, kSlots = 9;
  const Elements keys = drawn(kTokens * kHeads), values = drawn(kTokens * kHeads, 300);
  const BytesCache cache(device(), kSlots * kHeads, head_dim());
  const std::vector<int32_t> slots{7, 0, -1, 3, 8};
  store(cache.at(type(), 0, head_dim(), kHeads * head_dim(), kSlots), keys, values, kHeads, slots);
  const auto expect = [&](const OnDevice<uint8_t>& bytes, const OnDevice<float>& scales,
                          const Elements& from) {
    const auto got = bytes.back();
    const auto got_scales = scales.back();
    std::vector<uint8_t> wanted(got.size(), 0x55);
    std::vector<float> wanted_scales(got_scales.size(), -1.0f);
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t h = 0; h < kHeads && slots[static_cast<size_t>(t)] >= 0; ++h) {
        const OfCpu cpu(vector(from, t * kHeads + h), type());
        const int64_t at = slots[static_cast<size_t>(t)] * kHeads + h;
        wanted_scales[static_cast<size_t>(at)] = cpu.scale;
        std::ranges::copy(cpu.bytes, wanted.begin() + at * head_dim());
      }
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(got_scales, wanted_scales);
  };
  expect(cache.keys, cache.key_scales, keys);
  expect(cache.values, cache.value_scales, values);
}

TEST_P(CacheInBytes, CrossReadsTheItemsTokens) {
  constexpr int64_t kItems = 2, kDecodes = 3, kHeads = 2, kLength = 37;
  const Elements keys = drawn(kItems * kLength * kHeads, 0.5f),
                 values = drawn(kItems * kLength * kHeads);
  const Elements query = drawn(kItems * kDecodes * kHeads, 0.7f);
  Elements out(kItems * kDecodes * kHeads * head_dim(), dtype(), nullptr);
  const BytesCache cache(device(), kItems * kLength * kHeads, head_dim());
  fill(cache, keys, values, kItems * kLength * kHeads);
  const std::vector<int32_t> lengths{kLength, kLength - 9};
  const OnDevice<int32_t> there(device(), lengths);
  device().kernels().decode_cross({.rows = rows(kItems, kDecodes, kHeads, query, out),
                                   .cache = cache.at(type(), kLength * kHeads * head_dim(),
                                                     head_dim(), kHeads * head_dim(), kLength),
                                   .lengths = there.data()},
                                  device().stream());
  out.fetch();
  for (int64_t row = 0; row < kItems * kDecodes; ++row)
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t item = row / kDecodes;
      std::vector<std::vector<float>> k, v;
      for (int64_t t = 0; t < lengths[static_cast<size_t>(item)]; ++t) {
        k.push_back(vector(keys, (item * kLength + t) * kHeads + head));
        v.push_back(vector(values, (item * kLength + t) * kHeads + head));
      }
      SCOPED_TRACE(fmt::format("row {} head {}", row, head));
      expect_close(out, (row * kHeads + head) * head_dim(),
                   want(vector(query, row * kHeads + head), k, v), dtype());
    }
}

/// The new token's bytes and scale among them; 300 tokens, which are cut into chunks.
TEST_P(CacheInBytes, SelfAppendsAndReadsOtherBeamsTokens) {
  constexpr int64_t kDecodes = 3, kHeads = 2, kLength = 300, kAt = 280;
  const int64_t vectors = kDecodes * kHeads * kLength;
  const Elements keys = drawn(vectors, 0.5f), values = drawn(vectors);
  const Elements query = drawn(kDecodes * kHeads, 0.7f), fresh = drawn(kDecodes * 2 * kHeads);
  Elements out(kDecodes * kHeads * head_dim(), dtype(), nullptr);
  const BytesCache cache(device(), vectors, head_dim());
  fill(cache, keys, values, vectors);
  const OnDevice<int32_t> positions(device(), std::vector<int32_t>(kDecodes, kAt));
  std::vector<uint16_t> sources;
  for (int64_t i = 0; i < kDecodes * kLength; ++i)
    sources.push_back(static_cast<uint16_t>(random_() % kDecodes));
  const OnDevice<uint16_t> there(device(), sources);
  const std::vector<float> bias{0.5f, 0.25f, 1.0f, 0.125f};  // [heads, 2]
  const OnDevice<float> biases(device(), bias);
  device().kernels().decode_self(
      {.rows = rows(1, kDecodes, kHeads, query, out),
       .cache = cache.at(type(), kHeads * kLength * head_dim(), kLength * head_dim(), head_dim(),
                         kLength),
       .key = fresh.data(),
       .value = static_cast<std::byte*>(fresh.data()) + kHeads * head_dim() * size_of(dtype()),
       .key_stride = 2 * kHeads * head_dim(),
       .positions = positions.data(),
       .sources = there.data(),
       .bias = biases.data(),
       .biases = 2},
      device().stream());
  out.fetch();
  const auto written = cache.key_scales.back();
  for (int64_t row = 0; row < kDecodes; ++row)
    for (int64_t head = 0; head < kHeads; ++head) {
      SCOPED_TRACE(fmt::format("row {} head {}", row, head));
      const auto new_key = vector(fresh, row * 2 * kHeads + head),
                 new_value = vector(fresh, (row * 2 + 1) * kHeads + head);
      EXPECT_EQ(written[static_cast<size_t>((row * kHeads + head) * kLength + kAt)],
                OfCpu(new_key, type()).scale);
      std::vector<std::vector<float>> k, v;
      std::vector<float> added;
      for (int64_t t = 0; t < kAt; ++t) {
        const int64_t from = sources[static_cast<size_t>(row * kLength + t)];
        k.push_back(vector(keys, (from * kHeads + head) * kLength + t));
        v.push_back(vector(values, (from * kHeads + head) * kLength + t));
        added.push_back(bias[static_cast<size_t>(head * 2 + 1)]);
      }
      k.push_back(new_key), v.push_back(new_value);
      added.push_back(bias[static_cast<size_t>(head * 2)]);
      expect_close(out, (row * kHeads + head) * head_dim(),
                   want(vector(query, row * kHeads + head), k, v, added.data()), dtype());
    }
}

/// A group that appends, one of three rows that does not, by two launches over one pool.
TEST_P(CacheInBytes, APoolIsReadWhereverItsTokensStand) {
  constexpr int64_t kHeads = 2, kSlots = 40, kTokens = 21, kRows = 3;
  const Elements keys = drawn(kTokens * kHeads, 0.5f), values = drawn(kTokens * kHeads);
  const Elements query = drawn(kRows * kHeads, 0.7f), fresh = drawn(2 * kHeads);
  const BytesCache cache(device(), kSlots * kHeads, head_dim());
  const DecodeCache pool = cache.at(type(), 0, head_dim(), kHeads * head_dim(), kSlots);
  std::vector<int32_t> slots(kSlots);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random_);
  slots.resize(kTokens + 1);
  store(pool, keys, values, kHeads, {slots.begin(), slots.end() - 1});
  const OnDevice<int32_t> there(device(), slots);
  for (const bool appends : {true, false}) {
    SCOPED_TRACE(appends);
    Elements out(kRows * kHeads * head_dim(), dtype(), nullptr);
    const int64_t length = appends ? kTokens + 1 : kTokens, count = appends ? 1 : kRows;
    const OnDevice<PagedGroup> groups(
        device(), std::vector<PagedGroup>{{.slots = there.data(),
                                           .length = static_cast<int32_t>(length),
                                           .row = 0,
                                           .rows = static_cast<int32_t>(count)}});
    DecodePaged a{.rows = rows(1, appends ? 1 : kMostGroupRows, kHeads, query, out),
                  .pool = pool,
                  .groups = groups.data()};
    if (appends) {
      a.key = fresh.data();
      a.value = static_cast<std::byte*>(fresh.data()) + kHeads * head_dim() * size_of(dtype());
      a.key_stride = 2 * kHeads * head_dim();
    }
    device().kernels().decode_paged(a, device().stream());
    out.fetch();
    for (int64_t row = 0; row < count; ++row)
      for (int64_t head = 0; head < kHeads; ++head) {
        std::vector<std::vector<float>> k, v;
        for (int64_t t = 0; t < kTokens; ++t) {
          k.push_back(vector(keys, t * kHeads + head));
          v.push_back(vector(values, t * kHeads + head));
        }
        if (appends) k.push_back(vector(fresh, head)), v.push_back(vector(fresh, kHeads + head));
        SCOPED_TRACE(fmt::format("row {} head {}", row, head));
        expect_close(out, (row * kHeads + head) * head_dim(),
                     want(vector(query, row * kHeads + head), k, v), dtype());
      }
  }
}

INSTANTIATE_TEST_SUITE_P(, CacheInBytes,
                         ::testing::Combine(::testing::Values(3, 20, 64, 104),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::ValuesIn(kTypes),
                                            ::testing::ValuesIn(kSchedules)),
                         [](const auto& named) {
                           return fmt::format(
                               "Head{}{}{}Seed{}", std::get<0>(named.param),
                               std::get<1>(named.param) == DType::bf16 ? "Bf16" : "F32",
                               name_of(std::get<2>(named.param)), std::get<3>(named.param));
                         });

/// A vector with a number that is not finite has no scale, and what attends to it is NaN.
TEST_F(DeviceTest, CachesInBytesShowNumbersThatAreNotFinite) {
  constexpr int64_t kDim = 64;
  for (const CacheType type : kTypes)
    for (const float bad : {INFINITY, -INFINITY, NAN})
      for (const bool in_key : {true, false}) {
        std::vector<float> key(2 * kDim, 0.5f), value(2 * kDim, 0.25f);
        (in_key ? key : value)[kDim + 63] = bad;
        const OnDevice<float> keys(device(), key), values(device(), value),
            query(device(), std::vector<float>(kDim, 0.1f)),
            out(device(), std::vector<float>(kDim, 0.0f));
        const BytesCache cache(device(), 2, kDim);
        const DecodeCache pool = cache.at(type, 0, kDim, kDim, 2);
        const OnDevice<int32_t> slots(device(), std::vector<int32_t>{0, 1});
        device().kernels().store_paged({.dtype = DType::f32,
                                        .pool = pool,
                                        .tokens = 2,
                                        .heads = 1,
                                        .head_dim = kDim,
                                        .keys = keys.data(),
                                        .values = values.data(),
                                        .stride = kDim,
                                        .slots = slots.data()},
                                       device().stream());
        const OnDevice<PagedGroup> group(
            device(),
            std::vector<PagedGroup>{{.slots = slots.data(), .length = 2, .row = 0, .rows = 1}});
        device().kernels().decode_paged({.rows = {.dtype = DType::f32,
                                                  .items = 1,
                                                  .decodes = 1,
                                                  .heads = 1,
                                                  .head_dim = kDim,
                                                  .query = query.data(),
                                                  .out = out.data(),
                                                  .query_stride = kDim,
                                                  .out_stride = kDim},
                                         .pool = pool,
                                         .groups = group.data()},
                                        device().stream());
        for (const float x : out.back()) EXPECT_TRUE(std::isnan(x)) << name_of(type) << bad;
      }
}

}  // namespace
}  // namespace quintet::testing
