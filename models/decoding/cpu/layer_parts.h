#pragma once
// The products of a layer, each as one part of several that run at the same time. Private to
// models/decoding.

#include "kernels/rotary/rotary.h"
#include "models/decoding/cpu/packed_network.h"

namespace quintet::decoding {

inline constexpr float kNormEpsilon = 1e-6f;  // layers.py LayerNorm

/// h [rows, mlp] = the MLP's activations for x, of this rank's columns those of some panels; mlp.unit() stay together.
inline void mlp_activations(const PackedRows& x, const PackedMlp& mlp, PanelSource panels, float* h,
                            NextPanels next = {}, FetchQueue* later = nullptr) {
  const int64_t width = panel_width(), f = mlp.width, columns = mlp.columns.count();
  h += mlp.columns.begin;
  if (mlp.activations.size() == 1) {
    const auto activate = [&](const Tile& tile) { activate_tile(tile, mlp.activations[0], h, f); };
    multiply(x, mlp.in, panels, activate, next, later);
    return;
  }
  const auto gate = [&](const Tile& tile) {
    Tile t = tile;
    t.column = tile.panel / 2 * width;
    t.next_column = tile.next_column / (2 * width) * width;
    t.columns = std::min(width, columns - t.column);
    if (tile.panel % 2 == 0)
      activate_tile(t, mlp.activations[0], h, f);
    else
      multiply_activated_tile(t, mlp.activations[1], h, f);
  };
  multiply(x, mlp.in, panels, gate, next, later);
}

/// Queries and keys of self-attention as they meet: with rotary embeddings turned by the positions of their rows.
class PlacedHeads {
 public:
  /// Row r stands at position(r).
  template <class Position>
  PlacedHeads(const LayerConfig& sizes, int64_t rows, const Position& position)
      : head_dim_(sizes.head_dim) {
    if (!sizes.rotary_max_timescale) return;
    rotation_.emplace(head_dim_, *sizes.rotary_max_timescale);
    turns_.resize(static_cast<size_t>(rows * head_dim_));
#pragma omp parallel for if (rows > 256)
    for (int64_t r = 0; r < rows; ++r) rotation_->at(position(r), turns_.data() + r * head_dim_);
  }
  /// heads: [count, head_dim] of a row, in place.
  void place(int64_t row, float* heads, int64_t count) const {
    if (rotation_) rotation_->apply(turns_.data() + row * head_dim_, heads, heads, count);
  }

 private:
  int64_t head_dim_;
  std::optional<Rotation> rotation_;
  std::vector<float> turns_;  // [rows, head_dim]
};

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
