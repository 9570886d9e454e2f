#include "kernels/elementwise/operands_gpu.h"
#include "kernels/elementwise/vectors.cuh"
#include "kernels/mlp/grouped.cuh"
#include "kernels/mlp/mlp_gpu.h"
#include "kernels/simt/fastest.h"
#include "kernels/simt/gemm.h"
#include "kernels/simt/scratch.h"

namespace quintet::QT_GPU {
namespace {

Activation activation_of(const char* op, int64_t number) {
  if (number < 0 || number > static_cast<int64_t>(Activation::silu))
    throw Bug(fmt::format("{}: no activation has the number {}", op, number));
  return static_cast<Activation>(number);
}

struct Gate {
  Activation act0 = Activation::linear, act1 = Activation::linear;

  Gate() = default;
  Gate(const char* op, const Attrs& attrs)
      : act0(activation_of(op, attrs.get<int64_t>("act0"))),
        act1(activation_of(op, attrs.get_or<int64_t>("act1", 0))) {}
};

/// y = act0(h0) act1(h1); h1 null: act0(h0). y may be h0.
template <typename T, Activation kAct0, Activation kAct1>
__global__ void activate(const T* h0, const T* h1, T* y, int64_t n, bool vector) {
  constexpr bool kFast = !std::is_same_v<T, float>;
  for_units<kLanes<T>>(n, vector, [=](int64_t i, auto count) {
    float a[count], b[count] = {};
    load<count>(h0 + i, a);
    if (h1 != nullptr) load<count>(h1 + i, b);
#pragma unroll
    for (int k = 0; k < count; ++k) {
      a[k] = activation<kAct0, kFast>(a[k]).value;
      if (h1 != nullptr) a[k] *= activation<kAct1, kFast>(b[k]).value;
    }
    store<count>(y + i, a);
  });
}

/// d0 = dy act0'(h0) act1(h1), d1 = dy act0(h0) act1'(h1); h1 null: d1 is not touched. d0 may be
/// h0, d1 may be h1.
template <typename T, Activation kAct0, Activation kAct1>
__global__ void activate_grad(const T* h0, const T* h1, const T* dy, T* d0, T* d1, int64_t n,
                              bool vector) {
  constexpr bool kFast = !std::is_same_v<T, float>;
  for_units<kLanes<T>>(n, vector, [=](int64_t i, auto count) {
    float a[count], b[count] = {}, d[count];
    load<count>(h0 + i, a);
    load<count>(dy + i, d);
    if (h1 != nullptr) load<count>(h1 + i, b);
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const Point p0 = activation<kAct0, kFast>(a[k]);
      a[k] = d[k] * p0.slope;
      if (h1 == nullptr) continue;
      const Point p1 = activation<kAct1, kFast>(b[k]);
      a[k] *= p1.value;
      b[k] = d[k] * p0.value * p1.slope;
    }
    store<count>(d0 + i, a);
    if (h1 != nullptr) store<count>(d1 + i, b);
  });
}

/// Calls body(Act<act0>{}, Act<act1>{}).
template <Activation kAct>
using Act = std::integral_constant<Activation, kAct>;
template <typename Body>
void for_activation(Activation act, const Body& body) {
  switch (act) {
    case Activation::linear:
      return body(Act<Activation::linear>{});
    case Activation::relu:
      return body(Act<Activation::relu>{});
    case Activation::gelu:
      return body(Act<Activation::gelu>{});
    case Activation::silu:
      return body(Act<Activation::silu>{});
  }
}
template <typename Body>
void for_gate(const Gate& gate, const Body& body) {
  for_activation(gate.act0, [&](auto act0) {
    for_activation(gate.act1, [&](auto act1) { body(act0, act1); });
  });
}

/// The operands that forward and backward share. x: [rows, e]; w0, w1: [e, f]; w1 null: not gated.
template <typename T>
struct Mlp {
  const char* op;
  int64_t rows, e, f;
  const T *x, *w0, *w1;
  Gate gate;
  Stream stream;

  Mlp(const char* name, Views in, const Attrs& attrs, Stream on)
      : op(name), rows(in[0].rows()), e(in[0].depth()), f(in[1].depth()), stream(on) {
    const View &w0_view = in[1], &w1_view = in[2];
    expect_shape(w0_view.rank == 2 && w0_view.size(0) == e &&
                     (w1_view.absent() || (w1_view.size(0) == e && w1_view.size(1) == f)),
                 op, "...e, ef, ef?");
    x = elements<T>(in[0], op, "x");
    w0 = elements<T>(w0_view, op, "wi_0");
    w1 = optional_elements<T>(w1_view, op, "wi_1");
    gate = Gate(op, attrs);
  }
  static constexpr DType type() { return std::is_same_v<T, float> ? DType::f32 : DType::bf16; }
  int64_t hidden_bytes() const { return rows * f * static_cast<int64_t>(sizeof(T)); }
  /// An operand or result of [rows, f] that may be absent.
  T* hidden(const View& view, const char* name) const {
    if (view.absent()) return nullptr;
    expect_shape(view.rows() == rows && view.depth() == f, op, "... f");
    return elements<T>(view, op, name);
  }
  /// h = x w.
  void product(const T* w, T* h) const {
    simt::gemm(
        stream,
        {.m = rows, .n = f, .k = e, .a = x, .b = w, .c = h, .type = type(), .c_type = type()});
  }
  /// dx (+)= dh w^T.
  void add_x_gradient(const T* dh, const T* w, T* dx, bool add) const {
    simt::gemm(stream, {.m = rows,
                        .n = e,
                        .k = f,
                        .a = dh,
                        .b = w,
                        .c = dx,
                        .type = type(),
                        .c_type = type(),
                        .b_transposed = true,
                        .beta = add ? 1.0f : 0.0f});
  }
  /// dw = x^T dh.
  void weight_gradient(const T* dh, float* dw) const {
    if (dw == nullptr) return;
    simt::gemm(stream, {.m = e,
                        .n = f,
                        .k = rows,
                        .a = x,
                        .b = dh,
                        .c = dw,
                        .type = type(),
                        .c_type = DType::f32,
                        .a_transposed = true});
  }
  /// `product` with the operands that forward and backward share, by the kernels that experts have,
  /// or `apart`: which is faster depends on sizes and GPU. Theirs take tiles of 128 rows.
  void grouped_or(mlp::Kind kind, mlp::Grouped<T> p, const std::function<void()>& apart) const {
    if constexpr (std::is_same_v<T, bf16>) {
      p.rows = static_cast<int>(rows);
      p.w[0] = w0, p.w[1] = w1;
      p.act0 = gate.act0, p.act1 = gate.act1;
      if (rows >= 128 && rows < int64_t{1} << 31 && suits_tensor_cores(p))
        return simt::run_fastest(
            stream,
            fmt::format("{} {} {} {} {} {} {}", op, rows, e, f, static_cast<int>(gate.act0),
                        w1 != nullptr ? static_cast<int>(gate.act1) : -1, p.h0 != nullptr),
            {[&] { grouped_product(kind, p, stream); }, apart});
    }
    apart();
  }
};

template <typename T>
simt::Launch over_hidden(int64_t n, bool vector, Stream stream) {
  return {
      .grid = blocks_for(vector ? n / kLanes<T> + 1 : n), .block = kBlockThreads, .stream = stream};
}

template <typename T>
void launch_activate_grad(const Gate& gate, const T* h0, const T* h1, const T* dy, T* d0, T* d1,
                          int64_t n, Stream stream) {
  if (n == 0) return;
  const bool vector = are_aligned({h0, h1, dy, d0, d1});
  for_gate(gate, [&](auto act0, auto act1) {
    simt::launch(activate_grad<T, act0(), act1()>, over_hidden<T>(n, vector, stream), h0, h1, dy,
                 d0, d1, n, vector);
  });
}

template <typename T>
void forward(Views in, Views out, const Attrs& attrs, Stream stream) {
  const Mlp<T> mlp("mlp_in", in, attrs, stream);
  T* y = mlp.hidden(out[0], "y");
  T *h0 = mlp.hidden(out[1], "h0"), *h1 = mlp.w1 != nullptr ? mlp.hidden(out[2], "h1") : nullptr;
  const int64_t n = mlp.rows * mlp.f;
  if (n == 0) return;
  const auto apart = [&] {
    T* product0 = h0 != nullptr ? h0 : y;  // activated in place if not kept
    T* product1 = h1;
    mlp.product(mlp.w0, product0);
    const simt::Scratch gate(mlp.w1 != nullptr && h1 == nullptr ? mlp.hidden_bytes() : 0, stream);
    if (mlp.w1 != nullptr) {
      if (product1 == nullptr) product1 = gate.template data<T>();
      mlp.product(mlp.w1, product1);
    }
    const bool vector = are_aligned({product0, product1, y});
    for_gate(mlp.gate, [&](auto act0, auto act1) {
      simt::launch(activate<T, act0(), act1()>, over_hidden<T>(n, vector, stream), product0,
                   product1, y, n, vector);
    });
  };
  mlp.grouped_or(mlp.w1 != nullptr ? mlp::Kind::kGated : mlp::Kind::kProduct,
                 {.depth = static_cast<int>(mlp.e),
                  .columns = static_cast<int>(mlp.f),
                  .x = {mlp.x},
                  .y = y,
                  .h0 = h0,
                  .h1 = h1},
                 apart);
}

template <typename T>
void backward(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "mlp_in_grad";
  const Mlp<T> mlp(op, in, attrs, stream);
  const T *h0 = mlp.hidden(in[3], "h0"), *h1 = mlp.hidden(in[4], "h1");
  const T* dy = mlp.hidden(in[5], "dy");
  T* dx = optional_elements<T>(out[0], op, "dx");
  float* dw0 = optional_elements<float>(out[1], op, "dwi_0");
  float* dw1 = optional_elements<float>(out[2], op, "dwi_1");
  const bool gated = mlp.w1 != nullptr;
  const simt::Scratch room0(mlp.hidden_bytes(), stream);
  const simt::Scratch room1(gated ? mlp.hidden_bytes() : 0, stream);
  T *d0 = room0.template data<T>(), *d1 = gated ? room1.template data<T>() : nullptr;
  const int64_t n = mlp.rows * mlp.f;
  if (n > 0) {
    if (h0 == nullptr) {
      mlp.product(mlp.w0, d0);
      h0 = d0;
    }
    if (gated && h1 == nullptr) {
      mlp.product(mlp.w1, d1);
      h1 = d1;
    }
    if (!gated) h1 = nullptr;
    launch_activate_grad(mlp.gate, h0, h1, dy, d0, d1, n, stream);
  }
  if (dx != nullptr)
    mlp.grouped_or(mlp::Kind::kTransposed,
                   {.depth = static_cast<int>(mlp.f),
                    .columns = static_cast<int>(mlp.e),
                    .x = {d0, d1},
                    .y = dx},
                   [&] {
                     mlp.add_x_gradient(d0, mlp.w0, dx, false);
                     if (gated) mlp.add_x_gradient(d1, mlp.w1, dx, true);
                   });
  mlp.weight_gradient(d0, dw0);
  if (gated) mlp.weight_gradient(d1, dw1);
}

}  // namespace

void mlp_in_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[0], "mlp_in", [&]<typename T>(T) { forward<T>(in, out, attrs, stream); });
}

void mlp_in_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[0], "mlp_in_grad", [&]<typename T>(T) { backward<T>(in, out, attrs, stream); });
}

void activate_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "activate_grad";
  const int64_t n = in[0].elements();
  expect_shape(in[2].elements() == n && out[0].elements() == n, op, "..., ...?, ... -> ..., ...?");
  for_dtype(in[0], op, [&]<typename T>(T) {
    launch_activate_grad(Gate(op, attrs), elements<T>(in[0], op, "h0"),
                         optional_elements<T>(in[1], op, "h1"), elements<T>(in[2], op, "dy"),
                         elements<T>(out[0], op, "d0"), optional_elements<T>(out[1], op, "d1"), n,
                         stream);
  });
}

}  // namespace quintet::QT_GPU
