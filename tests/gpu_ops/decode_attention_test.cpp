// Attention of generation on a device against the CPU's, which has its own tests against
// loops in double: caches of odd sizes, beams whose history lies in other beams' slots, both
// element types, chunked and not, three schedules.

#include "tests/gpu_ops/decode_memory.h"

namespace quintet::testing {
namespace {

struct Sizes {
  const char* name;
  int64_t items, decodes, heads, head_dim, length;
};
const Sizes kSizes[] = {{"Base", 2, 1, 2, 64, 37},           {"Beams", 1, 4, 2, 64, 70},
                        {"ManyBeams", 1, 6, 1, 64, 9},       {"Chunks", 1, 1, 1, 64, 300},
                        {"ChunksOfBeams", 1, 3, 1, 32, 200}, {"Wide", 1, 2, 1, 128, 33},
                        {"Widest", 1, 1, 1, 104, 20},        {"Odd", 2, 2, 3, 3, 11},
                        {"OneToken", 3, 1, 2, 16, 1}};

class DecodeAttention : public DeviceTest,
                        public ::testing::WithParamInterface<std::tuple<Sizes, DType, uint64_t>> {
 protected:
  DecodeAttention() { emulated::simt::emulator::set_seed(std::get<2>(GetParam())); }
  const Sizes& sizes() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  int64_t rows() const { return sizes().items * sizes().decodes; }
  int64_t width() const { return sizes().heads * sizes().head_dim; }
};

TEST_P(DecodeAttention, CrossReadsTheItemsTokens) {
  const auto [name, items, decodes, heads, head_dim, length] = sizes();
  std::mt19937 random(5);
  // Keys and values as the projection leaves them: [items, length, heads, head_dim].
  const Elements keys(items * length * width(), dtype(), &random, 0.5f);
  const Elements values(items * length * width(), dtype(), &random);
  const int64_t query_stride = width() + 16 * 8;  // queries lie in wider rows
  const Elements query(rows() * query_stride, dtype(), &random, 0.7f);
  Elements out(rows() * width(), dtype(), nullptr);
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < items; ++i)
    lengths.push_back(static_cast<int32_t>(std::max<int64_t>(1, length - 5 * i)));
  const OnDevice<int32_t> their_lengths(device(), lengths);
  DecodeCross a{.rows = {.dtype = dtype(),
                         .items = items,
                         .decodes = decodes,
                         .heads = heads,
                         .head_dim = head_dim,
                         .query = query.data(),
                         .out = out.data(),
                         .query_stride = query_stride,
                         .out_stride = width()},
                .cache = {.keys = keys.data(),
                          .values = values.data(),
                          .sequence_stride = length * width(),
                          .head_stride = head_dim,
                          .token_stride = width(),
                          .max_length = length},
                .lengths = their_lengths.data()};
  run_behind_writers(
      device(), [&] { device().kernels().decode_cross(a, device().stream()); }, query.memory());
  out.fetch();
  std::vector<float> scratch;
  for (int64_t item = 0; item < items; ++item)
    for (int64_t head = 0; head < heads; ++head) {
      AlignedFloats memory(SharedKeys::floats(length, head_dim));
      const SharedKeys shared = SharedKeys::at(memory.start, length, head_dim);
      for (int64_t t = 0; t < length; ++t) {
        const int64_t at = (item * length + t) * width() + head * head_dim;
        shared.set(t, keys.part(at, head_dim).data(), values.part(at, head_dim).data(), head_dim);
      }
      for (int64_t d = 0; d < decodes; ++d) {
        const int64_t row = item * decodes + d;
        const auto asked = query.part(row * query_stride + head * head_dim, head_dim);
        std::vector<float> want(static_cast<size_t>(head_dim));
        const SharedQuery one{asked.data(), want.data(), lengths[static_cast<size_t>(item)],
                              nullptr};
        attend_shared({&one, 1}, shared, head_dim, scratch);
        SCOPED_TRACE(fmt::format("row {} head {}", row, head));
        expect_close(out, row * width() + head * head_dim, want, dtype());
      }
    }
}

/// A cache in which rows have written tokens and beams have changed rows.
struct History {
  std::vector<int32_t> positions;
  std::vector<uint16_t> sources;  // [rows, max_length]
};

/// Rows of an item stand at one position, as beams do; the last item's behind the end of its cache.
History random_history(const Sizes& s, std::mt19937& random) {
  History h;
  const auto length = static_cast<uint32_t>(s.length);
  for (int64_t item = 0; item < s.items; ++item) {
    const bool is_full = item == s.items - 1 && s.items > 1;
    const auto drawn = static_cast<uint32_t>(random() % length);
    const uint32_t position = is_full ? length + 2 : item == 0 ? length - 1 : drawn;
    for (int64_t d = 0; d < s.decodes; ++d) {
      h.positions.push_back(static_cast<int32_t>(position));
      for (int64_t t = 0; t < s.length; ++t)
        h.sources.push_back(static_cast<uint16_t>(random() % static_cast<uint32_t>(s.decodes)));
    }
  }
  return h;
}

TEST_P(DecodeAttention, SelfAppendsAndReadsOtherBeamsTokens) {
  const auto [name, items, decodes, heads, head_dim, length] = sizes();
  std::mt19937 random(6);
  const History history = random_history(sizes(), random);
  const int64_t biases = length > 20 ? 13 : length + 3;
  std::vector<float> bias;
  for (int64_t i = 0; i < heads * biases; ++i)
    bias.push_back(0.1f * static_cast<float>(random() % 30));
  // [rows, heads, length, head_dim]
  const int64_t slot = heads * length * head_dim, all = rows() * slot;
  Elements keys(all, dtype(), &random, 0.5f), values(all, dtype(), &random);
  const Elements query(rows() * width(), dtype(), &random, 0.7f);
  const Elements fresh(rows() * 2 * width(), dtype(), &random, 0.7f);
  Elements out(rows() * width(), dtype(), nullptr);
  const OnDevice<int32_t> positions(device(), history.positions);
  const OnDevice<uint16_t> sources(device(), history.sources);
  const OnDevice<float> biases_there(device(), bias);
  const auto element = [&](void* p, int64_t i) {
    return static_cast<std::byte*>(p) + i * size_of(dtype());
  };
  const DecodeSelf a{.rows = {.dtype = dtype(),
                              .items = items,
                              .decodes = decodes,
                              .heads = heads,
                              .head_dim = head_dim,
                              .query = query.data(),
                              .out = out.data(),
                              .query_stride = width(),
                              .out_stride = width()},
                     .cache = {.keys = keys.data(),
                               .values = values.data(),
                               .sequence_stride = slot,
                               .head_stride = length * head_dim,
                               .token_stride = head_dim,
                               .max_length = length},
                     .key = fresh.data(),
                     .value = element(fresh.data(), width()),
                     .key_stride = 2 * width(),
                     .positions = positions.data(),
                     .sources = sources.data(),
                     .bias = biases_there.data(),
                     .biases = biases};
  const auto before = keys.part(0, all);
  run_behind_writers(
      device(), [&] { device().kernels().decode_self(a, device().stream()); }, query.memory(),
      fresh.memory());
  for (Elements* written : {&keys, &values, &out}) written->fetch();
  std::vector<float> scratch;
  for (int64_t row = 0; row < rows(); ++row)
    for (int64_t head = 0; head < heads; ++head) {
      SCOPED_TRACE(fmt::format("row {} head {}", row, head));
      const int64_t position = history.positions[static_cast<size_t>(row)], own = row % decodes;
      const bool appended = position < length;
      const int64_t at = row * slot + (head * length + std::min(position, length - 1)) * head_dim;
      const auto key = keys.part(at, head_dim), value = values.part(at, head_dim);
      const int64_t new_at = row * 2 * width() + head * head_dim;
      if (appended) {
        EXPECT_EQ(key, fresh.part(new_at, head_dim));
        EXPECT_EQ(value, fresh.part(new_at + width(), head_dim));
      } else {
        const auto old = before.begin() + at;
        EXPECT_EQ(key,
                  std::vector<float>(old, old + head_dim));  // nothing is written behind the end
      }
      const int64_t limit = appended ? position + 1 : length;
      AlignedFloats cached(2 * limit * padded_to_vectors(head_dim) + 64);
      const int64_t depth = padded_to_vectors(head_dim);
      const CachedHead cache{.keys = 0, .values = (limit * depth + 63) / 64 * 64};
      std::vector<float*> slots;
      std::vector<float> added;
      for (int64_t t = 0; t < limit; ++t) {
        const int64_t d = appended && t == position
                              ? own
                              : history.sources[static_cast<size_t>(row * length + t)];
        const int64_t from = (row - own + d) * slot + (head * length + t) * head_dim;
        slots.push_back(cached.start + t * depth);
        append_to_cache(cache, slots.back(), keys.part(from, head_dim).data(),
                        values.part(from, head_dim).data(), head_dim);
        added.push_back(
            bias[static_cast<size_t>(head * biases + std::min(position - t, biases - 1))]);
      }
      const auto asked = query.part(row * width() + head * head_dim, head_dim);
      std::vector<float> want(static_cast<size_t>(head_dim));
      AlignedFloats padded(padded_to_vectors(head_dim));
      std::copy(asked.begin(), asked.end(), padded.start);
      attend_cache(padded.start, want.data(), cache, slots, appended ? added.data() : nullptr,
                   head_dim, scratch);
      expect_close(out, row * width() + head * head_dim, want, dtype());
    }
}

INSTANTIATE_TEST_SUITE_P(, DecodeAttention,
                         ::testing::Combine(::testing::ValuesIn(kSizes),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::ValuesIn(kSchedules)),
                         [](const auto& named) {
                           return fmt::format(
                               "{}{}Seed{}", std::get<0>(named.param).name,
                               std::get<1>(named.param) == DType::bf16 ? "Bf16" : "F32",
                               std::get<2>(named.param));
                         });

using FollowedSources = DeviceTest;
TEST_F(FollowedSources, RowsContinueTheirParents) {
  constexpr int64_t kItems = 2, kDecodes = 3, kRoom = 5;
  std::vector<uint16_t> sources;
  for (int i = 0; i < kItems * kDecodes * kRoom; ++i)
    sources.push_back(static_cast<uint16_t>(i % 7));
  const std::vector<int32_t> positions{3, 3, 3, 0, 5, 4}, parents{2, 0, 0, 3, 5, 4};
  const OnDevice<int32_t> at(device(), positions), of(device(), parents);
  const OnDevice<uint16_t> from(device(), sources),
      to(device(), std::vector<uint16_t>(kItems * kDecodes * kRoom, 99));
  FollowSources f{.items = kItems,
                  .decodes = kDecodes,
                  .max_length = kRoom,
                  .positions = at.data(),
                  .parents = of.data(),
                  .sources = from.data(),
                  .next = to.data()};
  device().kernels().follow_sources(f, device().stream());
  const std::vector<uint16_t> next = to.back();
  for (int64_t row = 0; row < kItems * kDecodes; ++row)
    for (int64_t t = 0; t < kRoom; ++t) {
      const auto r = static_cast<size_t>(row);
      const int64_t parent = parents[r];
      const uint16_t want = t < positions[r]    ? sources[static_cast<size_t>(parent * kRoom + t)]
                            : t == positions[r] ? static_cast<uint16_t>(row % kDecodes)
                                                : uint16_t{99};
      EXPECT_EQ(next[static_cast<size_t>(row * kRoom + t)], want) << row << ", " << t;
    }
}

}  // namespace
}  // namespace quintet::testing
