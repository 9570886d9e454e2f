#include "data/packing.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// One feature of the open row.
struct OpenRow {
  Tokens ids, positions;
};

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

Example close_row(const Lengths& lengths, std::vector<OpenRow>& rows) {
  Example out;
  for (size_t f = 0; f < lengths.size(); ++f) {
    const auto length = static_cast<size_t>(lengths[f].second);
    OpenRow& row = rows[f];
    row.ids.resize(length, 0);
    row.positions.resize(length, 0);
    Tokens segments = segment_ids(row.ids, row.positions);
    out.set(lengths[f].first, std::move(row.ids));
    out.set(lengths[f].first + "_segment_ids", std::move(segments));
    out.set(lengths[f].first + "_positions", std::move(row.positions));
    row = {};
  }
  return out;
}

void pack_group(const Lengths& lengths, const std::vector<Example>& in, std::vector<Example>& out) {
  std::vector<OpenRow> rows(lengths.size());
  std::vector<int64_t> sizes(lengths.size());
  for (const Example& example : in) {
    bool fits = true;
    for (size_t f = 0; f < lengths.size(); ++f) {
      const auto& [name, length] = lengths[f];
      sizes[f] = count_nonzero(example.tokens(name), length);
      fits = fits && static_cast<int64_t>(rows[f].ids.size()) + sizes[f] <= length;
    }
    if (!fits) out.push_back(close_row(lengths, rows));
    for (size_t f = 0; f < lengths.size(); ++f) {
      const Tokens& tokens = example.tokens(lengths[f].first);
      Tokens& positions = rows[f].positions;
      rows[f].ids.insert(rows[f].ids.end(), tokens.begin(), tokens.begin() + sizes[f]);
      const size_t start = positions.size();
      positions.resize(rows[f].ids.size());
      std::iota(positions.begin() + static_cast<int64_t>(start), positions.end(), 0);
    }
  }
  out.push_back(close_row(lengths, rows));
}

}  // namespace

StreamPtr trim_and_pack(StreamPtr input, const Lengths& lengths) {
  int64_t group = 0;
  for (const auto& [name, length] : lengths) group = std::max(group, length);
  QT_CHECK(group > 0, "packing: the feature lengths must be positive");
  return group_stream(std::move(input), group,
                      [lengths](std::vector<Example>& in, std::vector<Example>& out) {
                        pack_group(lengths, in, out);
                      });
}

StreamPtr trim_and_pad(StreamPtr input, const Lengths& lengths) {
  return map_stream(std::move(input), [lengths](Example& example) {
    for (const auto& [name, length] : lengths)
      if (example.has(name)) example.tokens(name).resize(static_cast<size_t>(length), 0);
    return true;
  });
}

}  // namespace quintet::data
