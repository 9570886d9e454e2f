#pragma once
// What attention and its gradient need before their kernels start: operands checked, the mask as
// ranges, the bias table as diagonals (a value a relative position), dropout applied to the values.
//
//   const Prepared p(in, attrs, true, stream);        // launches small kernels, owns their results
//   simt::launch(kernel, ..., p.problem, p.q, p.k, p.v);

#include <vector>

#include "kernels/attention/gpu/device_problem.cuh"
#include "kernels/kernel.h"
#include "kernels/simt/host/scratch.h"

namespace quintet::QT_GPU::attention {

class Prepared {
 public:
  /// `divide`: diagonals of the bias divided by the scale; else they are made of it as it is. Throws
  /// usage errors as attention_cpu.
  Prepared(Views in, const Attrs& attrs, bool divide, Stream stream);

  Problem problem{};
  DType dtype = DType::f32;  // of q, k, v and of the results
  const void *q = nullptr, *k = nullptr;
  const void* v = nullptr;        // [batch, keys, heads * depth]; dropped rows are 0
  const uint8_t* keep = nullptr;  // [batch, heads, keys], 1: kept; null: no dropout
  const float* bias_diagonals =
      nullptr;  // [heads, 2 reach + 1] bias by relative position, if asked for
  const float* dtable_addend = nullptr;  // what the table's gradient is added to; null: nothing

  /// Memory until the end of the call.
  template <typename T>
  T* scratch(int64_t count) const {
    scratch_.emplace_back(std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(T)));
    return scratch_.back().template data<T>();
  }
  int diagonals_length() const { return 2 * problem.reach + 1; }

 private:
  void read_shapes(Views in, const Attrs& attrs);
  void read_masks(Views in, Stream stream);
  void read_table(const View& table, const Attrs& attrs);
  void make_bias_diagonals(Stream stream);
  void drop(const View& q_view, const Attrs& attrs, Stream stream);

  mutable std::vector<simt::Scratch> scratch_;
};

/// Padded length of the statistics of a row of queries.
inline constexpr int kStatisticsTile = 128;
inline int64_t padded_queries(int64_t queries) {
  return (queries + kStatisticsTile - 1) / kStatisticsTile * kStatisticsTile;
}

/// For the gradient: lse and delta [batch, heads, padded queries] with delta = <dout, out> and lse
/// in multiples of 1 / unit, that of a query without an allowed key log(keys) (its scores count as
/// 0), that of rows of padding so large that their weights vanish.
struct Statistics {
  const float *lse = nullptr, *delta = nullptr;
};
Statistics make_statistics(const Prepared& p, const View& out, const View& lse, const View& dout,
                           float unit, Stream stream);

/// dtable[h, r] = sum over sequences and parts of the entries of bucket r in
/// dbias_diagonals [batch, heads, parts, 2 reach + 1], in double and in a fixed order, added to p.dtable_addend.
void reduce_bias_diagonals(const Prepared& p, const float* dbias_diagonals, int parts,
                           float* dtable, Stream stream);

}  // namespace quintet::QT_GPU::attention
