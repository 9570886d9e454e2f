// Embedding and its gradient, also of a block of rows of a larger table.

#include <gtest/gtest.h>

#include "kernels/embed/embed.h"
#include "tests/ops/harness.h"

namespace quintet::testing {
namespace {

// Calls f(position, local row) for every id that the block of table rows holds.
template <typename F>
void for_each_held(const Array& ids, const Array& table, const F& f) {
  for (int64_t i = 0; i < static_cast<int64_t>(ids.values.size()); ++i) {
    const int64_t row = static_cast<int64_t>(ids[i]) - table.origin[0];
    if (row >= 0 && row < table.size(0)) f(i, row);
  }
}

void embed_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const int64_t e = in[1].size(1);
  std::fill(out[0].values.begin(), out[0].values.end(), 0.0);
  for_each_held(in[0], in[1], [&](int64_t i, int64_t row) {
    for (int64_t j = 0; j < e; ++j) out[0][i * e + j] = in[1][row * e + j];
  });
}

void embed_grad_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const int64_t e = out[0].size(1);
  std::fill(out[0].values.begin(), out[0].values.end(), 0.0);
  for_each_held(in[0], out[0], [&](int64_t i, int64_t row) {
    for (int64_t j = 0; j < e; ++j) out[0][row * e + j] += in[1][i * e + j];
  });
}

// Rows [origin, origin + rows) of a table of `vocabulary` rows.
struct Table {
  int64_t vocabulary, depth;
  int64_t origin = 0;
  int64_t rows = -1;  // -1: all
};

void add_cases(std::vector<OpCase>& cases, const std::string& name, const Shape& ids,
               const Table& t, bool only_bench = false) {
  const int64_t rows = t.rows < 0 ? t.vocabulary : t.rows;
  Operand table = normal({rows, t.depth});
  table.origin = {t.origin, 0};
  table.global = {t.vocabulary, t.depth};
  Shape y = ids;
  y.push_back(t.depth);
  int64_t count = 1;
  for (int64_t s : ids) count *= s;
  OpCase c{.name = "embed/" + name, .kernel = embed_cpu};
  c.inputs = {integers(ids, 0, t.vocabulary), table};
  c.outputs = {result(y)};
  c.oracle = embed_oracle;
  c.tolerance = 0;  // a copy
  c.only_bench = only_bench;
  c.bytes = 8.0 * static_cast<double>(count * t.depth);
  c.grads = {{embed_grad_cpu, {input(0), cotangent(0)}, {1}}};
  cases.push_back(c);
  c.name = "embed_grad/" + name;
  c.kernel = embed_grad_cpu;
  c.inputs[1] = normal(y);
  c.outputs = {{.shape = table.shape, .origin = table.origin, .global = table.global}};
  c.oracle = embed_grad_oracle;
  c.tolerance = 2e-6;
  c.adds = {0};
  c.bytes = 4.0 * static_cast<double>(3 * count * t.depth + rows * t.depth);
  c.grads = {};
  cases.push_back(c);
}

}  // namespace

std::vector<OpCase> embed_cases() {
  std::vector<OpCase> cases;
  add_cases(cases, "2x3", {2, 3}, {.vocabulary = 7, .depth = 5});
  add_cases(cases, "scalar_id", {}, {.vocabulary = 3, .depth = 4});
  add_cases(cases, "no_ids", {0, 4}, {.vocabulary = 3, .depth = 4});
  add_cases(cases, "one_row_table", {9}, {.vocabulary = 1, .depth = 1});
  add_cases(cases, "block_of_rows", {4, 5}, {.vocabulary = 11, .depth = 3, .origin = 4, .rows = 3});
  add_cases(cases, "block_without_rows", {5},
            {.vocabulary = 6, .depth = 3, .origin = 6, .rows = 0});
  add_cases(cases, "many", {16, 129}, {.vocabulary = 50, .depth = 67});
  add_cases(cases, "t5_small", {8, 256}, {.vocabulary = 32128, .depth = 512}, true);
  return cases;
}

TEST(Embed, NamesAnIdOutsideTheVocabulary) {
  const std::vector<int64_t> ids_shape{3}, table_shape{4, 2}, y_shape{3, 2};
  std::vector<float> table(8), y(6);
  for (int32_t bad : {4, -1}) {
    std::vector<int32_t> ids{0, 3, bad};
    const std::vector<View> in{View::of(ids.data(), ids_shape),
                               View::of(table.data(), table_shape)};
    const std::vector<View> out{View::of(y.data(), y_shape)};
    try {
      embed_cpu(in, out, {}, {});
      FAIL() << "id " << bad << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      const std::string message = error.what();
      EXPECT_NE(message.find(fmt::format("id {} at position 2", bad)), message.npos) << message;
      EXPECT_NE(message.find("4 rows"), message.npos) << message;
    }
  }
}

}  // namespace quintet::testing
