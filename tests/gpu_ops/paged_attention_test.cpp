// Attention over a pool on a device against the CPU's: groups of rows whose tokens lie at
// slots in no order, some shared, beside groups that rest; two architectures, three schedules.

#include <deque>
#include <numeric>

#include "tests/gpu_ops/decode_memory.h"

namespace quintet::testing {
namespace {

struct Group {
  int32_t rows, length;  // no rows: it rests
};
struct Sizes {
  const char* name;
  int64_t heads, head_dim;
  std::vector<Group> groups;
  int64_t biases;  // as many distances have one
};
const Sizes kSizes[] = {{"Base", 2, 64, {{1, 37}, {0, 0}, {1, 1}, {1, 70}}, 13},
                        {"Wide", 1, 128, {{1, 20}, {0, 0}, {1, 33}}, 40},
                        {"Widest", 1, 104, {{1, 9}}, 3},
                        {"Odd", 3, 3, {{1, 11}, {1, 2}, {0, 0}}, 5},
                        {"Beams", 2, 64, {{4, 37}, {1, 37}, {0, 0}, {3, 5}, {2, 1}}, 0},
                        {"OddBeams", 3, 5, {{3, 18}, {1, 4}, {4, 2}}, 0}};

class PagedAttention
    : public DeviceTest,
      public ::testing::WithParamInterface<std::tuple<Sizes, DType, int, uint64_t>> {
 protected:
  PagedAttention() {
    emulated::simt::emulator::set_sm(std::get<2>(GetParam()));
    emulated::simt::emulator::set_seed(std::get<3>(GetParam()));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), random_);
    int32_t row = 0;
    for (const Group& group : sizes().groups) {
      std::vector<int32_t> mine;
      for (int32_t t = 0; t < group.length; ++t) {
        // Now and then a slot that the first group reads too, but no group's newest.
        const bool shared = t + 1 < group.length && row > 0 && random_() % 4 == 0;
        mine.push_back(shared ? slots_[0][random_() % (slots_[0].size() - 1)] : free_.back());
        if (!shared) free_.pop_back();
      }
      slots_.push_back(std::move(mine));
      groups_.push_back(
          {.slots = slots_.back().data(), .length = group.length, .row = row, .rows = group.rows});
      row += std::max(group.rows, 1);  // rows that rest keep their place in the step
    }
    rows_ = row;
  }
  ~PagedAttention() override { emulated::simt::emulator::set_sm(90); }
  const Sizes& sizes() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  int64_t width() const { return sizes().heads * sizes().head_dim; }
  bool beams() const { return sizes().biases == 0; }
  DecodeCache pool(const Elements& keys, const Elements& values) const {
    return {.keys = keys.data(),
            .values = values.data(),
            .sequence_stride = 0,
            .head_stride = sizes().head_dim,
            .token_stride = width(),
            .max_length = kPlaces};
  }

  static constexpr int64_t kPlaces = 200;
  std::mt19937 random_{7};
  std::vector<int32_t> free_ = std::vector<int32_t>(kPlaces);
  std::vector<std::vector<int32_t>> slots_;
  std::vector<PagedGroup> groups_;
  int64_t rows_ = 0;
};

TEST_P(PagedAttention, ReadsTokensWhereTheyStandAndAppendsTheNewest) {
  const auto [name, heads, head_dim, groups, biases] = sizes();
  const int64_t all = kPlaces * width();
  Elements keys(all, dtype(), &random_, 0.5f), values(all, dtype(), &random_);
  const Elements query(rows_ * width(), dtype(), &random_, 0.7f);
  const Elements fresh(rows_ * 2 * width(), dtype(), &random_, 0.7f);
  Elements out(rows_ * width(), dtype(), nullptr);
  std::vector<float> bias;
  for (int64_t i = 0; i < heads * biases; ++i)
    bias.push_back(0.1f * static_cast<float>(random_() % 30));
  const OnDevice<float> biases_there(device(), bias);
  std::deque<OnDevice<int32_t>> slots_there;
  std::vector<PagedGroup> there = groups_;
  for (size_t i = 0; i < there.size(); ++i)
    there[i].slots = slots_there.emplace_back(device(), slots_[i]).data();
  const OnDevice<PagedGroup> table(device(), there);
  DecodePaged a{.rows = {.dtype = dtype(),
                         .items = std::ssize(groups_),
                         .decodes = beams() ? kMostGroupRows : 1,
                         .heads = heads,
                         .head_dim = head_dim,
                         .query = query.data(),
                         .out = out.data(),
                         .query_stride = width(),
                         .out_stride = width()},
                .pool = pool(keys, values),
                .groups = table.data()};
  if (!beams()) {
    a.key = fresh.data();
    a.value = static_cast<std::byte*>(fresh.data()) + width() * size_of(dtype());
    a.key_stride = 2 * width();
    a.bias = biases_there.data();
    a.biases = biases;
  }
  const auto before = keys.part(0, all);
  run_behind_writers(
      device(), [&] { device().kernels().decode_paged(a, device().stream()); }, query.memory(),
      fresh.memory());
  for (Elements* written : {&keys, &values, &out}) written->fetch();
  size_t changed = 0;
  for (int64_t i = 0; i < all; ++i) changed += before[static_cast<size_t>(i)] != keys.at(i);
  size_t writers = 0;
  for (const PagedGroup& group : groups_) writers += !beams() && group.rows > 0;
  EXPECT_LE(changed, writers * static_cast<size_t>(width()));  // the newest tokens' slots alone
  std::vector<float> scratch;
  for (const PagedGroup& group : groups_)
    for (int64_t row = group.row; row < group.row + std::max(group.rows, 1); ++row)
      for (int64_t head = 0; head < heads; ++head) {
        SCOPED_TRACE(fmt::format("row {} head {}", row, head));
        const int64_t out_at = row * width() + head * head_dim;
        if (group.rows == 0) {
          EXPECT_TRUE(std::isnan(out.at(out_at)));
          continue;
        }
        const int64_t depth = padded_to_vectors(head_dim);
        AlignedFloats cached(2 * group.length * depth + 64);
        const CachedHead cache{.keys = 0, .values = (group.length * depth + 63) / 64 * 64};
        std::vector<float*> slots;
        std::vector<float> added;
        for (int64_t t = 0; t < group.length; ++t) {
          const int64_t from = group.slots[t] * width() + head * head_dim;
          if (!beams() && t + 1 == group.length) {
            const int64_t new_at = row * 2 * width() + head * head_dim;
            EXPECT_EQ(keys.part(from, head_dim), fresh.part(new_at, head_dim));
            EXPECT_EQ(values.part(from, head_dim), fresh.part(new_at + width(), head_dim));
          }
          slots.push_back(cached.start + t * depth);
          append_to_cache(cache, slots.back(), keys.part(from, head_dim).data(),
                          values.part(from, head_dim).data(), head_dim);
          if (!beams())
            added.push_back(bias[static_cast<size_t>(head * biases +
                                                     std::min(group.length - 1 - t, biases - 1))]);
        }
        const auto asked = query.part(out_at, head_dim);
        std::vector<float> want(static_cast<size_t>(head_dim));
        AlignedFloats padded(depth);
        std::copy(asked.begin(), asked.end(), padded.start);
        attend_cache(padded.start, want.data(), cache, slots, beams() ? nullptr : added.data(),
                     head_dim, scratch);
        expect_close(out, out_at, want, dtype());
      }
}

TEST_P(PagedAttention, StoresInputsAtTheirPlaces) {
  const int64_t tokens = 23, all = kPlaces * width();
  Elements keys(all, dtype(), nullptr), values(all, dtype(), nullptr);
  const int64_t stride = width() + 8;
  const Elements new_keys(tokens * stride, dtype(), &random_);
  const Elements new_values(tokens * stride, dtype(), &random_);
  std::vector<int32_t> slots(kPlaces);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random_);
  const int32_t left_out = std::exchange(slots[4], -1);
  const OnDevice<int32_t> where(device(), slots);
  device().kernels().store_paged({.dtype = dtype(),
                                  .pool = pool(keys, values),
                                  .tokens = tokens,
                                  .heads = sizes().heads,
                                  .head_dim = sizes().head_dim,
                                  .keys = new_keys.data(),
                                  .values = new_values.data(),
                                  .stride = stride,
                                  .slots = where.data()},
                                 device().stream());
  keys.fetch(), values.fetch();
  for (int64_t t = 0; t < kPlaces; ++t) {
    const int64_t at = (t == 4 ? left_out : slots[static_cast<size_t>(t)]) * width();
    if (t < tokens && t != 4) {
      EXPECT_EQ(keys.part(at, width()), new_keys.part(t * stride, width()));
      EXPECT_EQ(values.part(at, width()), new_values.part(t * stride, width()));
    } else {
      EXPECT_TRUE(std::isnan(keys.at(at)) && std::isnan(values.at(at)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , PagedAttention,
    ::testing::Combine(::testing::ValuesIn(kSizes), ::testing::Values(DType::f32, DType::bf16),
                       ::testing::Values(80, 90), ::testing::ValuesIn(kSchedules)),
    [](const auto& named) {
      return fmt::format("{}{}Sm{}Seed{}", std::get<0>(named.param).name,
                         std::get<1>(named.param) == DType::bf16 ? "Bf16" : "F32",
                         std::get<2>(named.param), std::get<3>(named.param));
    });

}  // namespace
}  // namespace quintet::testing
