#include "apps/export/onnx/layers.h"

#include <cmath>

#include "kernels/rotary/rotary.h"
#include "runtime/base/check.h"

namespace quintet::onnx {
namespace {

constexpr float kNormEpsilon = 1e-6f;
using Integers = std::vector<int64_t>;

}  // namespace

std::string Layers::norm(const std::string& rows, const std::string& gain) const {
  const std::string mean = graph_.op("ReduceMean", {graph_.op("Mul", {rows, rows})},
                                     {{"axes", Integers{-1}}, {"keepdims", int64_t{1}}});
  const std::string root = graph_.op("Sqrt", {graph_.op("Add", {mean, graph_.real(kNormEpsilon)})});
  return graph_.op("Mul", {graph_.op("Div", {rows, root}), gain});
}

std::string Layers::heads(const std::string& rows, int64_t count) {
  const std::string split =
      graph_.op("Reshape", {rows, graph_.integers({0, -1, count, config_.head_dim})});
  return graph_.op("Transpose", {split}, {{"perm", Integers{0, 2, 1, 3}}});
}

void Layers::project(size_t i, const Attention& attention) {
  const std::string rows = normed(attention.norm);
  const auto of = [&](size_t part, int64_t count) {
    return heads(graph_.op("MatMul", {rows, attention.in[part]}), count);
  };
  query_ = of(0, config_.num_heads);
  if (attention.in.size() == 1) return;  // of cross-attention
  query_ = turned(query_);
  KeyValue now{turned(of(1, config_.kv_heads())), of(2, config_.kv_heads())};
  if (i == past.size()) {
    past.push_back(std::move(now));
    return;
  }
  past[i].key = graph_.op("Concat", {past[i].key, now.key}, {{"axis", int64_t{2}}});
  past[i].value = graph_.op("Concat", {past[i].value, now.value}, {{"axis", int64_t{2}}});
}

void Layers::attend_self(size_t i, const Attention& attention) {
  if (table_ != attention.relative_bias) {
    table_ = attention.relative_bias;
    bias_ = bias_of(*table_);
  }
  attend(past[i], bias_);
}

void Layers::attend_cross(size_t i) { attend(rows_.cross[i], rows_.cross_mask); }

void Layers::attend(const KeyValue& keys, const std::string& bias) {
  const std::string across = graph_.op("Transpose", {keys.key}, {{"perm", Integers{0, 1, 3, 2}}});
  std::string scores = graph_.op("MatMul", {query_, across});
  if (!bias.empty()) scores = graph_.op("Add", {scores, bias});
  const std::string weights = graph_.op("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const std::string joined = graph_.op("Transpose", {graph_.op("MatMul", {weights, keys.value})},
                                       {{"perm", Integers{0, 2, 1, 3}}});
  found_ = graph_.op("Reshape", {joined, graph_.integers({0, -1, config_.joined_kv()})});
}

std::string Layers::bias_of(const std::string& table) {
  if (table.empty()) return rows_.mask;
  const std::string most = graph_.integer(config_.max_distance);
  const std::string low =
      graph_.op("Max", {rows_.distances, graph_.integer(-config_.max_distance)});
  const std::string index = graph_.op("Add", {graph_.op("Min", {low, most}), most});
  const std::string bias = graph_.op(
      "Unsqueeze",
      {graph_.op("Gather", {table, index}, {{"axis", int64_t{1}}}), graph_.integers({0})});
  return rows_.mask.empty() ? bias : graph_.op("Add", {bias, rows_.mask});
}

std::string Layers::turned(const std::string& heads) {
  if (!config_.rotary_max_timescale) return heads;
  if (cosines_.empty()) {
    const Rotation rotation(config_.head_dim, *config_.rotary_max_timescale);
    const std::string positions = graph_.op("Cast", {rows_.positions}, {{"to", int64_t{kFloat}}});
    const std::string angles =
        graph_.op("Mul", {graph_.op("Unsqueeze", {positions, graph_.integers({1})}),
                          graph_.reals(rotation.frequencies())});  // [length, head_dim / 2]
    cosines_ = graph_.op("Cos", {angles});
    sines_ = graph_.op("Sin", {angles});
  }
  const auto parts = graph_.ops("Split", {heads}, 2, {{"axis", int64_t{-1}}});
  const auto times = [&](size_t part, const std::string& by) {
    return graph_.op("Mul", {parts[part], by});
  };
  return graph_.op("Concat",
                   {graph_.op("Sub", {times(0, cosines_), times(1, sines_)}),
                    graph_.op("Add", {times(1, cosines_), times(0, sines_)})},
                   {{"axis", int64_t{-1}}});
}

std::string Layers::product(const std::string& rows, const Mlp& mlp) {
  std::string hidden;
  for (size_t i = 0; i < mlp.in.size(); ++i) {
    const std::string h = activated(graph_.op("MatMul", {rows, mlp.in[i]}), mlp.activations[i]);
    hidden = hidden.empty() ? h : graph_.op("Mul", {hidden, h});
  }
  return graph_.op("MatMul", {hidden, mlp.out});
}

std::string Layers::activated(const std::string& h, Activation activation) {
  switch (activation) {
    case Activation::linear:
      return h;
    case Activation::relu:
      return graph_.op("Relu", {h});
    case Activation::silu:
      return graph_.op("Mul", {h, graph_.op("Sigmoid", {h})});
    case Activation::gelu: {  // h / 2 (1 + tanh(sqrt(2 / pi) (h + 0.044715 h^3)))
      const std::string square = graph_.op("Mul", {h, h});
      const std::string inner =
          graph_.op("Add", {graph_.op("Mul", {square, graph_.real(0.044715f)}), graph_.real(1)});
      const std::string slope = graph_.op("Mul", {h, graph_.real(std::sqrt(2 / std::acos(-1.0f)))});
      return half(h, graph_.op("Tanh", {graph_.op("Mul", {slope, inner})}));
    }
    case Activation::gelu_erf:  // h / 2 (1 + erf(h / sqrt(2)))
      return half(h, graph_.op("Erf", {graph_.op("Mul", {h, graph_.real(std::sqrt(0.5f))})}));
  }
  QT_ASSERT(false);
}

std::string Layers::half(const std::string& h, const std::string& of) {
  return graph_.op(
      "Mul", {graph_.op("Mul", {h, graph_.real(0.5f)}), graph_.op("Add", {of, graph_.real(1)})});
}

}  // namespace quintet::onnx
