// Cases of attention and attention_grad.

#include <utility>

#include "kernels/attention/ranges.h"
#include "tests/ops/attention_oracle.h"

namespace quintet::testing {
namespace {

void forward_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  AttentionOracle(in, attrs).forward(out[0], out[1]);
}

void gradient_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  AttentionOracle(in, attrs).gradient(in[10], out[0], out[1], out[2], out[3]);
}

struct Setting {
  std::string name;
  int64_t batch = 2, queries = 5, keys = 5, heads = 2, depth = 4;
  int64_t buckets = 0;  // 0: no table
  int64_t max_distance = 128;
  Operand q_segments = no_operand(), kv_segments = no_operand(), prefix = no_operand();
  Attrs attrs{};
  bool has_gradient =
      true;  // false: a query has no allowed key, so the oracle is not differentiable
};

OpCase make_case(const Setting& s) {
  OpCase c{.name = "attention/" + s.name, .kernel = attention_cpu};
  const Shape q{s.batch, s.queries, s.heads * s.depth}, k{s.batch, s.keys, s.heads * s.depth};
  // Scores of unit variance, so that softmax is neither flat nor a maximum.
  const double deviation = s.depth == 0 ? 1 : std::pow(static_cast<double>(s.depth), -0.25);
  c.inputs = {normal(q, deviation),
              normal(k, deviation),
              normal(k),
              s.buckets == 0 ? no_operand() : normal({s.heads, s.buckets}),
              s.q_segments,
              s.kv_segments,
              s.prefix,
              no_operand()};
  c.outputs = {result(q), result({s.batch, s.heads, s.queries})};
  c.attrs = s.attrs;
  c.attrs.set("h", s.heads);
  if (s.buckets > 0) c.attrs.set("max_distance", s.max_distance);
  c.oracle = forward_oracle;
  if (s.has_gradient)
    c.grads = {{.kernel = attention_grad_cpu,
                .operands = {input(0), input(1), input(2), input(3), input(4), input(5), input(6),
                             input(7), output(0), output(1), cotangent(0)},
                .results = {0, 1, 2, s.buckets == 0 ? -1 : 3},
                .adds = s.buckets == 0 ? std::vector<int>{} : std::vector<int>{3}}};
  c.flops = 4.0 * static_cast<double>(s.batch * s.heads * s.queries * s.keys * s.depth);
  return c;
}

Operand around(Shape shape, double value) {
  return {.shape = std::move(shape), .value = [value](int64_t, std::mt19937_64&) { return value; }};
}

// attention_grad on its own, timed, with out and lse of plausible size.
OpCase gradient_bench(const OpCase& forward) {
  OpCase c = forward;
  c.name = "attention_grad" + forward.name.substr(forward.name.find('/'));
  c.kernel = attention_grad_cpu;
  c.inputs.insert(c.inputs.end(),
                  {normal(forward.outputs[0].shape), around(forward.outputs[1].shape, 6.0),
                   normal(forward.outputs[0].shape)});
  c.outputs = {result(c.inputs[0].shape), result(c.inputs[1].shape), result(c.inputs[1].shape),
               c.inputs[3].absent ? no_result() : result(c.inputs[3].shape)};
  c.oracle = gradient_oracle;
  c.grads = {};
  c.flops *= 2.5;
  return c;
}

// The ranges of a mask with segments (ranges.h), from who may attend to whom.
void ranges_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const auto plain = [](int64_t batch, int64_t length) {
    return Array{.shape = {batch, length, 1},
                 .values = {},
                 .absent = false,
                 .origin = {0, 0, 0},
                 .global = {batch, length, 1}};
  };
  const int64_t batch = in[0].size(0), queries = in[0].size(1), keys = in[1].size(1);
  const Array q = plain(batch, queries), k = plain(batch, keys);
  const Attrs mask{{"h", int64_t{1}}, {"causal", attrs.get_or<bool>("causal", false)}};
  Array none = q;
  none.absent = true;
  const Arrays operands{q, k, k, none, in[0], in[1], in[2]};
  const AttentionOracle oracle(operands, mask);
  const int64_t tiles = (queries + 63) / 64, n = out[0].size(1);
  std::fill(out[0].values.begin(), out[0].values.end(), 0.0);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i) {
      double begin = 0, end = static_cast<double>(keys), count = 0;
      for (int64_t j = 0; j < keys; ++j) {
        if (!oracle.allowed(b, i, j)) continue;
        if (count++ == 0) begin = static_cast<double>(j);
        end = static_cast<double>(j + 1);
      }
      const bool is_none = count == 0, has_holes = !is_none && count < end - begin;
      const auto at = [&](int64_t entry) -> double& { return out[0][b * n + entry]; };
      at(4 * tiles + 2 * i) = begin;
      at(4 * tiles + 2 * i + 1) = end + (has_holes ? 1 << 30 : 0) - (is_none ? 0x1p31 : 0);
      const int64_t tile = 4 * (i / 64);
      const double inner = is_none || has_holes ? 0 : end;
      const bool is_first = i % 64 == 0;
      at(tile) = is_first ? begin : std::min(at(tile), begin);
      at(tile + 1) = std::max(at(tile + 1), end);
      at(tile + 2) = std::max(at(tile + 2), begin);
      at(tile + 3) = is_first ? inner : std::min(at(tile + 3), inner);
    }
}

OpCase ranges_case(const Setting& s) {
  OpCase c{.name = "attention_ranges/" + s.name, .kernel = attention_ranges_cpu};
  const int64_t n = attention::ranges_length(s.queries);
  c.inputs = {s.q_segments, s.kv_segments, s.prefix};
  c.outputs = {result({s.batch, n}, DType::i32)};
  c.attrs = {{"causal", s.attrs.get_or<bool>("causal", false)}, {"n", n}};
  c.oracle = ranges_oracle;
  return c;
}

// Segments 1, 2, ... of the given lengths, then padding; a row a list.
Operand packed(const std::vector<std::vector<int64_t>>& rows, int64_t length) {
  std::vector<double> ids;
  for (const auto& row : rows) {
    const size_t start = ids.size();
    for (size_t s = 0; s < row.size(); ++s)
      ids.insert(ids.end(), static_cast<size_t>(row[s]), static_cast<double>(s + 1));
    ids.resize(start + static_cast<size_t>(length), 0.0);
  }
  return values({static_cast<int64_t>(rows.size()), length}, ids, DType::i32);
}

void add_shapes(std::vector<Setting>& settings) {
  settings.push_back({.name = "plain"});
  settings.push_back({.name = "one_key", .queries = 3, .keys = 1, .buckets = 8});
  settings.push_back({.name = "one_query", .queries = 1, .keys = 7, .buckets = 8});
  settings.push_back({.name = "few_queries", .queries = 4, .keys = 37, .depth = 67, .buckets = 32});
  settings.push_back({.name = "no_keys", .queries = 3, .keys = 0, .has_gradient = false});
  settings.push_back({.name = "no_keys_tiled", .queries = 9, .keys = 0, .has_gradient = false});
  settings.push_back({.name = "no_queries", .queries = 0, .keys = 3, .buckets = 8});
  settings.push_back({.name = "no_batch", .batch = 0, .buckets = 8});
  settings.push_back({.name = "odd",
                      .queries = 19,
                      .keys = 45,
                      .heads = 3,
                      .depth = 13,
                      .buckets = 8,
                      .max_distance = 20,
                      .attrs = {{"scale", 0.3}}});
  settings.push_back(
      {.name = "wide", .batch = 1, .queries = 9, .keys = 6, .heads = 1, .depth = 70});
  settings.push_back({.name = "two_tiles",
                      .batch = 1,
                      .queries = 131,
                      .keys = 33,
                      .heads = 1,
                      .depth = 3,
                      .buckets = 32});
  settings.push_back({.name = "two_blocks_of_keys",
                      .batch = 1,
                      .queries = 6,
                      .keys = 1100,
                      .heads = 1,
                      .depth = 5,
                      .buckets = 32});
}

void add_masks(std::vector<Setting>& settings) {
  const Attrs causal{{"causal", true}, {"bidirectional", false}};
  settings.push_back({.name = "causal", .queries = 33, .keys = 33, .buckets = 8, .attrs = causal});
  settings.push_back(
      {.name = "causal_few", .queries = 3, .keys = 3, .buckets = 8, .attrs = causal});
  Attrs later = causal;
  later.set("q_offset", int64_t{6});
  settings.push_back({.name = "causal_offset", .queries = 5, .keys = 40, .attrs = later});
  settings.push_back(
      {.name = "causal_step", .queries = 1, .keys = 40, .buckets = 8, .attrs = later});
  settings.push_back({.name = "causal_blocks",
                      .batch = 1,
                      .queries = 540,
                      .keys = 540,
                      .heads = 1,
                      .depth = 2,
                      .attrs = causal});
  const Operand full = packed({{4, 5, 3}, {12}}, 12);
  settings.push_back({.name = "packed",
                      .queries = 12,
                      .keys = 12,
                      .buckets = 8,
                      .q_segments = full,
                      .kv_segments = full});
  settings.push_back({.name = "packed_causal",
                      .queries = 12,
                      .keys = 12,
                      .buckets = 8,
                      .q_segments = full,
                      .kv_segments = full,
                      .attrs = causal});
  settings.push_back({.name = "packed_cross",
                      .queries = 8,
                      .keys = 50,
                      .q_segments = packed({{4, 4}, {3, 5}}, 8),
                      .kv_segments = packed({{20, 17}, {35, 15}}, 50)});
  // The second tile of queries begins with a segment that does not begin on a panel of keys.
  const Operand tiles = packed({{147, 133}}, 280);
  settings.push_back({.name = "packed_tiles",
                      .batch = 1,
                      .queries = 280,
                      .keys = 280,
                      .heads = 1,
                      .depth = 3,
                      .buckets = 32,
                      .q_segments = tiles,
                      .kv_segments = tiles});
  // Keys in several runs of one segment, and padding between them.
  const Operand scattered =
      values({2, 9}, {1, 2, 1, 0, 2, 2, 1, 1, 2, 3, 3, 0, 3, 0, 3, 3, 3, 3}, DType::i32);
  const Operand askers = values({2, 6}, {1, 2, 2, 1, 1, 2, 3, 3, 3, 3, 3, 3}, DType::i32);
  settings.push_back({.name = "holes",
                      .queries = 6,
                      .keys = 9,
                      .buckets = 8,
                      .q_segments = askers,
                      .kv_segments = scattered});
  settings.push_back({.name = "holes_few",
                      .queries = 3,
                      .keys = 9,
                      .buckets = 8,
                      .q_segments = values({2, 3}, {2, 1, 2, 3, 3, 3}, DType::i32),
                      .kv_segments = scattered});
  const Operand prefix = values({2, 12}, {1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                          1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0},
                                DType::i32);
  settings.push_back({.name = "prefix",
                      .queries = 12,
                      .keys = 12,
                      .buckets = 8,
                      .prefix = prefix,
                      .attrs = causal});
  settings.push_back({.name = "prefix_packed",
                      .queries = 12,
                      .keys = 12,
                      .buckets = 8,
                      .q_segments = packed({{9, 3}, {6, 6}}, 12),
                      .kv_segments = packed({{9, 3}, {6, 6}}, 12),
                      .prefix = prefix,
                      .attrs = causal});
  const Operand padded = packed({{4, 3}, {9}}, 12);
  settings.push_back({.name = "padded",
                      .queries = 12,
                      .keys = 12,
                      .buckets = 8,
                      .q_segments = padded,
                      .kv_segments = padded,
                      .has_gradient = false});
  settings.push_back({.name = "padded_prefix",
                      .queries = 12,
                      .keys = 12,
                      .buckets = 8,
                      .q_segments = padded,
                      .kv_segments = padded,
                      .prefix = prefix,
                      .attrs = causal,
                      .has_gradient = false});
  settings.push_back({.name = "all_padding",
                      .queries = 7,
                      .keys = 5,
                      .q_segments = packed({{7}, {7}}, 7),
                      .kv_segments = packed({{}, {2}}, 5),
                      .has_gradient = false});
  settings.push_back({.name = "few_padded",
                      .queries = 2,
                      .keys = 5,
                      .q_segments = packed({{2}, {1}}, 2),
                      .kv_segments = packed({{}, {2}}, 5),
                      .has_gradient = false});
}

// Blocks of a larger array: heads 2 and 3 of 5, sequences from 4 on, queries from 7 on.
OpCase block_case() {
  OpCase c = make_case({.name = "block",
                        .queries = 6,
                        .keys = 20,
                        .buckets = 8,
                        .attrs = {{"causal", true},
                                  {"bidirectional", false},
                                  {"rate", 0.4},
                                  {"key0", int64_t{3}},
                                  {"key1", int64_t{4000000000}}}});
  c.attrs.set("h", int64_t{5});
  const auto place = [](auto& view, Shape origin, Shape global) {
    view.origin = std::move(origin);
    view.global = std::move(global);
  };
  place(c.inputs[0], {4, 7, 8}, {9, 13, 20});
  place(c.inputs[1], {4, 0, 8}, {9, 20, 20});
  place(c.inputs[2], {4, 0, 8}, {9, 20, 20});
  place(c.inputs[3], {2, 0}, {5, 8});
  place(c.outputs[0], {4, 7, 8}, {9, 13, 20});
  place(c.outputs[1], {4, 2, 7}, {9, 5, 13});
  return c;
}

void add_dropout(std::vector<Setting>& settings) {
  const Attrs dropped{{"rate", 0.3}, {"key0", int64_t{17}}, {"key1", int64_t{4242}}};
  settings.push_back(
      {.name = "dropout", .queries = 11, .keys = 21, .buckets = 8, .attrs = dropped});
  settings.push_back({.name = "dropout_few", .queries = 2, .keys = 21, .attrs = dropped});
  settings.push_back({.name = "dropout_padded",
                      .queries = 12,
                      .keys = 12,
                      .q_segments = packed({{4, 3}, {9}}, 12),
                      .kv_segments = packed({{4, 3}, {9}}, 12),
                      .attrs = dropped,
                      .has_gradient = false});
}

// T5 1.1 small, 8 x (256 -> 64).
std::vector<OpCase> benches() {
  const Attrs causal{{"causal", true}, {"bidirectional", false}};
  std::vector<OpCase> made;
  for (const Setting& s : std::vector<Setting>{{.name = "t5_small_encoder",
                          .batch = 8,
                          .queries = 256,
                          .keys = 256,
                          .heads = 6,
                          .depth = 64,
                          .buckets = 32},
                                               {.name = "t5_small_cross",
                                               .batch = 8,
                                               .queries = 64,
                                               .keys = 256,
                                               .heads = 6,
                                               .depth = 64},
                                               {.name = "t5_small_decoder",
                                               .batch = 8,
                                               .queries = 64,
                                               .keys = 64,
                                               .heads = 6,
                                               .depth = 64,
                                               .buckets = 32,
                                               .attrs = causal},
                                               {.name = "t5_base_encoder",
                                               .batch = 2,
                                               .queries = 512,
                                               .keys = 512,
                                               .heads = 12,
                                               .depth = 64,
                                               .buckets = 32},
                                               {.name = "long_causal",
                                               .batch = 1,
                                               .queries = 2048,
                                               .keys = 2048,
                                               .heads = 2,
                                               .depth = 64,
                                               .buckets = 32,
                                               .attrs = causal},
                                               {.name = "decode_step",
                                               .batch = 8,
                                               .queries = 1,
                                               .keys = 128,
                                               .heads = 6,
                                               .depth = 64,
                                               .buckets = 32}}) {
    OpCase c = make_case(s);
    c.only_bench = true;
    made.push_back(c);
    if (s.queries > 1) made.push_back(gradient_bench(c));
  }
  return made;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<Setting> settings;
  add_shapes(settings);
  add_masks(settings);
  add_dropout(settings);
  std::vector<OpCase> cases;
  for (const Setting& s : settings) {
    cases.push_back(make_case(s));
    if (!s.q_segments.absent) cases.push_back(ranges_case(s));
  }
  cases.push_back(block_case());
  OpCase unsaved = make_case({.name = "without_lse", .queries = 9, .buckets = 8});
  unsaved.outputs[1] = no_result();
  unsaved.grads = {};
  cases.push_back(unsaved);
  for (OpCase& c : benches()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace quintet::testing
