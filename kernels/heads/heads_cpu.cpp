#include <algorithm>

#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/heads/heads.h"

namespace quintet {
namespace {

/// Calls copy(column of the whole, part, its column, columns) for each piece of each row.
template <typename Copy>
void for_pieces(const View& whole, Views parts, int64_t all_heads, const Copy& copy) {
  int64_t columns = 0;
  for (const View& part : parts) columns += part.absent() ? 0 : part.depth();
  cpu::expect_shape(columns == whole.depth(), "split_heads",
                    "...(hn) -> ...(hp), ...(hq), ...(hr)");
  const int64_t rank = whole.rank - 1,
                heads = all_heads * whole.depth() / whole.global[static_cast<size_t>(rank)];
  cpu::parallel_for(whole.rows(), cpu::row_grain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin * heads; piece < end * heads; ++piece) {
      int64_t at = piece * (columns / heads);
      for (const View& part : parts) {
        if (part.absent()) continue;
        const int64_t width = part.depth() / heads;
        copy(at, part, piece * width, width);
        at += width;
      }
    }
  });
}

}  // namespace

void split_heads_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  const float* x = cpu::f32(in[0], "split_heads", "x");
  for_pieces(in[0], out, attrs.get<int64_t>("h"),
             [&](int64_t at, const View& part, int64_t to, int64_t width) {
               std::copy_n(x + at, width, part.data<float>() + to);
             });
}

void join_heads_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  float* x = cpu::f32(out[0], "join_heads", "x");
  for_pieces(out[0], in, attrs.get<int64_t>("h"),
             [&](int64_t at, const View& part, int64_t from, int64_t width) {
               std::copy_n(part.data<float>() + from, width, x + at);
             });
}

}  // namespace quintet
