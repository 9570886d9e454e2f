#include "kernels/fp8/cast.cuh"
#include "kernels/mlp/grouped.cuh"
#include "kernels/mlp/mlp_gpu.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/simt/host/scratch.h"
#include "kernels/simt/host/variants.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

/// The bits from element i on, of n in rows of `depth`; none if the mask has no words.
QT_DEVICE uint32_t kept_at(const DropoutMask& mask, int64_t i, int64_t n, int64_t depth) {
  if (mask.words == nullptr) return 0;
  const int64_t row = divide(i, depth, n);
  return mask.shared_bits(row, i - row * depth);
}

/// y = dropout(act0(h0) act1(h1)); h1 null: of act0(h0). y may be h0. With dropout units do not
/// cross rows.
template <typename T, Activation kAct0, Activation kAct1>
__global__ void activate(const __grid_constant__ DropoutMask mask, const T* h0, const T* h1, T* y,
                         int64_t n, int64_t depth, bool vector) {
  constexpr bool kFast = !std::is_same_v<T, float>;
  for_units<kLanes<T>>(n, vector, [&](int64_t i, auto count) {
    float a[count], b[count] = {};
    load<count>(h0 + i, a);
    if (h1 != nullptr) load<count>(h1 + i, b);
#pragma unroll  // one after the other: all Points at once take more registers than four blocks have
    for (int j = 0; j < count; ++j) {
      a[j] = activation<kAct0, kFast>(a[j]).value;
      if (h1 != nullptr) a[j] *= activation<kAct1, kFast>(b[j]).value;
    }
    mlp::drop(mask, kept_at(mask, i, n, depth), a);
    store<count>(y + i, a);
  });
}

/// What activate() would store of dropout's input, act0(h0) act1(h1), for a cast.
template <typename T, Activation kAct0>
struct Gated {
  const T *h0, *h1;  // h1 null: of act0(h0)
  Activation act1;
  int64_t columns;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column, float (&v)[kCount]) const {
    constexpr bool kFast = !std::is_same_v<T, float>;
    float b[kCount] = {};
    load<kCount>(h0 + row * columns + column, v);
    if (h1 != nullptr) load<kCount>(h1 + row * columns + column, b);
#pragma unroll
    for (int j = 0; j < kCount; ++j) v[j] = activation<kAct0, kFast>(v[j]).value;
    if (h1 != nullptr)
      mlp::for_activation(act1, [&](auto act) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) v[j] *= activation<act(), kFast>(b[j]).value;
      });
    uint32_t words[kCount * sizeof(T) / 4];
    pack_words<T>(v, words);  // rounded as if it were stored
    unpack_words<T>(words, v);
  }
};

/// mlp::hidden_grad of dy; h1 null: d1 is not touched; y null: it is not kept. y may be dy, d0 and d1
/// h0 and h1.
template <typename T, Activation kAct0, Activation kAct1>
__global__ void activate_grad(const __grid_constant__ DropoutMask mask, const T* h0, const T* h1,
                              const T* dy, T* d0, T* d1, T* y, int64_t n, int64_t depth,
                              bool vector) {
  constexpr bool kFast = !std::is_same_v<T, float>;
  for_units<kLanes<T>>(n, vector, [&](int64_t i, auto count) {
    float a[count], b[count] = {}, v[count];
    load<count>(dy + i, v);
    load<count>(h0 + i, a);
    if (h1 != nullptr) load<count>(h1 + i, b);
    const uint32_t kept = kept_at(mask, i, n, depth);
    mlp::drop(mask, kept, v);
#pragma unroll
    for (int j = 0; j < count; ++j)
      mlp::gate_grad(activation<kAct0, kFast>(a[j]),
                     h1 != nullptr ? activation<kAct1, kFast>(b[j]) : Point(), a[j], b[j], v[j]);
    mlp::drop(mask, kept, v);
    store<count>(d0 + i, a);
    if (h1 != nullptr) store<count>(d1 + i, b);
    if (y != nullptr) store<count>(y + i, v);
  });
}

/// Calls body(act0, act1), both as std::integral_constant.
template <typename Body>
void for_gate(const Gate& gate, const Body& body) {
  mlp::for_activation(gate.act0, [&](auto act0) {
    mlp::for_activation(gate.act1, [&](auto act1) { body(act0, act1); });
  });
}

template <typename T>
simt::Launch over_hidden(int64_t n, bool vector, Stream stream) {
  return {
      .grid = blocks_for(vector ? n / kLanes<T> + 1 : n), .block = kBlockThreads, .stream = stream};
}
/// Whether a thread takes kLanes elements at once.
template <typename T>
bool by_lanes(const DropoutMask& mask, int64_t depth, std::initializer_list<const void*> arrays) {
  return are_aligned(arrays) && (mask.words == nullptr || depth % kLanes<T> == 0);
}

template <typename T>
void launch_activate_grad(const Gate& gate, const DropoutMask& mask, const T* h0, const T* h1,
                          const T* dy, T* d0, T* d1, T* y, int64_t n, int64_t depth,
                          Stream stream) {
  if (n == 0) return;
  const bool vector = by_lanes<T>(mask, depth, {h0, h1, dy, d0, d1, y});
  for_gate(gate, [&](auto act0, auto act1) {
    simt::launch(activate_grad<T, act0(), act1()>, over_hidden<T>(n, vector, stream), mask, h0, h1,
                 dy, d0, d1, y, n, depth, vector);
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
  StoredDropoutMask dropout;

  Mlp(const char* name, Views in, const Attrs& attrs, Stream on)
      : op(name),
        rows(in[0].rows()),
        e(in[0].depth()),
        f(in[1].depth()),
        gate(Gate::of(name, attrs)),
        stream(on),
        dropout(attrs.has("rate") ? make_mask(name, hidden_units(in[0], in[1]), attrs, on)
                                  : StoredDropoutMask{simt::Scratch(0, on), {}}) {
    const View &w0_view = in[1], &w1_view = in[2];
    expect(w0_view.rank == 2 && w0_view.size(0) == e &&
           (w1_view.absent() || (w1_view.size(0) == e && w1_view.size(1) == f)));
    QT_ASSERT(!attrs.has("rate") || dropout.mask.rule.numbers.shared);
    x = elements<T>(in[0], op, "x");
    w0 = elements<T>(w0_view, op, "wi_0");
    w1 = optional_elements<T>(w1_view, op, "wi_1");
  }
  void expect(bool fits) const { expect_shape(fits, op, "...e, ef, ef?, fo"); }
  static constexpr DType type() { return std::is_same_v<T, float> ? DType::f32 : DType::bf16; }
  int64_t hidden_bytes() const { return rows * f * static_cast<int64_t>(sizeof(T)); }
  /// An operand or result of [rows, depth] that may be absent.
  T* rows_of(const View& view, int64_t depth, const char* name) const {
    if (view.absent()) return nullptr;
    expect(view.rows() == rows && view.depth() == depth);
    return elements<T>(view, op, name);
  }
  /// wo: [f, o].
  const T* out_matrix(const View& view) const {
    expect(view.rank == 2 && view.size(0) == f);
    return elements<T>(view, op, "wo");
  }
  /// c (+)= a b, or a b^T: [rows, n] from [rows, k].
  void product(int64_t n, int64_t k, const T* a, const T* b, T* c, bool transposed = false,
               bool add = false) const {
    simt::gemm(stream, {.m = rows,
                        .n = n,
                        .k = k,
                        .a = a,
                        .b = b,
                        .c = c,
                        .type = type(),
                        .c_type = type(),
                        .b_transposed = transposed,
                        .addend = add ? c : nullptr});
  }
  /// dw = x^T dh + addend.
  void weight_gradient(const T* dh, float* dw, const void* addend) const {
    simt::gemm(stream, {.m = e,
                        .n = f,
                        .k = rows,
                        .a = x,
                        .b = dh,
                        .c = dw,
                        .type = type(),
                        .c_type = DType::f32,
                        .a_transposed = true,
                        .addend = addend});
  }
  /// A product with what follows it fused, by the kernels that experts have, or `unfused`: which is
  /// faster depends on sizes and GPU. Theirs take tiles of 128 rows.
  void fused_or(mlp::Kind kind, mlp::Grouped<T> p, const std::function<void()>& unfused) const {
    if constexpr (std::is_same_v<T, bf16>) {
      p.rows = static_cast<int>(rows);
      p.gate = gate;
      p.mask = dropout.mask;
      if (rows >= 128 && rows < int64_t{1} << 31 && suits_tensor_cores(p))
        return simt::run_fastest_variant(
            stream,
            fmt::format("{} {} {} {} {} {} {} {} {}", op, static_cast<int>(kind), rows, p.depth,
                        p.columns, static_cast<int>(gate.act0),
                        w1 != nullptr ? static_cast<int>(gate.act1) : -1, p.h0 != nullptr,
                        p.mask.words != nullptr),
            {[&] { grouped_product(kind, p, stream); }, unfused});
    }
    unfused();
  }
  /// y, and products to h0 and h1 unless null.
  void first_half(T* y, T* h0, T* h1) const {
    const int64_t n = rows * f;
    if (n == 0) return;
    const auto unfused = [&] {
      T* product0 = h0 != nullptr ? h0 : y;  // activated in place if not kept
      T* product1 = h1;
      product(f, e, x, w0, product0);
      const simt::Scratch gated(w1 != nullptr && h1 == nullptr ? hidden_bytes() : 0, stream);
      if (w1 != nullptr) {
        if (product1 == nullptr) product1 = gated.template data<T>();
        product(f, e, x, w1, product1);
      }
      const bool vector = by_lanes<T>(dropout.mask, f, {product0, product1, y});
      for_gate(gate, [&](auto act0, auto act1) {
        simt::launch(activate<T, act0(), act1()>, over_hidden<T>(n, vector, stream), dropout.mask,
                     product0, product1, y, n, f, vector);
      });
    };
    fused_or(w1 != nullptr ? mlp::Kind::kGated : mlp::Kind::kProduct,
             {.depth = static_cast<int>(e),
              .columns = static_cast<int>(f),
              .x = {x},
              .w = {w0, w1},
              .y = y,
              .h0 = h0,
              .h1 = h1},
             unfused);
  }
};

template <typename T>
void forward(Views in, Views out, const Attrs& attrs, Stream stream) {
  const Mlp<T> mlp("mlp", in, attrs, stream);
  const int64_t f = mlp.f, o = in[3].depth();
  const T* wo = mlp.out_matrix(in[3]);
  const simt::Scratch y(mlp.hidden_bytes(), stream);
  mlp.first_half(y.template data<T>(), mlp.rows_of(out[1], f, "h0"), mlp.rows_of(out[2], f, "h1"));
  mlp.product(o, f, y.template data<T>(), wo, mlp.rows_of(out[0], o, "z"));
}

template <typename T>
void backward(Views in, Views out, const Attrs& attrs, Stream stream) {
  const Mlp<T> mlp("mlp_grad", in, attrs, stream);
  const int64_t e = mlp.e, f = mlp.f, o = in[3].depth();
  const bool gated = mlp.w1 != nullptr;
  const T *wo = mlp.out_matrix(in[3]), *dz = mlp.rows_of(in[6], o, "dz");
  T *h0 = mlp.rows_of(in[4], f, "h0"), *h1 = gated ? mlp.rows_of(in[5], f, "h1") : nullptr;
  T *dx = mlp.rows_of(out[0], e, "dx"), *y = mlp.rows_of(out[3], f, "y");
  const simt::Scratch workspace0(mlp.hidden_bytes(), stream);
  const simt::Scratch workspace1(gated ? mlp.hidden_bytes() : 0, stream);
  T *d0 = workspace0.template data<T>(), *d1 = gated ? workspace1.template data<T>() : nullptr;
  mlp.fused_or(mlp::Kind::kHiddenGrad,
               {.depth = static_cast<int>(o),
                .columns = static_cast<int>(f),
                .x = {dz},
                .w = {wo},
                .y = y,
                .d0 = d0,
                .d1 = d1,
                .h0 = h0,
                .h1 = h1},
               [&] {
                 mlp.product(f, o, dz, wo, y, true);
                 launch_activate_grad<T>(mlp.gate, mlp.dropout.mask, h0, h1, y, d0, d1, y,
                                         mlp.rows * f, f, stream);
               });
  mlp.fused_or(mlp::Kind::kTransposed,
               {.depth = static_cast<int>(f),
                .columns = static_cast<int>(e),
                .x = {d0, d1},
                .w = {mlp.w0, mlp.w1},
                .y = dx},
               [&] {
                 mlp.product(e, f, d0, mlp.w0, dx, true);
                 if (gated) mlp.product(e, f, d1, mlp.w1, dx, true, true);
               });
  mlp.weight_gradient(d0, elements<float>(out[1], mlp.op, "dwi_0"), addend_of(in, 7, 1));
  if (gated) mlp.weight_gradient(d1, elements<float>(out[2], mlp.op, "dwi_1"), addend_of(in, 7, 2));
}

}  // namespace

void mlp_in_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[0], "mlp_in", [&]<typename T>(T) {
    const Mlp<T> mlp("mlp_in", in, attrs, stream);
    mlp.first_half(mlp.rows_of(out[0], mlp.f, "y"), nullptr, nullptr);
  });
}

void mlp_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[0], "mlp", [&]<typename T>(T) { forward<T>(in, out, attrs, stream); });
}

void mlp_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  for_dtype(in[0], "mlp_grad", [&]<typename T>(T) { backward<T>(in, out, attrs, stream); });
}

void gate_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "gate";
  const int64_t n = in[0].elements();
  expect_shape(out[0].elements() == n, op, "..., ...? -> ...");
  if (n == 0) return;
  for_dtype(in[0], op, [&]<typename T>(T) {
    const T* h0 = elements<T>(in[0], op, "h0");
    const T* h1 = optional_elements<T>(in[1], op, "h1");
    T* y = elements<T>(out[0], op, "y");
    const bool vector = by_lanes<T>({}, in[0].depth(), {h0, h1, y});
    for_gate(Gate::of(op, attrs), [&](auto act0, auto act1) {
      simt::launch(activate<T, act0(), act1()>, over_hidden<T>(n, vector, stream), DropoutMask{},
                   h0, h1, y, n, in[0].depth(), vector);
    });
  });
}

void gate_fp8_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "gate_fp8";
  expect_shape(out[0].elements() == in[0].elements(), op, "..., ...? -> ...");
  const int64_t rows = in[0].rows(), columns = in[0].depth();
  for_dtype(in[0], op, [&]<typename T>(T) {
    const T *h0 = elements<T>(in[0], op, "h0"), *h1 = optional_elements<T>(in[1], op, "h1");
    QT_ASSERT(are_aligned({h0, h1}));
    const Fp8Bytes to(out[0], out[1], scaling_of(in[2], attrs, op));
    const Gate gate = Gate::of(op, attrs);
    mlp::for_activation(gate.act0, [&](auto act0) {
      launch_cast<Float8::e4m3>(Cast<Gated<T, act0()>>{.source = {h0, h1, gate.act1, columns},
                                                       .rows = rows,
                                                       .columns = columns,
                                                       .plain = to.plain,
                                                       .ld = columns,
                                                       .transposed = to.transposed,
                                                       .ld_transposed = rows,
                                                       .scale = to.scale,
                                                       .amax = to.amax},
                                stream);
    });
  });
}

void gate_grad_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const char* op = "gate_grad";
  const int64_t n = in[0].elements();
  expect_shape(in[2].elements() == n && out[0].elements() == n, op, "..., ...?, ... -> ..., ...?");
  for_dtype(in[0], op, [&]<typename T>(T) {
    launch_activate_grad<T>(Gate::of(op, attrs), {}, elements<T>(in[0], op, "h0"),
                            optional_elements<T>(in[1], op, "h1"), elements<T>(in[2], op, "dy"),
                            elements<T>(out[0], op, "d0"), optional_elements<T>(out[1], op, "d1"),
                            nullptr, n, in[0].depth(), stream);
  });
}

}  // namespace quintet::QT_GPU
