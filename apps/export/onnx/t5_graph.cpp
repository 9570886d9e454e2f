#include "apps/export/onnx/t5_graph.h"

#include <cmath>

#include "apps/export/onnx/weights.h"
#include "models/decoding/network/layer.h"
#include "runtime/base/check.h"

namespace quintet::onnx {
namespace {

using Attention = decoding::AttentionWeights<Form>;
using Stack = decoding::StackWeights<Form>;

constexpr float kNormEpsilon = 1e-6f, kMasked = -1e10f;

/// What a layer does in either stack: rows [batch, length, embed] are `x`.
class Layers {
 public:
  Layers(Graph& graph, const LayerConfig& config, std::string rows)
      : x(std::move(rows)), graph_(graph), config_(config) {}

  std::string x;

  std::string norm(const std::string& rows, const std::string& gain) {
    const std::string mean =
        graph_.op("ReduceMean", {graph_.op("Mul", {rows, rows})},
                  {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{1}}});
    const std::string root =
        graph_.op("Sqrt", {graph_.op("Add", {mean, graph_.real(kNormEpsilon)})});
    return graph_.op("Mul", {graph_.op("Div", {rows, root}), gain});
  }
  /// [batch, length, joined_kv] -> [batch, heads, length, head_dim]
  std::string heads(const std::string& rows) {
    const std::string split =
        graph_.op("Reshape", {rows, graph_.integers({0, -1, config_.num_heads, config_.head_dim})});
    return graph_.op("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }
  void add_product(const std::string& matrix) { add(graph_.op("MatMul", {found_, matrix})); }
  void add_mlp(const std::string& gain, const Mlp& mlp) {
    const std::string rows = norm(x, gain);
    std::string hidden;
    for (size_t i = 0; i < mlp.in.size(); ++i) {
      const std::string h = activated(graph_.op("MatMul", {rows, mlp.in[i]}), mlp.activations[i]);
      hidden = hidden.empty() ? h : graph_.op("Mul", {hidden, h});
    }
    add(graph_.op("MatMul", {hidden, mlp.out}));
  }
  void add_mlp(const std::string&, const NoExperts&) { throw Bug("ONNX: a layer of experts"); }

 protected:
  /// Of queries, keys and values [batch, heads, length, head_dim].
  void attend(const std::string& query, const std::string& key, const std::string& value,
              const std::string& bias) {
    const std::string keys =
        graph_.op("Transpose", {key}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    const std::string scores = graph_.op("Add", {graph_.op("MatMul", {query, keys}), bias});
    const std::string weights = graph_.op("Softmax", {scores}, {{"axis", int64_t{-1}}});
    const std::string joined = graph_.op("Transpose", {graph_.op("MatMul", {weights, value})},
                                         {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    found_ = graph_.op("Reshape", {joined, graph_.integers({0, -1, config_.joined_kv()})});
  }
  /// Of key - query, positions int64 [..]: [1, heads, ..]
  std::string bias_of(const std::string& table, const std::string& distances) {
    const std::string most = graph_.integer(config_.max_distance);
    const std::string low = graph_.op("Max", {distances, graph_.integer(-config_.max_distance)});
    const std::string index = graph_.op("Add", {graph_.op("Min", {low, most}), most});
    return graph_.op("Unsqueeze", {graph_.op("Gather", {table, index}, {{"axis", int64_t{1}}}),
                                   graph_.integers({0})});
  }
  Graph& graph_;
  const LayerConfig& config_;

 private:
  void add(const std::string& rows) { x = graph_.op("Add", {x, rows}); }
  std::string activated(const std::string& h, Activation activation) {
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
        const std::string slope =
            graph_.op("Mul", {h, graph_.real(std::sqrt(2 / std::acos(-1.0f)))});
        return half(h, graph_.op("Tanh", {graph_.op("Mul", {slope, inner})}));
      }
      case Activation::gelu_erf:  // h / 2 (1 + erf(h / sqrt(2)))
        return half(h, graph_.op("Erf", {graph_.op("Mul", {h, graph_.real(std::sqrt(0.5f))})}));
    }
    QT_ASSERT(false);
  }
  std::string half(const std::string& h, const std::string& of) {
    return graph_.op(
        "Mul", {graph_.op("Mul", {h, graph_.real(0.5f)}), graph_.op("Add", {of, graph_.real(1)})});
  }
  std::string found_;  // by attention, [batch, length, joined_kv]
};

/// Whole inputs, which attend both ways, but to no padding.
class Encoder : public Layers {
 public:
  Encoder(Graph& graph, const LayerConfig& config, const std::string& tokens, std::string rows)
      : Layers(graph, config, std::move(rows)) {
    const std::string padding = graph.op("LessOrEqual", {tokens, graph.integer(0, kInt32)});
    mask = graph.op("Mul",
                    {graph.op("Cast", {padding}, {{"to", int64_t{kFloat}}}), graph.real(kMasked)});
    mask = graph.op("Unsqueeze", {mask, graph.integers({1, 2})});
    const std::string length = graph.op("Gather", {graph.op("Shape", {tokens}), graph.integer(1)});
    const std::string positions = graph.op("Range", {graph.integer(0), length, graph.integer(1)});
    distances_ = graph.op("Sub", {graph.op("Unsqueeze", {positions, graph.integers({0})}),
                                  graph.op("Unsqueeze", {positions, graph.integers({1})})});
  }
  std::string mask;  // [batch, 1, 1, length]: kMasked where there is padding

  void project(size_t, const Attention& attention) {
    const std::string rows = norm(x, attention.norm);
    for (size_t i = 0; i < 3; ++i) qkv_[i] = heads(graph_.op("MatMul", {rows, attention.in[i]}));
  }
  void attend_self(size_t, const Attention& attention) {
    if (table_ != attention.relative_bias) {  // layers may share one
      table_ = attention.relative_bias;
      bias_ = graph_.op("Add", {bias_of(table_, distances_), mask});
    }
    attend(qkv_[0], qkv_[1], qkv_[2], bias_);
  }
  void attend_cross(size_t) { throw Bug("ONNX: an encoder attends to itself"); }

 private:
  std::string distances_, table_, bias_, qkv_[3];
};

/// Keys and values of a layer, [batch, heads, length, head_dim].
struct KeyValue {
  std::string key, value;
};

/// A step: one token of each row.
class Step : public Layers {
 public:
  Step(Graph& body, const LayerConfig& config, std::string rows, const std::string& position,
       std::vector<KeyValue> past, const std::vector<KeyValue>& cross, const std::string& mask)
      : Layers(body, config, std::move(rows)), past_(std::move(past)), cross_(cross), mask_(mask) {
    const std::string end = body.op("Add", {position, body.integer(1)});
    const std::string keys = body.op("Range", {body.integer(0), end, body.integer(1)});
    distances_ =
        body.op("Unsqueeze", {body.op("Sub", {keys, position}), body.integers({0})});  // [1, keys]
  }
  const std::vector<KeyValue>& past() const { return past_; }

  void project(size_t i, const Attention& attention) {
    const std::string rows = norm(x, attention.norm);
    query_ = heads(graph_.op("MatMul", {rows, attention.in[0]}));
    if (attention.in.size() == 1) return;  // of cross-attention
    KeyValue& kv = past_[i];
    kv.key = with(kv.key, graph_.op("MatMul", {rows, attention.in[1]}));
    kv.value = with(kv.value, graph_.op("MatMul", {rows, attention.in[2]}));
  }
  void attend_self(size_t i, const Attention& attention) {
    if (table_ != attention.relative_bias) {
      table_ = attention.relative_bias;
      bias_ = bias_of(table_, distances_);
    }
    attend(query_, past_[i].key, past_[i].value, bias_);
  }
  void attend_cross(size_t i) { attend(query_, cross_[i].key, cross_[i].value, mask_); }

 private:
  std::string with(const std::string& past, const std::string& rows) {
    return graph_.op("Concat", {past, heads(rows)}, {{"axis", int64_t{2}}});
  }
  std::vector<KeyValue> past_;
  const std::vector<KeyValue>& cross_;
  std::string mask_, distances_, table_, bias_, query_;
};

/// The graph of a model, part by part.
class Builder {
 public:
  Builder(const ModelSpec& spec, const decoding::ParameterSource& source,
          const GraphOptions& options)
      : spec_(spec),
        config_(spec.decoder.layer),
        options_(options),
        load_(graph_, spec, source, options.dtype) {}

  Graph build() {
    graph_.input("encoder_input_tokens", kInt32, Graph::Axes{"batch", "length"});
    graph_.input("max_decode_len", kInt64, Graph::Axes{});
    graph_.integer(options_.max_decode_len, kInt64, "max_decode_len");
    add_tables();
    encode();
    graph_.output("decodes", decode(), kInt32, Graph::Axes{"batch", "steps"});
    return std::move(graph_);
  }

 private:
  void add_tables() {
    const int64_t v = spec_.vocab_size, e = spec_.emb_dim();
    table_ = load_.matrix(spec_.embedding_name(spec_.decoder), v, e);
    encoder_table_ = spec_.separate_embeddings
                         ? load_.matrix(spec_.embedding_name(*spec_.encoder), v, e)
                         : table_;
    if (spec_.logits_via_embedding)
      logits_ = graph_.op("Transpose", {table_}, {{"perm", std::vector<int64_t>{1, 0}}});
    else
      logits_ = load_.matrix("decoder/logits_dense/kernel", e, v);
  }
  void encode() {
    const Stack stack = decoding::load_stack(load_, *spec_.encoder);
    decoder_ = decoding::load_stack(load_, spec_.decoder);
    Encoder encoder(graph_, config_, "encoder_input_tokens",
                    graph_.op("Gather", {encoder_table_, "encoder_input_tokens"}));
    decoding::run_layers(encoder, stack);
    const std::string encoded = encoder.norm(encoder.x, stack.norm);
    mask_ = encoder.mask;
    for (const auto& layer : decoder_.layers)
      cross_.push_back({encoder.heads(graph_.op("MatMul", {encoded, layer.cross->key_value[0]})),
                        encoder.heads(graph_.op("MatMul", {encoded, layer.cross->key_value[1]}))});
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
    Step step(body, config_, body.op("Gather", {table_, "tokens"}), "step", std::move(past), cross_,
              mask_);
    decoding::run_layers(step, decoder_);
    std::string logits = body.op("MatMul", {step.norm(step.x, decoder_.norm), logits_});
    const std::string best = body.op(
        "Cast", {body.op("ArgMax", {logits}, {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}})},
        {{"to", int64_t{kInt32}}});  // [batch, 1]
    const std::string tokens = body.op("Where", {"ended", body.integer(0, kInt32), best});
    const std::string ended =
        body.op("Or", {"ended", body.op("Equal", {best, body.integer(options_.eos_id, kInt32)})});
    const std::string all =
        body.op("ReduceMin", {body.op("Cast", {ended}, {{"to", int64_t{kInt32}}})},
                {{"keepdims", int64_t{0}}});
    body.output("goes_on_now", body.op("Equal", {all, body.integer(0, kInt32)}), kBool,
                Graph::Axes{});
    body.output("tokens_now", tokens, kInt32);
    body.output("ended_now", ended, kBool);
    for (size_t i = 0; i < decoder_.layers.size(); ++i) {
      body.output(fmt::format("key_{}_now", i), step.past()[i].key, kFloat);
      body.output(fmt::format("value_{}_now", i), step.past()[i].value, kFloat);
    }
    body.output("decoded", tokens, kInt32);
    return body;
  }
  /// [batch, steps]
  std::string decode() {
    const std::string batch =
        graph_.op("Gather", {graph_.op("Shape", {"encoder_input_tokens"}), graph_.integers({0})});
    const auto shape = [&](std::initializer_list<int64_t> axes) {
      return graph_.op("Concat", {batch, graph_.integers(axes)}, {{"axis", int64_t{0}}});
    };
    const std::string one = shape({1}), none = shape({config_.num_heads, 0, config_.head_dim});
    const std::string zero = graph_.op("Expand", {graph_.integer(0, kInt32), one});
    std::vector<std::string> state = {
        "max_decode_len", graph_.op("Cast", {graph_.integer(1)}, {{"to", int64_t{kBool}}}), zero,
        graph_.op("Cast", {zero}, {{"to", int64_t{kBool}}})};
    const std::string empty = graph_.op("Expand", {graph_.real(0), none});
    state.resize(state.size() + 2 * decoder_.layers.size(), empty);
    const Graph body = step();
    const auto results = graph_.ops("Loop", state, state.size() - 1,
                                    {{"body", &body}});  // the last: [steps, batch, 1]
    const std::string rows = graph_.op("Squeeze", {results.back(), graph_.integers({2})});
    return graph_.op("Transpose", {rows}, {{"perm", std::vector<int64_t>{1, 0}}});
  }

  const ModelSpec& spec_;
  const LayerConfig& config_;
  const GraphOptions options_;
  Graph graph_;
  Loader load_;
  Stack decoder_;
  std::vector<KeyValue> cross_;
  std::string table_, encoder_table_, logits_, mask_;
};

}  // namespace

void check_has_graph(const ModelSpec& spec) {
  refuse_own_network(spec);
  const auto refuse = [](bool has, const char* what) {
    QT_CHECK(!has,
             "--format=onnx: {} has no ONNX graph here; write a bundle (--format=bundle), "
             "which quintet serve reads",
             what);
  };
  refuse(spec.has_experts(), "a mixture of experts");
  refuse(spec.decoder_only(), "a decoder without encoder");
  refuse(spec.encoder_only(), "an encoder without decoder");
  refuse(spec.decoder.layer.rotary_max_timescale.has_value(), "a network with rotary embeddings");
}

Graph t5_graph(const ModelSpec& spec, const decoding::ParameterSource& source,
               const GraphOptions& options) {
  check_has_graph(spec);
  return Builder(spec, source, options).build();
}

}  // namespace quintet::onnx
