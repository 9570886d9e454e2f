#include <optional>
#include <utility>

#include "kernels/cpu/addend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/dropout/apply.h"
#include "kernels/fp8/fp8.h"
#include "kernels/mlp/activate.h"

namespace quintet {
namespace {

using cpu::Scratch;

// Rows taken at a time, so that scratch memory does not grow with the batch. Smaller chunks only
// cost: on one Emerald Rapids machine (2 threads, e 512, f 1024) forward takes 13.7 ms for 2048
// rows in one chunk, 14.7 ms in chunks of 512, 15.8 ms of 128; the products alone take 13.3 ms.
constexpr int64_t kChunkRows = 2048;

// The operands that forward and backward share, and what they do with chunks of rows.
struct Mlp {
  const char* op;
  int64_t rows, e, f;
  const float *x, *w0, *w1;  // [rows, e]; [e, f]; w1 null: not gated
  Gate gate;
  std::optional<cpu::RowDropout> dropout;

  Mlp(const char* name, Views in, const Attrs& attrs)
      : op(name), rows(in[0].rows()), e(in[0].depth()), f(in[1].depth()) {
    const View &wi_0 = in[1], &wi_1 = in[2];
    expect(wi_0.rank == 2 && wi_0.size(0) == e &&
           (wi_1.absent() || (wi_1.size(0) == e && wi_1.size(1) == f)));
    x = cpu::f32(in[0], op, "x");
    w0 = cpu::f32(wi_0, op, "wi_0");
    w1 = wi_1.absent() ? nullptr : cpu::f32(wi_1, op, "wi_1");
    gate = Gate::of(op, attrs);
    if (attrs.has("rate")) dropout.emplace(op, hidden_units(in[0], wi_0), attrs);
  }
  void expect(bool fits) const { cpu::expect_shape(fits, op, "...e, ef, ef?, fo"); }

  /// An operand or result of [rows, depth] that may be absent.
  float* rows_of(const View& view, int64_t depth, const char* name) const {
    if (view.absent()) return nullptr;
    expect(view.rows() == rows && view.depth() == depth);
    return cpu::f32(view, op, name);
  }
  /// wo: [f, o].
  const float* out_matrix(const View& view) const {
    expect(view.rank == 2 && view.size(0) == f);
    return cpu::f32(view, op, "wo");
  }
  /// Calls body(first row, rows).
  template <typename Body>
  void for_chunks(const Body& body) const {
    for (int64_t begin = 0; begin < rows; begin += kChunkRows)
      body(begin, std::min(kChunkRows, rows - begin));
  }
  /// Calls body(first, elements, drop) for parts of a chunk's hidden units, on all threads; drop(y)
  /// applies dropout to a part of y.
  template <typename Body>
  void for_parts(int64_t begin, int64_t count, const Body& body) const {
    cpu::parallel_for(count, std::max<int64_t>(1, cpu::row_grain(f) / 4),
                      [&](int64_t r, int64_t end) {
                        if (!dropout) return body(r * f, (end - r) * f, [](float*) {});
                        for (cpu::RowDropout rule = *dropout; r < end; ++r)
                          body(r * f, f, [&](float* y) { rule(begin + r, nullptr, y, y); });
                      });
  }
  /// y of a chunk; products to saved0 and saved1 unless null. All begin at the chunk.
  void first_half(int64_t begin, int64_t count, float* y, float* saved0, float* saved1) const {
    const auto product = [&](const float* w, float* h) {
      cpu::gemm({.m = count, .n = f, .k = e}, x + begin * e, e, w, f, h, f);
    };
    float* h0 = saved0 != nullptr ? saved0 : y;  // activated in place if not saved
    product(w0, h0);
    float* h1 = nullptr;
    if (w1 != nullptr) {
      h1 = saved1 != nullptr ? saved1 : cpu::scratch(Scratch::kGateProducts, count * f);
      product(w1, h1);
    }
    for_parts(begin, count, [&](int64_t at, int64_t n, const auto& drop) {
      cpu::activate(gate, h0 + at, h1 == nullptr ? nullptr : h1 + at, y + at, n);
      drop(y + at);
    });
  }
};

// The chunk of an array of rows that begins at `row`; null stays null.
template <typename T>
T* from_row(T* array, int64_t row, int64_t depth) {
  return array == nullptr ? nullptr : array + row * depth;
}

}  // namespace

void mlp_in_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Mlp mlp("mlp_in", in, attrs);
  float* y = mlp.rows_of(out[0], mlp.f, "y");
  mlp.for_chunks([&](int64_t begin, int64_t count) {
    mlp.first_half(begin, count, y + begin * mlp.f, nullptr, nullptr);
  });
}

void mlp_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Mlp mlp("mlp", in, attrs);
  const int64_t f = mlp.f, o = in[3].depth();
  const float* wo = mlp.out_matrix(in[3]);
  float* z = mlp.rows_of(out[0], o, "z");
  float *h0 = mlp.rows_of(out[1], f, "h0"), *h1 = mlp.rows_of(out[2], f, "h1");
  mlp.for_chunks([&](int64_t begin, int64_t count) {
    float* y = cpu::scratch(Scratch::kProducts, count * f);
    mlp.first_half(begin, count, y, from_row(h0, begin, f), from_row(h1, begin, f));
    cpu::gemm({.m = count, .n = o, .k = f}, y, f, wo, o, z + begin * o, o);
  });
}

void mlp_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Mlp mlp("mlp_grad", in, attrs);
  const int64_t e = mlp.e, f = mlp.f, o = in[3].depth();
  const bool gated = mlp.w1 != nullptr;
  const float* wo = mlp.out_matrix(in[3]);
  const float* h0 = mlp.rows_of(in[4], f, "h0");
  const float* h1 = gated ? mlp.rows_of(in[5], f, "h1") : nullptr;
  const float* dz = mlp.rows_of(in[6], o, "dz");
  float *dx = mlp.rows_of(out[0], e, "dx"), *y = mlp.rows_of(out[3], f, "y");
  float* dw0 = cpu::f32(out[1], mlp.op, "dwi_0");
  float* dw1 = gated ? cpu::f32(out[2], mlp.op, "dwi_1") : nullptr;
  const float beta0 = cpu::copy_addend(in, 7, out, 1), beta1 = cpu::copy_addend(in, 7, out, 2);
  if (mlp.rows == 0)
    for (const auto& [dw, beta] : {std::pair(dw0, beta0), std::pair(dw1, beta1)})
      if (dw != nullptr && beta == 0) std::fill(dw, dw + e * f, 0.0F);
  mlp.for_chunks([&](int64_t begin, int64_t count) {
    float* dy = y + begin * f;  // becomes y
    float* d0 = cpu::scratch(Scratch::kGrads, count * f);
    float* d1 = gated ? cpu::scratch(Scratch::kGateGrads, count * f) : nullptr;
    cpu::gemm({.m = count, .n = f, .k = o, .transpose_b = true}, dz + begin * o, o, wo, o, dy, f);
    mlp.for_parts(begin, count, [&](int64_t at, int64_t n, const auto& drop) {
      const auto part = [at](auto* p) { return p == nullptr ? nullptr : p + at; };
      drop(dy + at);
      cpu::activate_grad(mlp.gate, h0 + begin * f + at, part(from_row(h1, begin, f)), dy + at,
                         d0 + at, part(d1), dy + at, n);
      drop(dy + at);
    });
    const auto back = [&](const float* d, const float* w, float* dw, float beta, bool is_first) {
      cpu::gemm({.m = count, .n = e, .k = f, .transpose_b = true, .beta = is_first ? 0.0F : 1.0F},
                d, f, w, f, dx + begin * e, e);
      cpu::gemm({.m = e, .n = f, .k = count, .transpose_a = true, .beta = begin > 0 ? 1.0F : beta},
                mlp.x + begin * e, e, d, f, dw, f);
    };
    back(d0, mlp.w0, dw0, beta0, true);
    if (gated) back(d1, mlp.w1, dw1, beta1, false);
  });
}

void gate_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Gate gate = Gate::of("gate", attrs);
  const int64_t n = in[0].elements();
  cpu::expect_shape(out[0].elements() == n && (in[1].absent() || in[1].elements() == n), "gate",
                    "...f, ...f? -> ...f");
  const float* h0 = cpu::f32(in[0], "gate", "h0");
  const float* h1 = in[1].absent() ? nullptr : cpu::f32(in[1], "gate", "h1");
  float* y = cpu::f32(out[0], "gate", "y");
  cpu::parallel_for(n, cpu::kGrainElements, [=](int64_t begin, int64_t end) {
    cpu::activate(gate, h0 + begin, h1 == nullptr ? nullptr : h1 + begin, y + begin, end - begin);
  });
}

void gate_fp8_cpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  cpu::make_fp8_bytes(out, in[2], attrs, [&](const View& y) {
    gate_cpu(in, {&y, 1}, attrs, stream);
  });
}

void gate_grad_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const Gate gate = Gate::of("gate_grad", attrs);
  const int64_t n = in[0].elements();
  const bool gated = !in[1].absent();
  cpu::expect_shape(in[2].elements() == n && out[0].elements() == n &&
                        (!gated || (in[1].elements() == n && out[1].elements() == n)),
                    "gate_grad", "...f, ...f?, ...f -> ...f, ...f?");
  const float* h0 = cpu::f32(in[0], "gate_grad", "h0");
  const float* h1 = gated ? cpu::f32(in[1], "gate_grad", "h1") : nullptr;
  const float* dy = cpu::f32(in[2], "gate_grad", "dy");
  float* d0 = cpu::f32(out[0], "gate_grad", "dh0");
  float* d1 = gated ? cpu::f32(out[1], "gate_grad", "dh1") : nullptr;
  cpu::parallel_for(n, cpu::kGrainElements, [=](int64_t begin, int64_t end) {
    cpu::activate_grad(gate, h0 + begin, from_row(h1, begin, 1), dy + begin, d0 + begin,
                       from_row(d1, begin, 1), nullptr, end - begin);
  });
}

}  // namespace quintet
