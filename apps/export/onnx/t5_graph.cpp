#include "apps/export/onnx/t5_graph.h"

#include "apps/export/onnx/layers.h"
#include "runtime/base/check.h"

namespace quintet::onnx {
namespace {

using Integers = std::vector<int64_t>;

std::string cast(Graph& graph, const std::string& value, Type to) {
  return graph.op("Cast", {value}, {{"to", int64_t{to}}});
}

/// kMasked where `hides`, a bool, is true; else 0.
std::string mask_of(Graph& graph, const std::string& hides) {
  return graph.op("Mul", {cast(graph, hides, kFloat), graph.real(kMasked)});
}

/// [batch, keys] -> [batch, 1, 1, keys]
std::string for_all_queries(Graph& graph, const std::string& mask) {
  return graph.op("Unsqueeze", {mask, graph.integers({1, 2})});
}

/// Numbers [0, end).
std::string numbers_below(Graph& graph, const std::string& end) {
  return graph.op("Range", {graph.integer(0), end, graph.integer(1)});
}

/// Rows of whole sequences, `is_token` bool [batch, length]: padding is not seen, of causal ones nothing that comes later.
Rows sequences(Graph& graph, const std::string& x, const std::string& is_token, bool causal) {
  const std::string length = graph.op("Gather", {graph.op("Shape", {is_token}), graph.integer(1)});
  Rows rows;
  rows.x = x;
  rows.tokens = is_token;
  rows.positions = numbers_below(graph, length);
  rows.distances = graph.op("Sub", {graph.op("Unsqueeze", {rows.positions, graph.integers({0})}),
                                    graph.op("Unsqueeze", {rows.positions, graph.integers({1})})});
  rows.mask = for_all_queries(graph, mask_of(graph, graph.op("Not", {is_token})));
  if (causal)
    rows.mask = graph.op(
        "Add",
        {rows.mask, mask_of(graph, graph.op("Greater", {rows.distances, graph.integer(0)}))});
  return rows;
}

/// The graph of a model, part by part.
class Builder {
 public:
  Builder(const ModelSpec& spec, const decoding::ParameterSource& source,
          const GraphOptions& options, ExternalData* external)
      : spec_(spec),
        config_(spec.decoder.layer),
        options_(options),
        graph_("", external),
        load_(graph_, spec, source, options) {
    if (external == nullptr) graph_.reserve(options.most_bytes + kMostOperatorBytes);
  }

  Graph build() {
    graph_.input(input_, kInt32, Graph::Axes{"batch", "length"});
    if (spec_.encoder_only()) {
      graph_.output("encoded", encode(), kFloat, Graph::Axes{"batch", "length", spec_.emb_dim()});
      return std::move(graph_);
    }
    graph_.input("max_decode_len", kInt64, Graph::Axes{});
    graph_.integer(options_.max_decode_len, kInt64, "max_decode_len");
    decoder_ = decoding::load_stack(load_, spec_.decoder);
    add_tables();
    if (spec_.decoder_only())
      read_prompt();
    else
      attend_encoded(encode());
    graph_.output("decodes", decode(), kInt32, Graph::Axes{"batch", "steps"});
    return std::move(graph_);
  }

 private:
  std::string table_of(const StackSpec& stack) const {
    return load_.matrix(spec_.embedding_name(stack), spec_.vocab_size, spec_.emb_dim());
  }
  void add_tables() {
    table_ = table_of(spec_.decoder);
    if (spec_.logits_via_embedding)
      logits_ = graph_.op("Transpose", {table_}, {{"perm", Integers{1, 0}}});
    else
      logits_ = load_.matrix("decoder/logits_dense/kernel", spec_.emb_dim(), spec_.vocab_size);
  }
  /// [batch, length, embed]
  std::string encode() {
    const decoding::StackWeights<Form> stack = decoding::load_stack(load_, *spec_.encoder);
    const std::string is_token = graph_.op("Greater", {input_, graph_.integer(0, kInt32)});
    const Rows rows =
        sequences(graph_, graph_.op("Gather", {table_of(*spec_.encoder), input_}), is_token, false);
    Layers layers(graph_, config_, rows);
    decoding::run_layers(layers, stack);
    cross_mask_ = rows.mask;
    return layers.norm(layers.x, stack.norm);
  }
  void attend_encoded(const std::string& encoded) {
    Layers layers(graph_, config_, Rows());
    const auto of = [&](const std::string& matrix) {
      return layers.heads(graph_.op("MatMul", {encoded, matrix}), config_.kv_heads());
    };
    for (const auto& layer : decoder_.layers)
      cross_.push_back({of(layer.cross->key_value[0]), of(layer.cross->key_value[1])});
    first_ = graph_.op("Expand", {graph_.integer(0, kInt32), shape({1})});
    const std::string none =
        graph_.op("Expand", {graph_.real(0), shape({config_.kv_heads(), 0, config_.head_dim})});
    past_.resize(decoder_.layers.size(), {none, none});
  }
  /// The start token and the prompt, at the end of their row, so that distances are those of all rows; the last of them
  /// is the first that a step reads.
  void read_prompt() {
    const std::string zero = graph_.integer(0, kInt32);
    prompt_length_ = graph_.op("Gather", {graph_.op("Shape", {input_}), graph_.integer(1)});
    // Up to the last that is no padding: an id of 0 between others is read as it is.
    const std::string numbers =
        graph_.op("Add", {numbers_below(graph_, prompt_length_), graph_.integer(1)});
    const std::string counts = graph_.op(
        "ReduceMax",
        {graph_.op("Mul", {cast(graph_, graph_.op("Greater", {input_, zero}), kInt64), numbers})},
        {{"axes", Integers{1}}, {"keepdims", int64_t{1}}});  // [batch, 1]
    padding_ = graph_.op("Sub", {prompt_length_, counts});
    const std::string columns =
        numbers_below(graph_, graph_.op("Add", {prompt_length_, graph_.integer(1)}));
    const std::string from =
        graph_.op("Max", {graph_.op("Sub", {columns, padding_}), graph_.integer(0)});
    const std::string tokens =
        graph_.op("GatherElements",
                  {graph_.op("Concat", {graph_.op("Expand", {zero, shape({1})}), input_},
                             {{"axis", int64_t{1}}}),
                   from},
                  {{"axis", int64_t{1}}});
    Layers layers(graph_, config_,
                  sequences(graph_, graph_.op("Gather", {table_, tokens}),
                            graph_.op("LessOrEqual", {padding_, columns}),
                            !spec_.inputs_bidirectional_attention));
    decoding::run_layers(layers, decoder_);
    first_ = last_of(tokens, 1);
    for (const KeyValue& kv : layers.past) past_.push_back({but_last(kv.key), but_last(kv.value)});
  }
  std::string last_of(const std::string& rows, int64_t axis) {
    return graph_.op("Slice", {rows, graph_.integers({-1}), graph_.integers({INT64_MAX}),
                               graph_.integers({axis})});
  }
  std::string but_last(const std::string& heads) {
    return graph_.op("Slice",
                     {heads, graph_.integers({0}), graph_.integers({-1}), graph_.integers({2})});
  }
  /// Axes of the batch and these.
  std::string shape(std::initializer_list<int64_t> axes) {
    const std::string batch =
        graph_.op("Gather", {graph_.op("Shape", {input_}), graph_.integers({0})});
    return graph_.op("Concat", {batch, graph_.integers(axes)}, {{"axis", int64_t{0}}});
  }
  /// A step's row after those of `past`.
  Rows row_of(Graph& body, std::vector<KeyValue> past) {
    Rows row;
    row.x = body.op("Gather", {table_, "tokens"});
    row.past = std::move(past);
    row.cross = cross_;
    row.cross_mask = cross_mask_;
    const std::string position =
        spec_.decoder_only() ? body.op("Add", {"step", prompt_length_}) : "step";
    const std::string keys = numbers_below(body, body.op("Add", {position, body.integer(1)}));
    row.positions = body.op("Unsqueeze", {position, body.integers({0})});
    row.distances =
        body.op("Unsqueeze", {body.op("Sub", {keys, position}), body.integers({0})});  // [1, keys]
    if (spec_.decoder_only())
      row.mask = for_all_queries(body, mask_of(body, body.op("Less", {keys, padding_})));
    return row;
  }
  /// The body of the Loop: from (step, go on, tokens, ended, keys and values) to (go on, tokens, ended, keys and values,
  /// tokens).
  Graph step() {
    Graph body("step_");
    body.input("step", kInt64, Graph::Axes{});
    body.input("goes_on", kBool, Graph::Axes{});
    body.input("tokens", kInt32);
    body.input("ended", kBool);
    std::vector<KeyValue> past;
    for (size_t i = 0; i < decoder_.layers.size(); ++i) {
      past.push_back({fmt::format("key_{}", i), fmt::format("value_{}", i)});
      body.input(past.back().key, kFloat);
      body.input(past.back().value, kFloat);
    }
    Layers layers(body, config_, row_of(body, std::move(past)));
    decoding::run_layers(layers, decoder_);
    const std::string logits = body.op("MatMul", {layers.norm(layers.x, decoder_.norm), logits_});
    const std::string best =
        cast(body, body.op("ArgMax", {logits}, {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}}),
             kInt32);  // [batch, 1]
    const std::string tokens = body.op("Where", {"ended", body.integer(0, kInt32), best});
    std::string ended = "ended";
    for (const int32_t id : options_.eos_ids)
      ended = body.op("Or", {ended, body.op("Equal", {best, body.integer(id, kInt32)})});
    const std::string all =
        body.op("ReduceMin", {cast(body, ended, kInt32)}, {{"keepdims", int64_t{0}}});
    body.output("goes_on_now", body.op("Equal", {all, body.integer(0, kInt32)}), kBool,
                Graph::Axes{});
    body.output("tokens_now", tokens, kInt32);
    body.output("ended_now", ended, kBool);
    for (size_t i = 0; i < decoder_.layers.size(); ++i) {
      body.output(fmt::format("key_{}_now", i), layers.past[i].key, kFloat);
      body.output(fmt::format("value_{}_now", i), layers.past[i].value, kFloat);
    }
    body.output("decoded", tokens, kInt32);
    return body;
  }
  /// [batch, steps]
  std::string decode() {
    const std::string none = graph_.op("Expand", {graph_.integer(0, kInt32), shape({1})});
    const std::string steps = graph_.op("Max", {"max_decode_len", graph_.integer(1)});
    std::vector<std::string> state = {steps, cast(graph_, graph_.integer(1), kBool), first_,
                                      cast(graph_, none, kBool)};
    for (const KeyValue& kv : past_) state.insert(state.end(), {kv.key, kv.value});
    const Graph body = step();
    const auto results = graph_.ops("Loop", state, state.size() - 1,
                                    {{"body", &body}});  // the last: [steps, batch, 1]
    const std::string rows = graph_.op("Squeeze", {results.back(), graph_.integers({2})});
    return graph_.op("Transpose", {rows}, {{"perm", Integers{1, 0}}});
  }

  const ModelSpec& spec_;
  const LayerConfig& config_;
  const GraphOptions options_;
  const std::string input_ = spec_.decoder_only() ? "inputs" : "encoder_input_tokens";
  Graph graph_;
  Loader load_;
  decoding::StackWeights<Form> decoder_;
  std::string table_, logits_;
  std::string first_;           // the token that the first step reads, int32 [batch, 1]
  std::vector<KeyValue> past_;  // before it, [batch, heads, prompt, head_dim]
  std::vector<KeyValue> cross_;
  std::string cross_mask_;
  std::string prompt_length_,
      padding_;  // of a decoder alone: tokens of past_, int64; of each row none, [batch, 1]
};

}  // namespace

void check_has_graph(const ModelSpec& spec) {
  refuse_own_network(spec);
  spec.decoder.sparse.check_generates();
  const bool is_strict = spec.encoder && spec.encoder->sparse.routes_batches() &&
                         spec.encoder->sparse.moe.strict_group_size;
  QT_CHECK(!is_strict,
           "--format=onnx: strict_group_size = True of experts that choose their tokens refuses "
           "batches, which a "
           "graph cannot; set it to False, or write a bundle (--format=bundle), which quintet "
           "serve reads");
}

Graph t5_graph(const ModelSpec& spec, const decoding::ParameterSource& source,
               const GraphOptions& options, ExternalData* external) {
  check_has_graph(spec);
  return Builder(spec, source, options, external).build();
}

}  // namespace quintet::onnx
