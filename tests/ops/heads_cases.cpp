// Columns of heads taken apart and put together.

#include "kernels/heads/heads.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

struct Setting {
  std::string name;
  Shape leading;
  int64_t heads;
  std::vector<int64_t> widths;  // two or three
  bool only_bench = false;
};

/// Calls use(element of the whole, part, element of it).
template <typename Use>
void for_elements(const Array& whole, const Arrays& parts, int64_t heads, const Use& use) {
  int64_t i = 0;
  for (int64_t piece = 0; i < std::ssize(whole.values); ++piece)
    for (size_t p = 0; p < parts.size(); ++p) {
      const int64_t width = parts[p].absent ? 0 : parts[p].depth() / heads;
      for (int64_t c = 0; c < width; ++c) use(i++, p, piece * width + c);
    }
}

std::vector<OpCase> make_cases(const Setting& s) {
  OpCase split{.name = "split_heads/" + s.name, .kernel = split_heads_cpu};
  OpCase join{.name = "join_heads/" + s.name, .kernel = join_heads_cpu};
  const auto rows = [&](int64_t columns) {
    Shape shape = s.leading;
    shape.push_back(columns);
    return shape;
  };
  int64_t whole = 0;
  const char* const letters[] = {"p", "q", "r"};
  split.attrs = join.attrs = {{"h", s.heads}};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t width = i < s.widths.size() ? s.widths[i] : 0;
    whole += width * s.heads;
    split.attrs.set(letters[i], width);
    split.outputs.push_back(width == 0 ? no_result() : result(rows(width * s.heads)));
    join.inputs.push_back(width == 0 ? no_operand() : normal(rows(width * s.heads)));
  }
  split.inputs = {normal(rows(whole))};
  join.outputs = {result(rows(whole))};
  join.attrs.set("n", whole / s.heads);
  split.oracle = [h = s.heads](const Arrays& in, Arrays& out, const Attrs&) {
    for_elements(in[0], out, h, [&](int64_t i, size_t p, int64_t at) { out[p][at] = in[0][i]; });
  };
  join.oracle = [h = s.heads](const Arrays& in, Arrays& out, const Attrs&) {
    for_elements(out[0], in, h, [&](int64_t i, size_t p, int64_t at) { out[0][i] = in[p][at]; });
  };
  const bool two = s.widths.size() == 2;
  split.grads = {{join_heads_cpu, {cotangent(0), cotangent(1), two ? none() : cotangent(2)}, {0}}};
  join.grads = {{split_heads_cpu, {cotangent(0)}, {0, 1, two ? -1 : 2}}};
  for (OpCase* c : {&split, &join}) {
    c->tolerance = 0;
    c->only_bench = s.only_bench;
    c->bytes = 8.0 * static_cast<double>(whole);
    for (const int64_t size : s.leading) c->bytes *= static_cast<double>(size);
  }
  return {split, join};
}

/// Heads 1 and 2 of 4.
OpCase block_case() {
  OpCase c = make_cases({"block", {3}, 2, {2, 3}})[0];
  c.attrs.set("h", int64_t{4});
  c.inputs[0].origin = {0, 5};
  c.inputs[0].global = {3, 20};
  return c;
}

}  // namespace

std::vector<OpCase> heads_cases() {
  std::vector<OpCase> cases{block_case()};
  for (const Setting& s : std::vector<Setting>{{"of_three", {2, 3}, 3, {4, 5, 5}},
                                               {"of_two", {5}, 2, {3, 1}},
                                               {"one_head", {2, 2}, 1, {8, 8}},
                                               {"aligned", {3}, 2, {8, 16, 16}},
                                               {"empty", {0, 2}, 2, {3, 4}},
                                               {"base", {8, 512}, 12, {64, 170, 170}, true}})
    for (const OpCase& c : make_cases(s)) cases.push_back(c);
  return cases;
}

}  // namespace quintet::testing
