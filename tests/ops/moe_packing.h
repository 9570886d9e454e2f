#pragma once
// Packed rows and products with each expert's matrices: cases for every device, and for the tiles of
// GPU kernels.

#include <algorithm>
#include <cmath>

#include "kernels/mlp/mlp.h"
#include "kernels/moe/experts.h"
#include "tests/ops/activation_oracle.h"
#include "tests/ops/harness.h"

namespace quintet::testing {

// Random choices of experts for b l tokens, packed: what route would have given.
struct Packing {
  int64_t b, l, k, experts, n;
  std::vector<double> rows, choices, offsets, expert_of_row;

  /// So many rows for each expert, and `unused` ones for none.
  Packing(const std::vector<int64_t>& rows_of, int64_t unused) : b(1), k(1) {
    experts = static_cast<int64_t>(rows_of.size());
    for (int64_t e = 0; e < experts; ++e) {
      offsets.push_back(static_cast<double>(expert_of_row.size()));
      const auto count = static_cast<size_t>(rows_of[static_cast<size_t>(e)]);
      expert_of_row.insert(expert_of_row.end(), count, static_cast<double>(e));
    }
    offsets.push_back(static_cast<double>(used()));
    l = n = used() + unused;
  }
  Packing(int64_t batch, int64_t length, int64_t choices_each, int64_t expert_count,
          const std::vector<int64_t>& idle = {}, double dropped = 0.2)
      : b(batch), l(length), k(choices_each), experts(expert_count), n(length * choices_each) {
    std::mt19937_64 random(17);
    std::vector<int64_t> expert;
    for (int64_t i = 0; i < b * l * k; ++i) {
      const auto e = static_cast<int64_t>(random() % static_cast<uint64_t>(experts));
      const bool drop = std::uniform_real_distribution<double>()(random) < dropped;
      const bool none = drop || std::find(idle.begin(), idle.end(), e) != idle.end();
      expert.push_back(none ? -1 : e);
    }
    rows.assign(expert.size(), -1), choices.assign(expert.size(), -1);
    size_t next = 0;
    for (int64_t e = 0; e < experts; ++e) {
      offsets.push_back(static_cast<double>(next));
      for (size_t i = 0; i < expert.size(); ++i)
        if (expert[i] == e) {
          expert_of_row.push_back(static_cast<double>(e));
          choices[next] = static_cast<double>(i);
          rows[i] = static_cast<double>(next++);
        }
    }
    offsets.push_back(static_cast<double>(next));
    const std::vector<double> one = offsets;
    if (b == 0) offsets.clear();
    for (int64_t row = 1; row < b; ++row) offsets.insert(offsets.end(), one.begin(), one.end());
  }
  int64_t used() const { return static_cast<int64_t>(expert_of_row.size()); }
  /// Packed rows of `depth` elements; those in no use are not numbers.
  Operand packed(int64_t depth) const {
    Operand x = normal({b, n, depth});
    x.value = [draw = x.value, end = used() * depth](int64_t i, std::mt19937_64& random) {
      return i < end ? draw(i, random) : std::nan("");
    };
    return x;
  }
  Operand rows_operand() const { return values({b, l, k}, rows, DType::i32); }
  Operand choices_operand() const { return values({b, n}, choices, DType::i32); }
  Operand offsets_operand() const { return values({b, experts + 1}, offsets, DType::i32); }
};

/// body(row, expert) of every packed row in use; all results are zero before.
template <typename Body>
void each_row(const Arrays& in, Arrays& out, const Body& body) {
  for (Array& a : out)
    if (!a.absent) std::fill(a.values.begin(), a.values.end(), 0.0);
  if (in[1].values.empty()) return;
  for (int64_t e = 0; e + 1 < in[1].depth(); ++e)
    for (auto r = static_cast<int64_t>(in[1][e]); r < static_cast<int64_t>(in[1][e + 1]); ++r)
      body(r, e);
}

inline void experts_in_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const int64_t e = in[0].depth(), f = in[2].depth();
  each_row(in, out, [&](int64_t r, int64_t expert) {
    for (int64_t j = 0; j < f; ++j) {
      double y = 1;
      for (size_t branch = 0; branch < (in[3].absent ? 1u : 2u); ++branch) {
        double h = 0;
        for (int64_t i = 0; i < e; ++i)
          h += in[0][r * e + i] * in[2 + branch][(expert * e + i) * f + j];
        if (!out[1 + branch].absent) out[1 + branch][r * f + j] = h;
        y *= activate(activation(attrs, branch), h);
      }
      out[0][r * f + j] = y;
    }
  });
}

inline OpCase experts_in_case(const std::string& name, const Packing& p, int64_t e, int64_t f,
                              bool gated, bool keeps) {
  OpCase c{.name = fmt::format("experts_in/{}{}{}", name, gated ? "/gated" : "",
                               keeps ? "" : "/not_kept"),
           .kernel = experts_in_cpu};
  const Operand w = normal({p.experts, e, f}, 1 / std::sqrt(static_cast<double>(e)));
  const Shape hidden{p.b, p.n, f};
  c.inputs = {p.packed(e), p.offsets_operand(), w, gated ? w : no_operand()};
  c.outputs = {result(hidden), keeps ? result(hidden) : no_result(),
               keeps && gated ? result(hidden) : no_result()};
  c.attrs = {{"act0", static_cast<int64_t>(gated ? Activation::silu : Activation::relu)},
             {"act1", static_cast<int64_t>(Activation::linear)}};
  c.oracle = experts_in_oracle;
  if (keeps)
    c.grads = {{experts_in_grad_cpu,
                {input(0), input(1), input(2), input(3), output(1), output(2), cotangent(0)},
                {0, 2, gated ? 3 : -1}}};
  return c;
}

inline void experts_in_grad_oracle(const Arrays& in, Arrays& out, const Attrs& attrs) {
  const int64_t e = in[0].depth(), f = in[2].depth();
  const bool gated = !in[3].absent;
  const Activation act0 = activation(attrs, 0), act1 = activation(attrs, 1);
  each_row(in, out, [&](int64_t r, int64_t expert) {
    for (int64_t j = 0; j < f; ++j) {
      const double h0 = in[4][r * f + j], h1 = gated ? in[5][r * f + j] : 0, dy = in[6][r * f + j];
      const double d[] = {dy * slope(act0, h0) * (gated ? activate(act1, h1) : 1),
                          gated ? dy * activate(act0, h0) * slope(act1, h1) : 0};
      for (size_t branch = 0; branch < (gated ? 2u : 1u); ++branch)
        for (int64_t i = 0; i < e; ++i) {
          const int64_t w = (expert * e + i) * f + j;
          out[0][r * e + i] += d[branch] * in[2 + branch][w];
          out[1 + branch][w] += d[branch] * in[0][r * e + i];
        }
    }
  });
}

/// The gradient as an op of its own, whose results for weights may be added to what is there.
inline OpCase experts_in_grad_case(const std::string& name, const Packing& p, int64_t e, int64_t f,
                                   bool gated) {
  OpCase c = experts_in_case(name, p, e, f, gated, true);
  c.name = fmt::format("experts_in_grad/{}{}", name, gated ? "/gated" : "");
  c.kernel = experts_in_grad_cpu;
  const Operand h = p.packed(f);
  c.inputs.insert(c.inputs.end(), {h, gated ? h : no_operand(), h});
  const Result dw = result({p.experts, e, f});
  c.outputs = {result({p.b, p.n, e}), dw, gated ? dw : no_result()};
  c.oracle = experts_in_grad_oracle;
  c.adds = {1, 2};
  c.grads = {};
  return c;
}

inline void grouped_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const int64_t e = in[0].depth(), f = in[2].depth();
  each_row(in, out, [&](int64_t r, int64_t expert) {
    for (int64_t j = 0; j < f; ++j)
      for (int64_t i = 0; i < e; ++i)
        out[0][r * f + j] += in[0][r * e + i] * in[2][(expert * e + i) * f + j];
  });
}

inline OpCase grouped_case(const std::string& name, const Packing& p, int64_t e, int64_t f) {
  OpCase c{.name = "grouped_matmul/" + name, .kernel = grouped_matmul_cpu};
  c.inputs = {p.packed(e), p.offsets_operand(), normal({p.experts, e, f})};
  c.outputs = {result({p.b, p.n, f})};
  c.attrs = {{"x", p.experts}};
  c.oracle = grouped_oracle;
  c.grads = {{grouped_matmul_t_cpu, {cotangent(0), input(1), input(2)}, {0}},
             {grouped_matmul_grad_w_cpu, {input(0), input(1), cotangent(0)}, {2}}};
  c.flops = 2.0 * static_cast<double>(p.used() * e * f);
  return c;
}

inline void grouped_grad_w_oracle(const Arrays& in, Arrays& out, const Attrs&) {
  const int64_t e = in[0].depth(), f = in[2].depth();
  each_row(in, out, [&](int64_t r, int64_t expert) {
    for (int64_t i = 0; i < e; ++i)
      for (int64_t j = 0; j < f; ++j)
        out[0][(expert * e + i) * f + j] += in[0][r * e + i] * in[2][r * f + j];
  });
}

inline OpCase grouped_grad_w_case(const std::string& name, const Packing& p, int64_t e, int64_t f) {
  OpCase c = grouped_case(name, p, e, f);
  c.name = "grouped_matmul_grad_w/" + name;
  c.kernel = grouped_matmul_grad_w_cpu;
  c.inputs.back() = p.packed(f);
  c.outputs = {result({p.experts, e, f})};
  c.oracle = grouped_grad_w_oracle;
  c.adds = {0};
  c.grads = {};
  return c;
}

}  // namespace quintet::testing
