#include "data/converters/packing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "data/examples/trim.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

int64_t count_nonzero(const Tokens& tokens, int64_t length) {
  const auto end = tokens.begin() + std::min(length, static_cast<int64_t>(tokens.size()));
  return (end - tokens.begin()) - std::count(tokens.begin(), end, 0);
}

/// Segment n (from 1) begins at the n-th position 0; zero ids belong to none.
Tokens segment_ids(const Tokens& ids, const Tokens& positions) {
  Tokens segments(ids.size());
  int32_t segment = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    segment += positions[i] == 0;
    segments[i] = ids[i] == 0 ? 0 : segment;
  }
  return segments;
}

/// Ids of each feature that an example brings, [examples][features].
using Sizes = std::vector<std::vector<int64_t>>;
/// Examples of a row.
using Row = std::vector<size_t>;

Sizes sizes_of(const Lengths& lengths, const std::vector<Example>& group) {
  Sizes sizes;
  for (const Example& example : group) {
    auto& own = sizes.emplace_back();
    for (const auto& [name, length] : lengths)
      own.push_back(count_nonzero(example.tokens(name), length));
  }
  return sizes;
}

/// What is left of a row, a bin of next fit and best fit.
class Bin {
 public:
  explicit Bin(const Lengths& lengths) {
    for (const auto& [name, length] : lengths) left_.push_back(length);
  }
  bool fits(const std::vector<int64_t>& sizes) const {
    return std::equal(sizes.begin(), sizes.end(), left_.begin(), std::less_equal<>());
  }
  void add(const std::vector<int64_t>& sizes) {
    for (size_t f = 0; f < sizes.size(); ++f) left_[f] -= sizes[f];
  }
  const std::vector<int64_t>& left() const { return left_; }

 private:
  std::vector<int64_t> left_;
};

std::vector<Row> greedy_rows(const Lengths& lengths, const Sizes& sizes) {
  std::vector<Row> rows(1);
  Bin bin(lengths);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!bin.fits(sizes[i])) {
      rows.emplace_back();
      bin = Bin(lengths);
    }
    rows.back().push_back(i);
    bin.add(sizes[i]);
  }
  return rows;
}

std::vector<Row> best_fit_rows(const Lengths& lengths, const Sizes& sizes) {
  // How much of a row something takes: the sum over features of the part of their length, in
  // integers, so that every machine compares alike.
  constexpr int64_t kWhole = int64_t{1} << 40;
  const auto part = [&](const std::vector<int64_t>& counts) {
    int64_t sum = 0;
    for (size_t f = 0; f < counts.size(); ++f) sum += counts[f] * (kWhole / lengths[f].second);
    return sum;
  };
  std::vector<size_t> longest_first(sizes.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return part(sizes[a]) > part(sizes[b]); });
  std::vector<Row> rows;
  std::vector<Bin> bins;
  for (const size_t i : longest_first) {
    size_t best = rows.size();
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t r = 0; r < rows.size(); ++r) {
      if (!bins[r].fits(sizes[i])) continue;
      const int64_t left = part(bins[r].left());
      if (left < least) {
        least = left;
        best = r;
      }
    }
    if (best == rows.size()) {
      rows.emplace_back();
      bins.emplace_back(lengths);
    }
    rows[best].push_back(i);
    bins[best].add(sizes[i]);
  }
  for (Row& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

Example make_row(const Lengths& lengths, const std::vector<Example>& group, const Sizes& sizes,
                 const Row& row) {
  Example out;
  for (size_t f = 0; f < lengths.size(); ++f) {
    const auto& [name, length] = lengths[f];
    Tokens ids, positions;
    ids.reserve(static_cast<size_t>(length));
    positions.reserve(static_cast<size_t>(length));
    for (const size_t i : row) {
      const Tokens& tokens = group[i].tokens(name);
      ids.insert(ids.end(), tokens.begin(), tokens.begin() + sizes[i][f]);
      const size_t start = positions.size();
      positions.resize(ids.size());
      std::iota(positions.begin() + static_cast<int64_t>(start), positions.end(), 0);
    }
    ids.resize(static_cast<size_t>(length), 0);
    positions.resize(static_cast<size_t>(length), 0);
    Tokens segments = segment_ids(ids, positions);
    out.set(name, std::move(ids));
    out.set(name + "_segment_ids", std::move(segments));
    out.set(name + "_positions", std::move(positions));
  }
  return out;
}

}  // namespace

StreamPtr trim_and_pack(StreamPtr input, const Lengths& lengths, Packing packing) {
  int64_t group = 0;
  for (const auto& [name, length] : lengths) group = std::max(group, length.first);
  QT_CHECK(group > 0, "packing: the feature lengths must be positive");
  return group_stream(std::move(input), group,
                      [lengths, packing](std::vector<Example>& in, std::vector<Example>& out) {
                        const Sizes sizes = sizes_of(lengths, in);
                        const auto rows = packing == Packing::best_fit
                                              ? best_fit_rows(lengths, sizes)
                                              : greedy_rows(lengths, sizes);
                        for (const Row& row : rows)
                          out.push_back(make_row(lengths, in, sizes, row));
                      });
}

StreamPtr trim_and_pad(StreamPtr input, const Lengths& lengths) {
  return map_stream(std::move(input), [lengths](Example& example) {
    for (const auto& [name, length] : lengths)
      if (Value* value = example.find(name)) trim_and_pad(*value, length);
    return true;
  });
}

}  // namespace quintet::data
