#include <algorithm>

#include "kernels/cross_entropy/cross_entropy_gpu.h"
#include "kernels/cross_entropy/rows.cuh"
#include "kernels/cross_entropy/token_loss.h"
#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/simt/host/gemm.h"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/operands_gpu.h"
#include "kernels/vectors/vectors.cuh"

namespace quintet::QT_GPU {
namespace {

using cross_entropy::BlockStatistics;
using cross_entropy::LossRule;
using cross_entropy::TokenLoss;

// Logits of a chunk: 512 MiB in bfloat16. Every chunk passes over dw once more, so few are better.
constexpr int64_t kChunkElements = int64_t{1} << 28;
constexpr int64_t kLeastTokens = 128;

constexpr int kSumThreads = 1024;

/// The three sums over all tokens: each thread adds every 1024th token in double, then the threads'
/// sums are added in a fixed order.
__global__ void __launch_bounds__(kSumThreads)
    sum_losses(const TokenLoss* losses, int64_t tokens, float* loss, float* z_loss,
               float* correct) {
  auto workspace = simt::shared<double>(0, 32);
  double sums[3] = {};
  for (int64_t t = threadIdx.x; t < tokens; t += kSumThreads) {
    sums[0] += static_cast<double>(losses[t].loss);
    sums[1] += static_cast<double>(losses[t].z_loss);
    sums[2] += static_cast<double>(losses[t].correct);
  }
  float* const results[3] = {loss, z_loss, correct};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const double total = block_sum(sums[i], workspace);
    if (threadIdx.x == 0) *results[i] = static_cast<float>(total);
  }
}

LossRule rule_of(const Attrs& attrs, int64_t vocabulary) {
  const quintet::cross_entropy::LossRule rule(attrs, vocabulary);
  return {static_cast<float>(rule.on), static_cast<float>(rule.off),
          static_cast<float>(rule.constant), static_cast<float>(rule.z_loss)};
}

/// One call of the op, or of one of its phases. x: [tokens, width]; w: [width, vocabulary], a block of
/// the columns where it is sharded, or transposed.
template <typename T>
class CrossEntropy {
 public:
  /// The whole op, or, with statistics as a fifth operand, its second phase.
  CrossEntropy(Views in, Views out, const Attrs& attrs, Stream stream, bool is_transposed);
  /// The first phase.
  CrossEntropy(Views in, const Attrs& attrs, Stream stream, bool is_transposed);
  void run(int64_t most_tokens);
  void make_statistics(const View& out, int64_t most_tokens);

 private:
  static constexpr DType kType = std::is_same_v<T, float> ? DType::f32 : DType::bf16;
  cross_entropy::Rows<T> rows_of(int64_t first, T* logits) const;
  void chunk(int64_t first, int64_t tokens, T* logits, TokenLoss* losses);
  void logits_of(int64_t first, int64_t tokens, T* logits) const;
  void products(int64_t first, int64_t tokens, const T* gradient) const;

  const bool is_transposed_;
  const Stream stream_;
  int64_t tokens_, width_, stride_;
  int64_t vocabulary_, first_column_, all_columns_;  // of w's block; of the whole
  const T *x_, *w_;
  const int32_t* targets_;
  const float* weights_ = nullptr;
  const BlockStatistics* statistics_ = nullptr;  // of all blocks: [tokens, blocks]
  int64_t blocks_ = 0;
  float *loss_ = nullptr, *z_loss_ = nullptr, *correct_ = nullptr;
  float *log_probability_ = nullptr, *dw_ = nullptr;  // may be null
  const void* dw_addend_ = nullptr;                   // what dw is added to; null: nothing
  T* dx_ = nullptr;                                   // may be null
  LossRule rule_;
  float scale_;
};

template <typename T>
CrossEntropy<T>::CrossEntropy(Views in, const Attrs& attrs, Stream stream, bool is_transposed)
    : is_transposed_(is_transposed), stream_(stream) {
  const char* op = "cross_entropy";
  const View &x = in[0], &w = in[1];
  tokens_ = x.rows(), width_ = x.depth();
  expect_shape(
      w.rank == 2 && w.size(is_transposed ? 1 : 0) == width_ && in[2].elements() == tokens_, op,
      "...e, ev, ...");
  const size_t vocabulary_axis = is_transposed ? 0 : 1;
  vocabulary_ = w.sizes[vocabulary_axis];
  first_column_ = w.origin[vocabulary_axis];
  all_columns_ = w.global[vocabulary_axis];
  QT_ASSERT(all_columns_ < int64_t{1} << 30);  // columns are counted in 32 bits
  QT_CHECK(in[2].dtype == DType::i32, "cross_entropy: targets have dtype {}, expected int32",
           name_of(in[2].dtype));
  x_ = elements<T>(x, op, "x");
  w_ = elements<T>(w, op, "the projection");
  targets_ = in[2].data<int32_t>();
  scale_ = static_cast<float>(attrs.get_or<double>("logit_scale", 1.0));
  // Rows are read 16 bytes at a time.
  stride_ = (vocabulary_ + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

template <typename T>
CrossEntropy<T>::CrossEntropy(Views in, Views out, const Attrs& attrs, Stream stream,
                              bool is_transposed)
    : CrossEntropy(in, attrs, stream, is_transposed) {
  QT_ASSERT(in.size() >= 4 && out.size() == 6);
  const char* op = "cross_entropy";
  expect_shape(in[3].elements() == tokens_, op, "...e, ev, ..., ...");
  if (in.size() == 5) {
    blocks_ = in[4].size(-2);
    expect_shape(in[4].elements() * static_cast<int64_t>(sizeof(float)) ==
                     tokens_ * blocks_ * static_cast<int64_t>(sizeof(BlockStatistics)),
                 op, "...e, ev, ..., ..., ...bs");
    statistics_ =
        reinterpret_cast<const BlockStatistics*>(elements<float>(in[4], op, "statistics"));
  }
  QT_ASSERT(statistics_ != nullptr || all_columns_ == vocabulary_);  // a softmax needs all
  weights_ = elements<float>(in[3], op, "weights");
  loss_ = elements<float>(out[0], op, "loss");
  z_loss_ = elements<float>(out[1], op, "z_loss");
  correct_ = elements<float>(out[2], op, "correct");
  log_probability_ = optional_elements<float>(out[3], op, "log_probability");
  dx_ = optional_elements<T>(out[4], op, "dx");
  dw_ = optional_elements<float>(out[5], op, "dw");
  dw_addend_ = addend_of(in, 4, 5);
  rule_ = rule_of(attrs, all_columns_);
}

template <typename T>
void CrossEntropy<T>::run(int64_t most_tokens) {
  const int64_t each = std::min(most_tokens, tokens_);
  const simt::Scratch logits(each * stride_ * static_cast<int64_t>(sizeof(T)), stream_);
  const simt::Scratch losses(tokens_ * static_cast<int64_t>(sizeof(TokenLoss)), stream_);
  for (int64_t first = 0; first < tokens_; first += each)
    chunk(first, std::min(each, tokens_ - first), logits.template data<T>(),
          losses.template data<TokenLoss>());
  // Without a vocabulary nothing was computed, and no sum is: every token is then a fault or idle.
  if (tokens_ == 0 && dw_ != nullptr) {
    const View dw = View::of(dw_, std::array{width_ * vocabulary_});
    if (!put_addend(dw_addend_, dw)) fill_gpu(dw, 0, stream_);
  }
  simt::launch(sum_losses,
               {.grid = 1, .block = kSumThreads, .shared = 32 * sizeof(double), .stream = stream_},
               losses.template data<TokenLoss>(), tokens_, loss_, z_loss_, correct_);
}

template <typename T>
void CrossEntropy<T>::make_statistics(const View& out, int64_t most_tokens) {
  auto* const statistics =
      reinterpret_cast<BlockStatistics*>(elements<float>(out, "cross_entropy", "statistics"));
  rule_.off = 1;  // the sum of the logits, too
  const int64_t each = std::min(most_tokens, tokens_);
  const simt::Scratch logits(each * stride_ * static_cast<int64_t>(sizeof(T)), stream_);
  for (int64_t first = 0; first < tokens_; first += each) {
    const int64_t tokens = std::min(each, tokens_ - first);
    logits_of(first, tokens, logits.template data<T>());
    cross_entropy::summarize_rows<T>(rows_of(first, logits.template data<T>()), tokens,
                                     statistics + first, stream_);
  }
}

template <typename T>
cross_entropy::Rows<T> CrossEntropy<T>::rows_of(int64_t first, T* logits) const {
  return {.logits = logits,
          .stride = stride_,
          .vocabulary = static_cast<int32_t>(vocabulary_),
          .first_column = static_cast<int32_t>(first_column_),
          .all_columns = static_cast<int32_t>(all_columns_),
          .targets = targets_ + first,
          .weights = nullptr,
          .losses = nullptr,
          .log_probabilities = nullptr,
          .has_gradient = false,
          .first_token = first,
          .fault = simt::fault_slot(),
          .rule = rule_};
}

template <typename T>
void CrossEntropy<T>::chunk(int64_t first, int64_t tokens, T* logits, TokenLoss* losses) {
  logits_of(first, tokens, logits);
  cross_entropy::Rows<T> rows = rows_of(first, logits);
  rows.weights = weights_ + first;
  rows.losses = losses + first;
  if (log_probability_ != nullptr) rows.log_probabilities = log_probability_ + first;
  rows.has_gradient = dx_ != nullptr || dw_ != nullptr;
  if (statistics_ != nullptr)
    rows.statistics = statistics_ + first * blocks_, rows.blocks = blocks_;
  cross_entropy::process_rows(rows, tokens, stream_);
  if (rows.has_gradient) products(first, tokens, logits);
}

template <typename T>
void CrossEntropy<T>::logits_of(int64_t first, int64_t tokens, T* logits) const {
  if (width_ == 0) {
    View all = View::of(static_cast<float*>(nullptr), std::array{tokens * stride_});
    all.pointer = logits;
    all.dtype = kType;
    return fill_gpu(all, 0, stream_);
  }
  simt::gemm(stream_, {.m = tokens,
                       .n = vocabulary_,
                       .k = width_,
                       .a = x_ + first * width_,
                       .b = w_,
                       .c = logits,
                       .type = kType,
                       .c_type = kType,
                       .b_transposed = is_transposed_,
                       .alpha = scale_,
                       .ldc = stride_});
}

/// dx of the chunk; its part of dw.
template <typename T>
void CrossEntropy<T>::products(int64_t first, int64_t tokens, const T* gradient) const {
  if (width_ == 0 || vocabulary_ == 0) return;
  const T* x = x_ + first * width_;
  if (dx_ != nullptr)
    simt::gemm(stream_, {.m = tokens,
                         .n = width_,
                         .k = vocabulary_,
                         .a = gradient,
                         .b = w_,
                         .c = dx_ + first * width_,
                         .type = kType,
                         .c_type = kType,
                         .b_transposed = !is_transposed_,
                         .alpha = scale_,
                         .lda = stride_});
  if (dw_ == nullptr) return;
  simt::Gemm g{.m = vocabulary_,
               .n = width_,
               .k = tokens,
               .a = gradient,
               .b = x,
               .c = dw_,
               .type = kType,
               .c_type = DType::f32,
               .a_transposed = true,
               .alpha = scale_,
               .addend = first == 0 ? dw_addend_ : dw_,
               .lda = stride_};
  if (!is_transposed_) {
    std::swap(g.m, g.n);
    std::swap(g.a, g.b);
    std::swap(g.lda, g.ldb);
  }
  simt::gemm(stream_, g);
}

}  // namespace

void cross_entropy_in_chunks(Views in, Views out, const Attrs& attrs, Stream stream,
                             bool is_transposed, int64_t tokens_per_chunk) {
  for_dtype(in[0], "cross_entropy", [&]<typename T>(T) {
    if (out.size() == 1)
      CrossEntropy<T>(in, attrs, stream, is_transposed).make_statistics(out[0], tokens_per_chunk);
    else
      CrossEntropy<T>(in, out, attrs, stream, is_transposed).run(tokens_per_chunk);
  });
}

namespace {

void run(Views in, Views out, const Attrs& attrs, Stream stream, bool is_transposed) {
  const int64_t vocabulary = std::max<int64_t>(in[1].size(is_transposed ? 0 : 1), 1);
  cross_entropy_in_chunks(in, out, attrs, stream, is_transposed,
                          std::max(kChunkElements / vocabulary, kLeastTokens));
}

}  // namespace

void cross_entropy_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  run(in, out, attrs, stream, false);
}
void cross_entropy_t_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  run(in, out, attrs, stream, true);
}
void cross_entropy_statistics_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  run(in, out, attrs, stream, false);
}
void cross_entropy_t_statistics_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  run(in, out, attrs, stream, true);
}
void cross_entropy_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  run(in, out, attrs, stream, false);
}
void cross_entropy_t_apply_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  run(in, out, attrs, stream, true);
}

}  // namespace quintet::QT_GPU
