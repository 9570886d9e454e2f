#include "apps/export/onnx/layers.h"

namespace quintet::onnx {
namespace {

/// Numbers without axes, int64.
struct Numbers {
  Graph& graph;

  std::string operator()(int64_t value) const { return graph.integer(value); }
  std::string operator()(const char* type, const std::string& a, const std::string& b) const {
    return graph.op(type, {a, b});
  }
  /// The first of these for which all conditions are true; there is one.
  std::string first(const std::string& candidates, std::vector<std::string> conditions) const {
    while (conditions.size() > 1) {
      conditions.front() = graph.op("And", {conditions.front(), conditions.back()});
      conditions.pop_back();
    }
    const std::string found = graph.op("Cast", {conditions.front()}, {{"to", int64_t{kInt32}}});
    return graph.op(
        "Gather", {candidates,
                   graph.op("ArgMax", {found}, {{"axis", int64_t{0}}, {"keepdims", int64_t{0}}})});
  }
  std::string divides(const std::string& number, const std::string& of) const {
    return graph.op("Equal", {graph.op("Mod", {of, number}), graph.integer(0)});
  }
  std::string range(const std::string& begin, const std::string& end) const {
    return graph.op("Range", {begin, end, graph.integer(1)});
  }
  /// One after another, as a shape.
  std::string shape(const std::vector<std::string>& numbers) const {
    std::vector<std::string> each;
    for (const std::string& number : numbers)
      each.push_back(graph.op("Reshape", {number, graph.integers({1})}));
    return graph.op("Concat", each, {{"axis", int64_t{0}}});
  }
};

/// How a batch's tokens are divided for experts that choose among them: models/moe.h of sizes that only a run knows.
struct Grouping {
  std::string more_rows, more_columns, tokens, groups, capacity;

  Grouping(const Numbers& n, const std::string& batch, const std::string& length,
           const MoeConfig& moe) {
    const std::string experts = n(moe.num_experts), zero = n(0), one = n(1);
    // The fewest of either that make the tokens a multiple of the experts.
    const auto more = [&](const std::string& have, const std::string& each) {
      const std::string some = n.range(zero, experts);
      return n.first(some, {n.divides(experts, n("Mul", n("Add", some, have), each))});
    };
    const std::string rows = more(batch, length), columns = more(length, batch);
    const std::string is_rows = n("Greater", n("Mul", columns, batch), n("Mul", rows, length));
    more_rows = n.graph.op("Where", {is_rows, rows, zero});
    more_columns = n.graph.op("Where", {is_rows, zero, columns});
    tokens = n("Mul", n("Add", batch, more_rows), n("Add", length, more_columns));
    const std::string fewest = n("Max", n("Div", tokens, n(moe.max_group_size)), experts);
    const std::string counts = n.range(fewest, n("Add", tokens, one));
    groups = n.first(counts, {n.divides(counts, tokens), n.divides(experts, counts)});
    const std::string size = n("Div", tokens, groups);
    const auto cast = [&](const std::string& value, Type to) {
      return n.graph.op("Cast", {value}, {{"to", int64_t{to}}});
    };
    const std::string share =
        n("Div", n("Mul", n.graph.real64(moe.eval_capacity_factor), cast(size, kDouble)),
          cast(experts, kDouble));
    const std::string wanted = cast(n.graph.op("Round", {share}), kInt64);  // halves to even
    capacity = n("Min", n("Max", wanted, n(moe.min_expert_capacity)), size);
  }
};

}  // namespace

void Layers::add_mlp(const std::string& gain, const Experts& experts) {
  const std::string rows = normed(gain);
  add(experts.moe.router.kind == Router::experts_choose ? chosen_by_experts(rows, experts)
                                                        : chosen_by_tokens(rows, experts));
}

std::string Layers::logits(const std::string& rows, const Experts& experts) {
  const std::string product = graph_.op("MatMul", {rows, experts.router});
  return experts.router_bias.empty() ? product : graph_.op("Add", {product, experts.router_bias});
}

std::string Layers::chosen_by_tokens(const std::string& rows, const Experts& experts) {
  const int64_t embed = config_.emb_dim, k = experts.moe.router.num_selected_experts;
  const auto top =
      graph_.ops("TopK",
                 {graph_.op("Softmax", {logits(rows, experts)}, {{"axis", int64_t{-1}}}),
                  graph_.integers({k})},
                 2, {{"axis", int64_t{-1}}});  // gates, experts [batch, length, k]
  std::string chosen = top[1];
  if (experts.moe.expert_capacity > 0 && !rows_.tokens.empty())
    chosen = within_capacity(chosen, experts.moe);
  const std::string flat = graph_.op("Reshape", {rows, graph_.integers({-1, embed})});
  const std::string choices = graph_.op("Reshape", {chosen, graph_.integers({-1})});
  std::vector<std::string> places, results;  // of each expert, [choices of it], [.., embed]
  for (size_t e = 0; e < experts.experts.size(); ++e) {
    const std::string is_own =
        graph_.op("Equal", {choices, graph_.integer(static_cast<int64_t>(e))});
    places.push_back(graph_.op("Reshape", {graph_.op("NonZero", {is_own}), graph_.integers({-1})}));
    const std::string own =
        graph_.op("Gather", {flat, graph_.op("Div", {places.back(), graph_.integer(k)})});
    results.push_back(product(own, experts.experts[e]));
  }
  const std::string by_choice = graph_.op(
      "Concat", {graph_.op("Shape", {choices}), graph_.integers({embed})}, {{"axis", int64_t{0}}});
  const std::string served = graph_.op(
      "ScatterND",
      {graph_.op("Expand", {graph_.real(0), by_choice}),
       graph_.op("Unsqueeze",
                 {graph_.op("Concat", places, {{"axis", int64_t{0}}}), graph_.integers({1})}),
       graph_.op("Concat", results, {{"axis", int64_t{0}}})});  // 0 where no expert serves
  const std::string gates = graph_.op("Reshape", {top[0], graph_.integers({-1, k, 1})});
  const std::string sum = graph_.op(
      "ReduceSum",
      {graph_.op("Mul", {graph_.op("Reshape", {served, graph_.integers({-1, k, embed})}), gates}),
       graph_.integers({1})},
      {{"keepdims", int64_t{0}}});
  return graph_.op("Reshape", {sum, graph_.op("Shape", {rows})});
}

std::string Layers::chosen_by_experts(const std::string& rows, const Experts& experts) {
  const Numbers n{graph_};
  const int64_t count = experts.moe.num_experts;
  const std::string shape = graph_.op("Shape", {rows});
  const auto size = [&](int64_t axis) { return graph_.op("Gather", {shape, n(axis)}); };
  const std::string batch = size(0), length = size(1);
  const Grouping by(n, batch, length, experts.moe);
  const std::string zero = n(0);
  const std::string pads = n.shape({zero, zero, zero, by.more_rows, by.more_columns, zero});
  const std::string is_token = graph_.op(
      "Unsqueeze",
      {graph_.op("Cast", {rows_.tokens}, {{"to", int64_t{kFloat}}}), graph_.integers({2})});
  const std::string inputs = graph_.op("Mul", {rows, is_token});  // padding takes part as zeros
  std::string probabilities = graph_.op(
      "Softmax", {graph_.op("Pad", {logits(inputs, experts), pads})}, {{"axis", int64_t{-1}}});
  if (experts.moe.router.ignore_padding_tokens)
    probabilities = graph_.op("Mul", {probabilities, graph_.op("Pad", {is_token, pads})});
  const std::string grouped =
      graph_.op("Reshape", {probabilities, n.shape({by.groups, n(-1), n(count)})});
  const auto top = graph_.ops("TopK", {grouped, n.shape({by.capacity})}, 2,
                              {{"axis", int64_t{1}}});  // gates, tokens [groups, capacity, experts]
  const std::string first =
      graph_.op("Mul", {graph_.op("Unsqueeze", {n.range(zero, by.groups), graph_.integers({1, 2})}),
                        n("Div", by.tokens, by.groups)});
  const std::string flat_shape = graph_.integers({-1, count});
  const std::string gates = graph_.op("Reshape", {top[0], flat_shape}),
                    tokens = graph_.op("Reshape", {graph_.op("Add", {top[1], first}), flat_shape});
  const std::string flat = graph_.op(
      "Reshape", {graph_.op("Pad", {inputs, pads}), graph_.integers({-1, config_.emb_dim})});
  const std::string nothing = graph_.op("Mul", {flat, graph_.real(0)});
  std::string sum = nothing;
  for (int64_t e = 0; e < count; ++e) {
    const auto of = [&](const std::string& columns, const std::string& which) {
      return graph_.op("Gather", {columns, which}, {{"axis", int64_t{1}}});
    };
    const std::string own = of(tokens, n(e));  // [groups * capacity]
    const std::string result = graph_.op(
        "Mul", {product(graph_.op("Gather", {flat, own}), experts.experts[static_cast<size_t>(e)]),
                of(gates, graph_.integers({e}))});
    sum = graph_.op(
        "Add",
        {sum, graph_.op("ScatterND",
                        {nothing, graph_.op("Unsqueeze", {own, graph_.integers({1})}), result})});
  }
  const std::string whole =
      graph_.op("Reshape", {sum, n.shape({n("Add", batch, by.more_rows),
                                          n("Add", length, by.more_columns), n(config_.emb_dim)})});
  return graph_.op(
      "Slice", {whole, graph_.integers({0, 0}), n.shape({batch, length}), graph_.integers({0, 1})});
}

std::string Layers::within_capacity(const std::string& chosen, const MoeConfig& moe) {
  const std::string none = graph_.integer(-1);
  const std::string here = graph_.op(
      "Where", {graph_.op("Unsqueeze", {rows_.tokens, graph_.integers({2})}), chosen, none});
  const std::string choices =
      graph_.op("Reshape", {here, graph_.integers({0, -1})});  // [batch, length * k]
  const std::string numbers =
      graph_.op("Range", {graph_.integer(0), graph_.integer(moe.num_experts), graph_.integer(1)});
  const std::string is_of = graph_.op(
      "Cast",
      {graph_.op("Equal", {graph_.op("Unsqueeze", {choices, graph_.integers({2})}), numbers})},
      {{"to", int64_t{kInt32}}});  // [batch, length * k, experts]
  const std::string nth =
      graph_.op("ReduceSum",
                {graph_.op("Mul", {is_of, graph_.op("CumSum", {is_of, graph_.integer(1)})}),
                 graph_.integers({2})},
                {{"keepdims", int64_t{0}}});
  return graph_.op("Where",
                   {graph_.op("LessOrEqual", {nth, graph_.integer(moe.expert_capacity, kInt32)}),
                    choices, none});
}

}  // namespace quintet::onnx
