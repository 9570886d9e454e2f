#pragma once
// The products of a layer, each as one part of several that run at the same time. Private to
// models/decoding.

#include "kernels/rotary/rotary.h"
#include "models/decoding/cpu/packed_network.h"

namespace quintet::decoding {

inline constexpr float kNormEpsilon = 1e-6f;  // layers.py LayerNorm

/// h [rows, mlp] = the MLP's activations for x, of this rank's columns the panels of this part.
inline void mlp_activations(const PackedRows& x, const PackedMlp& mlp, Part part, float* h,
                            const void* next = nullptr) {
  const int64_t width = panel_width(), f = mlp.width, columns = mlp.columns.count();
  h += mlp.columns.begin;
  if (mlp.activations.size() == 1) {
    const auto activate = [&](const Tile& tile) { activate_tile(tile, mlp.activations[0], h, f); };
    multiply(x, mlp.in, mlp.in.share(part.index, part.count), activate, next);
    return;
  }
  const auto gate = [&](const Tile& tile) {
    Tile t = tile;
    t.column = tile.panel / 2 * width;
    t.columns = std::min(width, columns - t.column);
    if (tile.panel % 2 == 0)
      activate_tile(t, mlp.activations[0], h, f);
    else
      multiply_activated_tile(t, mlp.activations[1], h, f);
  };
  multiply(x, mlp.in, mlp.in.share(part.index, part.count, 2), gate, next);
}

/// Of queries and keys of self-attention, if they are turned.
inline std::optional<Rotation> rotation_of(const LayerConfig& sizes) {
  if (!sizes.rotary_max_timescale) return {};
  return Rotation(sizes.head_dim, *sizes.rotary_max_timescale);
}

/// Relative biases of a stack, by distance: row(layer, head, query)[key] for 0 <= key < length; null for a stack
/// without.
class BiasDiagonals {
 public:
  BiasDiagonals() = default;
  BiasDiagonals(const PackedStack& stack, int64_t length);
  const float* row(size_t layer, int64_t head, int64_t query) const {
    if (data_.empty()) return nullptr;
    return data_.data() + first_[layer] + head * (2 * length_ - 1) + (length_ - 1 - query);
  }

 private:
  int64_t length_ = 0;
  std::vector<int64_t> first_;  // of each layer; layers with the same table share its diagonals
  std::vector<float> data_;     // [tables, heads, 2 length - 1]
};

}  // namespace quintet::decoding
