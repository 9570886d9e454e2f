// Products of few rows with the matrices of their experts. Choices are grouped by expert: a block has
// some columns of one expert and all rows that chose it, so an expert's weights are read once for its
// rows and those of the others are not read. Which experts there are is known on the device alone:
// as many blocks are launched as there may be experts, and a block works the choices out from the
// router's logits, which is less than another kernel would cost.

#include <algorithm>

#include "kernels/decode_matmul/columns.cuh"
#include "kernels/decode_matmul/small_batch_experts.h"
#include "kernels/moe/softmax.cuh"
#include "kernels/simt/host/scratch.h"

namespace quintet::QT_GPU {
namespace {

/// Element i of the set, from its lowest bit.
QT_DEVICE int element_of(unsigned set, int i) {
  for (; i > 0; --i) set &= set - 1;
  return __ffs(static_cast<int>(set)) - 1;
}

/// The rows of the blockIdx.y-th of the experts that were chosen; count is 0 if there are fewer.
template <int kRows>
struct ExpertRows {
  static constexpr size_t kShared = 2 * 4 * kMaxSmallBatchChoices;
  static constexpr bool kFew = kRows > 1;
  int64_t matrix = 0;
  int count = 0;

  __device__ explicit ExpertRows(const SmallBatchMatmul& p) : p_(p) {
    const SmallBatchExperts& e = p.experts;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int chosen = static_cast<int>(e.chosen), choices = static_cast<int>(p.rows) * chosen;
    simt::wait_for_previous();
    if (warp < p.rows) choose(warp, chosen);
    __syncthreads();
    const int mine = lane < choices ? experts()[lane] : -1;
    const unsigned same = __match_any_sync(kWholeWarp, mine);
    const unsigned firsts =
        __ballot_sync(kWholeWarp, lane < choices && __ffs(static_cast<int>(same)) - 1 == lane);
    if (static_cast<int>(blockIdx.y) >= __popc(firsts)) return;
    const int first = element_of(firsts, static_cast<int>(blockIdx.y));
    members_ = __shfl_sync(kWholeWarp, same, first);
    matrix = __shfl_sync(kWholeWarp, mine, first);
    count = __popc(members_);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      from_[r] = e.joins ? element_of(members_, r) : element_of(members_, r) / chosen;
  }
  __device__ int64_t from(int r) const { return from_[r]; }
  __device__ int64_t to(int r) const { return element_of(members_, r); }
  __device__ float weight(int r) const {
    return p_.experts.joins ? weights()[element_of(members_, r)] : 1.0f;
  }

 private:
  struct Probabilities {
    const float* logits;
    moe::Softmax softmax;
    __device__ float operator[](int e) const { return softmax(logits[e]); }
  };
  __device__ static simt::Shared<int> experts() {
    return simt::shared<int>(0, kMaxSmallBatchChoices);
  }
  __device__ static simt::Shared<float> weights() {
    return simt::shared<float>(4 * kMaxSmallBatchChoices, kMaxSmallBatchChoices);
  }
  /// A warp chooses for a row.
  __device__ void choose(int row, int chosen) const {
    const int count_of_experts = static_cast<int>(p_.experts.count);
    const float* logits = p_.experts.logits + row * p_.experts.count;
    const Probabilities probabilities{logits, moe::Softmax(logits, count_of_experts)};
    moe::Choice choice;
    for (int j = 0; j < chosen; ++j) {
      const int expert = choice.next(probabilities, count_of_experts, j);
      if (threadIdx.x % 32 != 0) continue;
      experts()[row * chosen + j] = expert;
      weights()[row * chosen + j] = probabilities[expert];
    }
  }

  const SmallBatchMatmul& p_;
  unsigned members_ = 0;
  int from_[kRows] = {};
};

/// out [rows, n] = residual + the sum of each row's `chosen` rows of y, in their order.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    join_kernel(const float* y, int64_t chosen, const T* residual, T* out, int64_t n) {
  simt::start_next();
  simt::wait_for_previous();
  const int64_t row = blockIdx.y, column = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (column >= n) return;
  const int64_t at = row * n + column;
  float sum = residual == nullptr ? 0.0f : simt::to_float(residual[at]);
  for (int64_t j = 0; j < chosen; ++j) sum += y[(row * chosen + j) * n + column];
  out[at] = simt::from_float<T>(sum);
}

template <typename T, typename W>
void launch_weights(const SmallBatchMatmul& p, Stream stream) {
  const int64_t slots = std::min(p.rows * p.experts.chosen, p.experts.count);
  if (!takes_vectors<T, W>(p, p.n))
    launch_columns<ExpertRows<8>, T, W, 8, false>(p, slots, stream);
  else if (p.rows == 1)
    launch_columns<ExpertRows<1>, T, W, 1, true>(p, slots, stream);
  else
    launch_columns<ExpertRows<8>, T, W, 8, true>(p, slots, stream);
}

void launch(const SmallBatchMatmul& p, Stream stream) {
  for_operands(p, [&]<typename T, typename W>(T, W) {
    // A float32 matrix beside bfloat16 is a router's, which is one.
    if constexpr (!std::is_same_v<T, bf16> || !std::is_same_v<W, float>)
      launch_weights<T, W>(p, stream);
  });
}

}  // namespace

void small_batch_experts(const SmallBatchMatmul& p, Stream stream) {
  const SmallBatchExperts& e = p.experts;
  QT_ASSERT(p.rows <= kSmallBatchWarps && e.chosen > 0 && e.chosen <= e.count && !p.transposed);
  QT_ASSERT(p.rows * e.chosen <= kMaxSmallBatchChoices);
  QT_ASSERT(p.weight_dtype != DType::f32 || p.dtype == DType::f32);
  if (!e.joins) return launch(p, stream);
  QT_ASSERT(p.gate == nullptr && p.act0 == Activation::linear && p.out_dtype == p.dtype);
  if (e.chosen == 1) return launch(p, stream);
  const simt::Scratch workspace(p.rows * e.chosen * p.n * 4, stream);
  SmallBatchMatmul each = p;
  each.residual = nullptr;
  each.out = workspace.data<float>();
  each.out_dtype = DType::f32;
  launch(each, stream);
  const auto join = [&]<typename T>(T) {
    simt::launch(join_kernel<T>,
                 {.grid = dim3(divided(p.n, kBlockThreads), static_cast<unsigned>(p.rows)),
                  .block = kBlockThreads,
                  .stream = stream,
                  .early = true},
                 workspace.data<float>(), e.chosen, static_cast<const T*>(p.residual),
                 static_cast<T*>(p.out), p.n);
  };
  if (p.dtype == DType::f32)
    join(float{});
  else
    join(bf16{});
}

}  // namespace quintet::QT_GPU
