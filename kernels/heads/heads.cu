// A thread 16 bytes of the whole where the parts' widths allow, which are read and written once.

#include "kernels/heads/heads.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

constexpr int kParts = 3;

/// The parts of a head one after another.
template <typename T>
struct Parts {
  T* at[kParts];
  int64_t width[kParts];  // of a head; 0: absent
  int64_t whole;          // their sum
};

template <typename T, bool kSplits>
__global__ void __launch_bounds__(kBlockThreads)
    heads_kernel(T* x, Parts<T> parts, int64_t n, bool vector) {
  for_units<kLanes<T>>(n, vector, [=](int64_t i, auto count) {
    const int64_t piece = i / parts.whole;
    int64_t column = i % parts.whole;
    int p = 0;
    while (column >= parts.width[p]) column -= parts.width[p++];
    T* const part = parts.at[p] + piece * parts.width[p] + column;
    float v[count];
    load<count>(kSplits ? x + i : part, v);
    store<count>(kSplits ? part : x + i, v);
  });
}

template <bool kSplits>
void launch(const char* op, const View& whole, Views views, const Attrs& attrs, Stream stream) {
  const auto last = static_cast<size_t>(whole.rank - 1);
  const int64_t heads = attrs.get<int64_t>("h") * whole.depth() / whole.global[last];
  if (whole.elements() == 0) return;
  for_dtype(whole, op, [&]<typename T>(T) {
    T* const x = elements<T>(whole, op, "x");
    Parts<T> parts{};
    bool vector = are_aligned({x});
    for (size_t p = 0; p < kParts; ++p) {
      if (views[p].absent()) continue;
      parts.at[p] = elements<T>(views[p], op, "y");
      parts.width[p] = views[p].depth() / heads;
      parts.whole += parts.width[p];
      vector = vector && are_aligned({parts.at[p]}) && parts.width[p] % kLanes<T> == 0;
    }
    expect_shape(parts.whole * heads == whole.depth(), op, "...(hn) -> ...(hp), ...(hq), ...(hr)");
    const int64_t n = whole.elements();
    simt::launch(heads_kernel<T, kSplits>,
                 {.grid = blocks_for(vector ? n / kLanes<T> + 1 : n),
                  .block = kBlockThreads,
                  .stream = stream},
                 x, parts, n, vector);
  });
}

}  // namespace

void split_heads_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  launch<true>("split_heads", in[0], out, attrs, stream);
}

void join_heads_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  launch<false>("join_heads", out[0], in, attrs, stream);
}

}  // namespace quintet::QT_GPU
