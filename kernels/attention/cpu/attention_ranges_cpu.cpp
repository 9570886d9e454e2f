#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/operands.h"
#include "kernels/attention/ranges.h"

namespace quintet {

void attention_ranges_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  using namespace attention;
  const int64_t batch = in[0].size(0), queries = in[0].size(1), keys = in[1].size(1);
  const int64_t tiles = (queries + kTileQueries - 1) / kTileQueries;
  const bool causal = attrs.get_or<bool>("causal", false);
  const int32_t* q = int32_operand(in[0], batch, queries, "q_segments");
  const int32_t* k = int32_operand(in[1], batch, keys, "kv_segments");
  const int32_t* prefix = int32_operand(in[2], batch, keys, "prefix");
  auto* to = out[0].data<int32_t>();
  std::fill_n(to, batch * ranges_length(queries), 0);
  for (int64_t b = 0; b < batch; ++b, to += ranges_length(queries)) {
    for (int64_t t = 0; t < tiles; ++t) {
      to[4 * t] = to[4 * t + 3] = static_cast<int32_t>(keys);
    }
    for (int64_t i = 0; i < queries; ++i) {
      int64_t begin = keys, end = 0, count = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const bool is_seen = !causal || j <= i ||
                             (prefix != nullptr && i < keys && prefix[b * keys + i] != 0 &&
                              prefix[b * keys + j] != 0);
        if (!is_seen || k[b * keys + j] == 0 || k[b * keys + j] != q[b * queries + i]) continue;
        begin = std::min(begin, j);
        end = j + 1;
        ++count;
      }
      const bool is_none = count == 0, has_holes = count < end - begin;
      if (is_none) begin = 0, end = keys;
      int32_t* tile = to + 4 * (i / kTileQueries);
      int32_t* row = to + 4 * tiles + 2 * i;
      row[0] = static_cast<int32_t>(begin);
      row[1] = static_cast<int32_t>(end) | (has_holes ? kHolesBit : 0) | (is_none ? kNoneBit : 0);
      tile[0] = std::min(tile[0], row[0]);
      tile[1] = std::max(tile[1], static_cast<int32_t>(end));
      tile[2] = std::max(tile[2], row[0]);
      tile[3] = std::min(tile[3], is_none || has_holes ? 0 : static_cast<int32_t>(end));
    }
  }
}

}  // namespace quintet
