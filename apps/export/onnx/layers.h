#pragma once
// A layer's operators, written once for whole sequences (an encoder's inputs, a decoder's prompt) and for a step of a
// decoder: a backend of models/decoding/network/layer.h.
//
//   Layers layers(graph, config, {.x = rows, .distances = distances, .mask = mask});
//   decoding::run_layers(layers, stack);
//   const std::string hidden = layers.norm(layers.x, stack.norm);

#include "apps/export/onnx/weights.h"
#include "models/decoding/network/layer.h"

namespace quintet::onnx {

using Attention = decoding::AttentionWeights<Form>;

/// Keys and values of a layer, [batch, heads, length, head_dim].
struct KeyValue {
  std::string key, value;
};

/// What rows are and see; all names of values.
struct Rows {
  std::string x;          // [batch, length, embed]
  std::string positions;  // int64 [length]
  std::string distances;  // key - query, int64 [length, keys]
  std::string mask;    // kMasked where a key is not seen, [batch, 1, 1 or length, keys]; or empty
  std::string tokens;  // bool [batch, length]: no padding; empty: none is
  std::vector<KeyValue> past;   // of the layers, where these rows follow others
  std::vector<KeyValue> cross;  // of the encoder's output
  std::string cross_mask;
};

inline constexpr float kMasked = -1e10f;

class Layers {
 public:
  Layers(Graph& graph, const LayerConfig& config, Rows rows)
      : x(rows.x), past(rows.past), graph_(graph), config_(config), rows_(std::move(rows)) {}

  std::string x;
  std::vector<KeyValue> past;  // and these rows'

  std::string norm(const std::string& rows, const std::string& gain) const;
  /// [batch, length, heads * head_dim] -> [batch, heads, length, head_dim]
  std::string heads(const std::string& rows, int64_t count);

  void project(size_t i, const Attention& attention);
  void attend_self(size_t i, const Attention& attention);
  void attend_cross(size_t i);
  void add_product(const std::string& matrix) { add(graph_.op("MatMul", {found_, matrix})); }
  void add_mlp(const std::string& gain, const Mlp& mlp) { add(product(normed(gain), mlp)); }
  void add_mlp(const std::string& gain, const Experts& experts);
  void begin_parallel(const std::string& gain) { parallel_ = norm(x, gain); }
  void end_parallel() { parallel_.clear(); }

 private:
  /// Of the rows, or what all parts of a parallel layer read.
  std::string normed(const std::string& gain) const {
    return parallel_.empty() ? norm(x, gain) : parallel_;
  }
  void add(const std::string& rows) { x = graph_.op("Add", {x, rows}); }
  void attend(const KeyValue& keys, const std::string& bias);
  /// Of the rows to the keys, with the mask: [1 or batch, heads, length, keys]; empty: nothing is added to scores.
  std::string bias_of(const std::string& table);
  /// Queries or keys by their positions.
  std::string turned(const std::string& heads);
  std::string product(const std::string& rows, const Mlp& mlp);
  std::string activated(const std::string& h, Activation activation);
  std::string half(const std::string& h, const std::string& of);
  std::string logits(const std::string& rows, const Experts& experts);
  /// What experts make of normalized rows, [batch, length, embed].
  std::string chosen_by_tokens(const std::string& rows, const Experts& experts);
  std::string chosen_by_experts(const std::string& rows, const Experts& experts);
  /// chosen [batch, length, k]: the same, -1 for padding and for what comes to an expert beyond its capacity.
  std::string within_capacity(const std::string& chosen, const MoeConfig& moe);

  Graph& graph_;
  const LayerConfig& config_;
  const Rows rows_;
  std::string parallel_;              // empty outside of one
  std::string query_, found_;         // found: by attention, [batch, length, joined_kv]
  std::optional<std::string> table_;  // that bias_ is of: layers may share one
  std::string bias_, cosines_, sines_;
};

}  // namespace quintet::onnx
