#include "models/decoding/cpu/experts.h"

#include <algorithm>
#include <cmath>

namespace quintet::decoding {
namespace {

/// softmax(x router + bias) of one row.
void probabilities(const PackedExperts& experts, const float* x, std::vector<float>& p) {
  const size_t count = experts.experts.size();
  p = experts.router_bias;
  p.resize(count, 0.0F);
  for (size_t i = 0; i < experts.router.size() / count; ++i)
    for (size_t e = 0; e < count; ++e) p[e] += x[i] * experts.router[i * count + e];
  const float largest = *std::max_element(p.begin(), p.end());
  float sum = 0;
  for (float& v : p) sum += v = std::exp(v - largest);
  for (float& v : p) v /= sum;
}

}  // namespace

ExpertRows route_rows(const PackedExperts& experts, const float* x, int64_t rows) {
  const size_t count = experts.experts.size();
  const auto embed = static_cast<int64_t>(experts.router.size() / count);
  std::vector<std::vector<std::pair<int64_t, float>>> by_expert(count);
  std::vector<float> p;
  for (int64_t r = 0; r < rows; ++r) {
    probabilities(experts, x + r * embed, p);
    for (int64_t j = 0; j < experts.moe.router.num_selected_experts; ++j) {
      const auto best = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
      by_expert[best].emplace_back(r, p[best]);
      p[best] = -1;
    }
  }
  ExpertRows routed;
  for (const auto& chosen : by_expert) {
    routed.begin.push_back(static_cast<int64_t>(routed.row.size()));
    for (const auto& [row, gate] : chosen) {
      routed.row.push_back(row);
      routed.gate.push_back(gate);
    }
  }
  routed.begin.push_back(static_cast<int64_t>(routed.row.size()));
  return routed;
}

void ExpertProducts::in(const PackedExperts& experts, const ExpertRows& routed, const float* x,
                        Part part, PackedRows& packed, float* hidden) {
  for (size_t e = 0; e < experts.experts.size(); ++e) {
    const int64_t first = routed.begin[e], count = routed.begin[e + 1] - first;
    if (count == 0) continue;
    const PackedMlp& expert = experts.experts[e];
    packed.pack_gathered(x, std::span(routed.row).subspan(first, count), expert.in.k());
    mlp_activations(packed, expert,
                    PanelSource(expert.in.share(part.index, part.count, expert.unit())),
                    hidden + first * expert.width);
  }
}

void ExpertProducts::out(const PackedExperts& experts, const ExpertRows& routed,
                         const float* hidden, Part part, PackedRows& packed, float* y) {
  for (size_t e = 0; e < experts.experts.size(); ++e) {
    const int64_t first = routed.begin[e], count = routed.begin[e + 1] - first;
    if (count == 0) continue;
    const PackedMlp& expert = experts.experts[e];
    packed.pack(hidden + first * expert.width, count, expert.width);
    multiply(packed, expert.out, expert.out.share(part.index, part.count), [&](const Tile& tile) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        const auto at = static_cast<size_t>(first + tile.row + i);
        float* to = y + routed.row[at] * expert.in.k() + tile.column;
        for (int64_t c = 0; c < tile.columns; ++c)
          to[c] += routed.gate[at] * tile.values[i * panel_width() + c];
      }
    });
  }
}

}  // namespace quintet::decoding
