#include "kernels/attention/cpu/problem.h"

#include <algorithm>
#include <limits>

#include "kernels/attention/operands.h"
#include "kernels/cpu/operands.h"
#include "kernels/random/random.h"

namespace quintet::attention {
namespace {

// Where the nonzero flags of one sequence's prefix lie.
class PrefixRuns {
 public:
  /// flags: null, or [keys].
  PrefixRuns(const int32_t* flags, int64_t keys) {
    if (flags == nullptr) return;
    end_.assign(static_cast<size_t>(keys), 0);
    count_.assign(static_cast<size_t>(keys) + 1, 0);
    for (auto i = static_cast<size_t>(keys); i-- > 0;) {
      const bool goes_on = i + 1 < end_.size() && flags[i + 1] != 0;
      if (flags[i] != 0) end_[i] = goes_on ? end_[i + 1] : static_cast<int32_t>(i + 1);
      count_[i] = count_[i + 1] + (flags[i] != 0 ? 1 : 0);
    }
  }
  bool has(int64_t key) const {
    return key >= 0 && key < static_cast<int64_t>(end_.size()) && end_of(key) != 0;
  }
  /// End of the run that `key` is in.
  int32_t end_of(int64_t key) const { return end_[static_cast<size_t>(key)]; }
  /// No flag is set between the end of `key`'s run and `end`.
  bool last_run_before(int64_t key, int64_t end) const {
    const auto run_end = static_cast<size_t>(end_of(key));
    return static_cast<int64_t>(run_end) >= end ||
           count_[run_end] == count_[static_cast<size_t>(end)];
  }

 private:
  std::vector<int32_t> end_;    // 0: not set
  std::vector<int32_t> count_;  // set flags at and after the key
};

}  // namespace

Problem::Problem(Views in, const Attrs& attrs) {
  QT_ASSERT(in.size() >= 7);
  const View &q_view = in[0], &k_view = in[1], &v_view = in[2];
  cpu::expect_shape(q_view.rank == 3 && k_view.rank == 3 && v_view.rank == 3 &&
                        k_view.sizes == v_view.sizes && q_view.size(0) == k_view.size(0) &&
                        q_view.size(2) == k_view.size(2),
                    "attention", "bq(hd), bk(hd), bk(hd)");
  const auto all_heads = attrs.get<int64_t>("h");
  const int64_t all_width = q_view.global[2];
  QT_CHECK(
      all_heads > 0 && all_width % all_heads == 0,
      "attention: {} heads do not divide a width of {}; heads times head_dim must be the width",
      all_heads, all_width);
  batch = q_view.size(0), queries = q_view.size(1), keys = k_view.size(1);
  depth = all_width / all_heads;
  heads = depth == 0 ? all_heads : q_view.size(2) / depth;
  QT_ASSERT(depth == 0 || (q_view.size(2) % depth == 0 && q_view.origin[2] % depth == 0));
  QT_ASSERT(k_view.global[1] == keys);  // a softmax needs all keys
  // Key ranges are kept in 32 bits.
  QT_ASSERT(keys < std::numeric_limits<int32_t>::max());
  q = cpu::f32(q_view, "attention", "q");
  k = cpu::f32(k_view, "attention", "k");
  v = cpu::f32(v_view, "attention", "v");
  causal = attrs.get_or<bool>("causal", false);
  scale = static_cast<float>(attrs.get_or<double>("scale", 1.0));
  first_relative = k_view.origin[1] - q_view.origin[1] - attrs.get_or<int64_t>("q_offset", 0);
  make_bias_diagonals(in[3], attrs);
  read_masks(in);
  find_allowed_keys();
  if (const double rate = attrs.get_or<double>("rate", 0.0); rate != 0)
    draw_keep(q_view, all_heads, rate,
              {static_cast<uint32_t>(attrs.get<int64_t>("key0")),
               static_cast<uint32_t>(attrs.get<int64_t>("key1"))});
}

void Problem::read_masks(Views in) {
  q_segments = int32_operand(in[4], batch, queries, "q_segments");
  kv_segments = int32_operand(in[5], batch, keys, "kv_segments");
  prefix = int32_operand(in[6], batch, keys, "prefix");
  QT_CHECK((q_segments == nullptr) == (kv_segments == nullptr),
           "attention: q_segments and kv_segments must be given together, only one of them is");
}

void Problem::make_bias_diagonals(const View& table, const Attrs& attrs) {
  const int64_t span = queries + keys;
  if (table.absent()) {
    bias_diagonals.assign(static_cast<size_t>(span + kDiagonalsPadding), 0.0F);
    return;
  }
  cpu::expect_shape(table.rank == 2 && table.size(0) == heads, "attention", "table [h, r]");
  rule = {.bidirectional = attrs.get_or<bool>("bidirectional", true),
          .buckets = table.size(1),
          .max_distance = attrs.get<int64_t>("max_distance")};
  rule.check();
  if (queries == 0) return;
  buckets = rule.diagonals(first_relative - (queries - 1), span - 1);
  diagonals_stride = span + kDiagonalsPadding;
  bias_diagonals.assign(static_cast<size_t>(heads * diagonals_stride), 0.0F);
  const float* rows = cpu::f32(table, "attention", "the table of relative position biases");
  for (int64_t h = 0; h < heads; ++h)
    for (size_t i = 0; i < buckets.size(); ++i)
      bias_diagonals[static_cast<size_t>(h * diagonals_stride) + i] =
          rows[h * rule.buckets + buckets[i]];
}

void Problem::draw_keep(const View& q_view, int64_t all_heads, double rate, Key key) {
  QT_CHECK(rate > 0 && rate < 1, "attention: dropout rate {} must be at least 0 and below 1", rate);
  const float keep_probability = static_cast<float>(1.0 - rate),
              keep_scale = 1.0F / keep_probability;
  const int64_t first_head = depth == 0 ? 0 : q_view.origin[2] / depth;
  std::vector<uint8_t> drawn(static_cast<size_t>(batch * heads * keys));
  const auto draw = [&](int64_t first, int64_t rows) {
    const int64_t element = ((q_view.origin[0] + first) * all_heads + first_head) * keys;
    fill_bernoulli(key, static_cast<uint64_t>(element),
                   {drawn.data() + first * heads * keys, static_cast<size_t>(rows * heads * keys)},
                   keep_probability);
  };
  if (heads == all_heads)
    draw(0, batch);
  else
    for (int64_t b = 0; b < batch; ++b) draw(b, 1);
  keep.resize(drawn.size() + kDiagonalsPadding);
  std::transform(drawn.begin(), drawn.end(), keep.begin(),
                 [keep_scale](uint8_t is_kept) { return is_kept != 0 ? keep_scale : 0.0F; });
}

bool Problem::allowed(int64_t b, int64_t query, int64_t key) const {
  if (q_segments != nullptr) {
    const int32_t segment = q_segments[b * queries + query];
    if (segment == 0 || segment != kv_segments[b * keys + key]) return false;
  }
  const int64_t self_key = query - first_relative;  // the key at the query's position
  if (!causal || key <= self_key) return true;
  return prefix != nullptr && self_key >= 0 && self_key < keys &&
         prefix[b * keys + self_key] != 0 && prefix[b * keys + key] != 0;
}

AllowedKeys Problem::allowed_in(int64_t b, int64_t query, int64_t begin, int64_t end) const {
  AllowedKeys found{.begin = static_cast<int32_t>(end)};
  int32_t count = 0;
  for (auto key = static_cast<int32_t>(begin); key < end; ++key)
    if (allowed(b, query, key)) {
      found.begin = std::min(found.begin, key);
      found.end = key + 1;
      ++count;
    }
  found.has_holes = !found.none() && count < found.end - found.begin;
  return found;
}

AllowedKeys Problem::segment_keys(int64_t b, int64_t query) const {
  AllowedKeys found{.end = static_cast<int32_t>(keys)};
  if (q_segments == nullptr) return found;
  const int32_t segment = q_segments[b * queries + query];
  const int32_t* of_keys = kv_segments + b * keys;
  const auto first = std::find(of_keys, of_keys + keys, segment);
  if (segment == 0 || first == of_keys + keys) return {};
  int64_t last = keys - 1;
  while (of_keys[last] != segment) --last;
  found.begin = static_cast<int32_t>(first - of_keys);
  found.end = static_cast<int32_t>(last + 1);
  found.has_holes = std::count(first, of_keys + found.end, segment) < found.end - found.begin;
  return found;
}

void Problem::find_allowed_keys() {
  allowed_keys.resize(static_cast<size_t>(batch * queries));
  for (int64_t b = 0; b < batch; ++b) {
    const PrefixRuns runs(prefix != nullptr && causal ? prefix + b * keys : nullptr, keys);
    AllowedKeys segment;
    for (int64_t i = 0; i < queries; ++i) {
      // Neighbouring queries mostly share a segment, whose keys are looked for once.
      const int32_t* of = q_segments == nullptr ? nullptr : q_segments + b * queries + i;
      if (i == 0 || (of != nullptr && of[0] != of[-1])) segment = segment_keys(b, i);
      const int64_t self_key = i - first_relative;
      const int64_t until = causal ? std::clamp<int64_t>(self_key + 1, 0, keys) : keys;
      const bool in_prefix = runs.has(self_key);
      AllowedKeys found = segment;
      const bool is_simple =
          !segment.has_holes && (!in_prefix || runs.last_run_before(self_key, segment.end));
      if (is_simple)
        found.end = static_cast<int32_t>(
            std::min<int64_t>(segment.end, in_prefix ? runs.end_of(self_key) : until));
      else
        found = allowed_in(b, i, segment.begin,
                           in_prefix ? segment.end : std::min<int64_t>(segment.end, until));
      allowed_keys[static_cast<size_t>(b * queries + i)] = found;
    }
  }
}

}  // namespace quintet::attention
