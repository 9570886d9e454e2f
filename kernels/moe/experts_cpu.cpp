#include <algorithm>

#include "kernels/cpu/addend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/dropout/apply.h"
#include "kernels/mlp/activate.h"
#include "kernels/moe/experts.h"

namespace quintet {
namespace {

using cpu::Scratch;

// The packed rows of a block, by expert.
struct Packed {
  const char* op;
  int64_t rows, experts;
  const int32_t* offsets;

  Packed(const char* name, const View& x, const View& offsets_view)
      : op(name),
        rows(x.rows()),
        experts(offsets_view.depth() - 1),
        offsets(offsets_view.data<const int32_t>()) {}

  int64_t used() const { return rows == 0 ? 0 : offsets[experts]; }

  /// body(expert, first row, rows) for every expert, those without rows too.
  template <typename Body>
  void each(const Body& body) const {
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t first = rows == 0 ? 0 : offsets[e];
      body(e, first, rows == 0 ? 0 : offsets[e + 1] - first);
    }
  }
  void clear_unused(float* y, int64_t depth) const {
    if (y != nullptr) std::fill(y + used() * depth, y + rows * depth, 0.0F);
  }
};

float* optional(const View& view, const char* op, const char* name) {
  return view.absent() ? nullptr : cpu::f32(view, op, name);
}

// y = x w by expert, or x w^T; w: [x, e, f]; depths: of x and y.
void products(const Packed& p, bool transposed, const float* x, int64_t x_depth, const float* w,
              float* y, int64_t y_depth, bool add = false) {
  p.each([&](int64_t e, int64_t first, int64_t count) {
    if (count > 0)
      cpu::gemm({.m = count,
                 .n = y_depth,
                 .k = x_depth,
                 .transpose_b = transposed,
                 .beta = add ? 1.0F : 0.0F},
                x + first * x_depth, x_depth, w + e * x_depth * y_depth,
                transposed ? x_depth : y_depth, y + first * y_depth, y_depth);
  });
  p.clear_unused(y, y_depth);
}

// dw = x^T y + beta dw by expert.
void weight_gradients(const Packed& p, const float* x, int64_t x_depth, const float* y,
                      int64_t y_depth, float* dw, float beta) {
  p.each([&](int64_t e, int64_t first, int64_t count) {
    float* to = dw + e * x_depth * y_depth;
    if (count > 0)
      cpu::gemm({.m = x_depth, .n = y_depth, .k = count, .transpose_a = true, .beta = beta},
                x + first * x_depth, x_depth, y + first * y_depth, y_depth, to, y_depth);
    else if (beta == 0)
      std::fill_n(to, x_depth * y_depth, 0.0F);
  });
}

}  // namespace

void experts_in_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const char* op = "experts_in";
  const Packed p(op, in[0], in[1]);
  const int64_t depth = in[0].depth(), f = in[2].depth(), used = p.used();
  cpu::expect_shape(in[2].rank == 3 && in[2].size(0) == p.experts && in[2].size(1) == depth, op,
                    "bne, bs, xef, xef? -> bnf");
  const float *x = cpu::f32(in[0], op, "x"), *wi_1 = optional(in[3], op, "wi_1");
  float *y = cpu::f32(out[0], op, "y"), *saved0 = optional(out[1], op, "h0");
  float* h0 = saved0 != nullptr ? saved0 : y;  // activated in place if not saved
  float* h1 = optional(out[2], op, "h1");
  if (wi_1 != nullptr && h1 == nullptr) h1 = cpu::scratch(Scratch::kGateProducts, p.rows * f);
  products(p, false, x, depth, cpu::f32(in[2], op, "wi_0"), h0, f);
  if (wi_1 != nullptr) products(p, false, x, depth, wi_1, h1, f);
  const Gate gate = Gate::of(op, attrs);
  cpu::parallel_for(used * f, cpu::kGrainElements / 4, [&](int64_t begin, int64_t end) {
    cpu::activate(gate, h0 + begin, wi_1 == nullptr ? nullptr : h1 + begin, y + begin, end - begin);
  });
  p.clear_unused(y, f);
}

void experts_in_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const char* op = "experts_in_grad";
  const Packed p(op, in[0], in[1]);
  const int64_t depth = in[0].depth(), f = in[2].depth(), used = p.used();
  const float *x = cpu::f32(in[0], op, "x"), *wi_0 = cpu::f32(in[2], op, "wi_0");
  const float* wi_1 = optional(in[3], op, "wi_1");
  const float *h0 = cpu::f32(in[4], op, "h0"), *h1 = optional(in[5], op, "h1");
  const float* dy = cpu::f32(in[6], op, "dy");
  float* d0 = cpu::scratch(Scratch::kGrads, p.rows * f);
  float* d1 = wi_1 == nullptr ? nullptr : cpu::scratch(Scratch::kGateGrads, p.rows * f);
  const Gate gate = Gate::of(op, attrs);
  cpu::parallel_for(used * f, cpu::kGrainElements / 4, [&](int64_t begin, int64_t end) {
    const auto part = [begin](auto* v) { return v == nullptr ? nullptr : v + begin; };
    cpu::activate_grad(gate, h0 + begin, wi_1 == nullptr ? nullptr : part(h1), dy + begin,
                       d0 + begin, part(d1), nullptr, end - begin);
  });
  if (float* dx = optional(out[0], op, "dx")) {
    products(p, true, d0, f, wi_0, dx, depth);
    if (wi_1 != nullptr) products(p, true, d1, f, wi_1, dx, depth, true);
  }
  if (float* dw = optional(out[1], op, "dwi_0"))
    weight_gradients(p, x, depth, d0, f, dw, cpu::copy_addend(in, 7, out, 1));
  if (float* dw = optional(out[2], op, "dwi_1"); dw != nullptr && wi_1 != nullptr)
    weight_gradients(p, x, depth, d1, f, dw, cpu::copy_addend(in, 7, out, 2));
}

void grouped_matmul_cpu(Views in, Views out, const Attrs&, Stream) {
  const char* op = "grouped_matmul";
  cpu::expect_shape(in[2].rank == 3 && in[2].size(1) == in[0].depth(), op, "bne, bs, xef -> bnf");
  products(Packed(op, in[0], in[1]), false, cpu::f32(in[0], op, "x"), in[0].depth(),
           cpu::f32(in[2], op, "w"), cpu::f32(out[0], op, "y"), out[0].depth());
}

void grouped_matmul_t_cpu(Views in, Views out, const Attrs&, Stream) {
  const char* op = "grouped_matmul_t";
  cpu::expect_shape(in[2].rank == 3 && in[2].size(2) == in[0].depth(), op, "bnf, bs, xef -> bne");
  products(Packed(op, in[0], in[1]), true, cpu::f32(in[0], op, "y"), in[0].depth(),
           cpu::f32(in[2], op, "w"), cpu::f32(out[0], op, "x"), out[0].depth());
}

void grouped_matmul_grad_w_cpu(Views in, Views out, const Attrs&, Stream) {
  const char* op = "grouped_matmul_grad_w";
  const Packed p(op, in[0], in[1]);
  cpu::expect_shape(out[0].rank == 3 && out[0].size(0) == p.experts, op, "bne, bs, bnf -> xef");
  weight_gradients(p, cpu::f32(in[0], op, "x"), in[0].depth(), cpu::f32(in[2], op, "y"),
                   in[2].depth(), cpu::f32(out[0], op, "dw"), cpu::copy_addend(in, 3, out, 0));
}

void experts_dropout_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const char* op = "experts_dropout";
  const Packed p(op, in[0], in[1]);
  const View& x = in[0];
  const int64_t f = x.depth(), last = x.rank - 1, first_expert = first_expert_of(in[1]);
  const float* from = cpu::f32(x, op, "x");
  float* y = cpu::f32(out[0], op, "y");
  Attrs shared = attrs;
  shared.set("broadcast_dim", int64_t{-2});
  p.each([&](int64_t e, int64_t first, int64_t count) {
    const int64_t sizes[] = {1, count, f};
    View rows =
        View::of(from + first * f, sizes);  // the expert's, as a block of [experts, rows, f]
    rows.origin = {first_expert + e, 0, x.origin[static_cast<size_t>(last)]};
    rows.global = {first_expert + p.experts, count, x.global[static_cast<size_t>(last)]};
    if (attrs.has("fold")) {
      const Key key{static_cast<uint32_t>(attrs.get<int64_t>("key0")),
                    static_cast<uint32_t>(attrs.get<int64_t>("key1"))};
      const Key own = fold_in(split_at(key, static_cast<uint64_t>(first_expert + e)),
                              static_cast<uint32_t>(attrs.get<int64_t>("fold")));
      shared.set("key0", static_cast<int64_t>(own.a));
      shared.set("key1", static_cast<int64_t>(own.b));
      rows.origin[0] = 0;
    }
    cpu::apply_dropout(op, rows, nullptr, y + first * f, shared);
  });
  p.clear_unused(y, f);
}

}  // namespace quintet
