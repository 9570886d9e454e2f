#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>
#include <vector>

#include "kernels/cpu/addend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/cross_entropy/token_loss.h"

namespace quintet {
namespace {

using cpu::Scratch;
using cross_entropy::RowGradient;
using cross_entropy::RowStatistics;
using cross_entropy::TokenStatistics;

// Tokens of a chunk: enough for products to run at full speed and dw to be passed over rarely,
// while the logits of a chunk stay near 64 MiB.
constexpr int64_t kMostTokens = 512, kLeastTokens = 128, kChunkElements = int64_t{1} << 24;
// Columns a thread works on at a time: x, w's columns and the logits then lie in its second-level
// cache.
constexpr int64_t kMostColumns = 512, kLeastColumns = 64, kBlocksWanted = 16;

struct Sums {
  double loss = 0, z_loss = 0, correct = 0;
};

/// As the phases pass it on: largest, exponentials, sum, target, column of the first largest.
constexpr int64_t kPassedOn = 5;

/// One call of the op, or of one of its phases.
class CrossEntropy {
 public:
  /// The whole op, or, with statistics as a fifth operand, its second phase.
  CrossEntropy(Views in, Views out, const Attrs& attrs, bool is_transposed);
  void run();
  /// The first phase.
  static void make_statistics(Views in, const View& out, const Attrs& attrs, bool is_transposed);

 private:
  CrossEntropy(Views in, const Attrs& attrs, bool is_transposed);
  struct Block {
    int64_t first, columns;  // of the vocabulary
    float* logits;           // [tokens, columns]
    RowStatistics* statistics;
  };
  struct Chunk {
    std::vector<int64_t> tokens;
    const float* x = nullptr;  // [tokens, width]
    std::vector<Block> blocks;
    std::vector<RowStatistics> statistics;
    bool has_gradient = false, is_first = false;
    int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  };

  void check_targets() const;
  int64_t chunk_tokens() const {
    return std::clamp(kChunkElements / std::max<int64_t>(vocabulary_, 1), kLeastTokens,
                      kMostTokens);
  }
  /// Threads that share a chunk's blocks; a multiplication takes about 6 ps, starting a thread 2
  /// us.
  int part_count(const Chunk& chunk) const {
    const int64_t work = chunk.size() * std::max<int64_t>(width_, 1) * vocabulary_;
    return cpu::part_count(std::min(static_cast<int64_t>(chunk.blocks.size()), work >> 18), 1);
  }
  void process(Chunk& chunk);
  void make_logits(Chunk& chunk) const;
  void make_blocks(Chunk& chunk) const;
  const float* gather(const std::vector<int64_t>& tokens) const;
  void logits_of(const Chunk& chunk, const Block& block) const;
  TokenStatistics statistics_of(const Chunk& chunk, int64_t row) const;
  TokenStatistics merged_statistics(int64_t token) const;
  RowGradient finish_token(const Chunk& chunk, int64_t row);
  void pass_on(const Chunk& chunk, float* statistics) const;
  std::vector<Chunk> chunks_of(const std::vector<int64_t>& tokens) const;
  int64_t first_largest(const Chunk& chunk, int64_t row, int64_t last, float largest) const;
  void gradient_of(const Chunk& chunk, const Block& block, const std::vector<RowGradient>& rows,
                   float* dx, bool is_first) const;
  void scatter_dx(const Chunk& chunk, const float* parts, int count) const;
  template <typename Body>
  void for_blocks(const Chunk& chunk, const Body& body) const;

  const bool is_transposed_;
  int64_t tokens_, width_;
  int64_t vocabulary_, first_column_, all_columns_;  // of w's block; of the whole
  const float *x_, *w_, *weights_ = nullptr;
  const float* statistics_ = nullptr;  // of all blocks: [tokens, blocks, kPassedOn]
  int64_t blocks_ = 0;
  const int32_t* targets_;
  float *loss_ = nullptr, *z_loss_ = nullptr, *correct_ = nullptr;
  float *log_probability_ = nullptr, *dx_ = nullptr, *dw_ = nullptr;  // may be null
  float dw_beta_ = 0;                                                 // of what is in dw
  cross_entropy::LossRule rule_{cross_entropy::LossFactors(), 0};
  double scale_;
  Sums sums_;
};

float* optional_f32(const View& view, const char* name) {
  return view.absent() ? nullptr : cpu::f32(view, "cross_entropy", name);
}

CrossEntropy::CrossEntropy(Views in, const Attrs& attrs, bool is_transposed)
    : is_transposed_(is_transposed), scale_(attrs.get_or<double>("logit_scale", 1.0)) {
  const View &x = in[0], &w = in[1];
  tokens_ = x.rows(), width_ = x.depth();
  cpu::expect_shape(
      w.rank == 2 && w.size(is_transposed ? 1 : 0) == width_ && in[2].elements() == tokens_,
      "cross_entropy", "...e, ev, ...");
  const size_t vocabulary_axis = is_transposed ? 0 : 1;
  vocabulary_ = w.sizes[vocabulary_axis];
  first_column_ = w.origin[vocabulary_axis];
  all_columns_ = w.global[vocabulary_axis];
  QT_CHECK(in[2].dtype == DType::i32, "cross_entropy: targets have dtype {}, expected int32",
           name_of(in[2].dtype));
  x_ = cpu::f32(x, "cross_entropy", "x");
  w_ = cpu::f32(w, "cross_entropy", "the projection");
  targets_ = in[2].data<int32_t>();
}

CrossEntropy::CrossEntropy(Views in, Views out, const Attrs& attrs, bool is_transposed)
    : CrossEntropy(in, attrs, is_transposed) {
  QT_ASSERT(in.size() >= 4 && out.size() == 6);
  cpu::expect_shape(in[3].elements() == tokens_, "cross_entropy", "...e, ev, ..., ...");
  if (in.size() == 5) {
    statistics_ = cpu::f32(in[4], "cross_entropy", "statistics");
    blocks_ = in[4].size(-2);
  }
  QT_ASSERT(statistics_ != nullptr || all_columns_ == vocabulary_);  // a softmax needs all
  weights_ = cpu::f32(in[3], "cross_entropy", "weights");
  loss_ = cpu::f32(out[0], "cross_entropy", "loss");
  z_loss_ = cpu::f32(out[1], "cross_entropy", "z_loss");
  correct_ = cpu::f32(out[2], "cross_entropy", "correct");
  log_probability_ = optional_f32(out[3], "log_probability");
  dx_ = optional_f32(out[4], "dx");
  dw_ = optional_f32(out[5], "dw");
  dw_beta_ = cpu::copy_addend(in, 4, out, 5);
  rule_ = {attrs, all_columns_};
}

void CrossEntropy::make_statistics(Views in, const View& out, const Attrs& attrs,
                                   bool is_transposed) {
  const CrossEntropy op(in, attrs, is_transposed);
  std::vector<int64_t> all(static_cast<size_t>(op.tokens_));
  std::iota(all.begin(), all.end(), int64_t{0});
  for (Chunk& chunk : op.chunks_of(all)) {
    op.make_logits(chunk);
    op.pass_on(chunk, cpu::f32(out, "cross_entropy", "statistics"));
  }
}

void CrossEntropy::check_targets() const {
  for (int64_t t = 0; t < tokens_; ++t)
    QT_CHECK_AS(ExitCode::kData,
                weights_[t] == 0 || (targets_[t] >= 0 && targets_[t] < all_columns_),
                "cross_entropy: target {} at position {} of {} is outside the vocabulary of {} "
                "tokens; give it weight 0 or check the tokenizer's vocabulary against the model's",
                targets_[t], t, tokens_, all_columns_);
}

void CrossEntropy::run() {
  check_targets();
  std::vector<int64_t> weighted, others;
  for (int64_t t = 0; t < tokens_; ++t) (weights_[t] != 0 ? weighted : others).push_back(t);
  if (dx_ != nullptr) std::fill(dx_, dx_ + tokens_ * width_, 0.0F);
  if (log_probability_ != nullptr) std::fill_n(log_probability_, tokens_, 0.0F);
  if (dw_ != nullptr && weighted.empty() && dw_beta_ == 0)
    std::fill(dw_, dw_ + width_ * vocabulary_, 0.0F);
  const bool has_gradient = dx_ != nullptr || dw_ != nullptr;
  if (log_probability_ == nullptr) others.clear();
  for (const auto* list : {&weighted, &others})
    for (Chunk& chunk : chunks_of(*list)) {
      chunk.has_gradient = has_gradient && list == &weighted;
      process(chunk);
    }
  *loss_ = static_cast<float>(sums_.loss);
  *z_loss_ = static_cast<float>(sums_.z_loss);
  *correct_ = static_cast<float>(sums_.correct);
}

std::vector<CrossEntropy::Chunk> CrossEntropy::chunks_of(const std::vector<int64_t>& tokens) const {
  std::vector<Chunk> chunks;
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(chunk_tokens())) {
    const size_t end = std::min(tokens.size(), at + static_cast<size_t>(chunk_tokens()));
    chunks.emplace_back().tokens.assign(tokens.begin() + static_cast<int64_t>(at),
                                        tokens.begin() + static_cast<int64_t>(end));
    chunks.back().is_first = at == 0;
  }
  return chunks;
}

void CrossEntropy::make_logits(Chunk& chunk) const {
  make_blocks(chunk);
  chunk.x = gather(chunk.tokens);
  for_blocks(chunk, [&](const Block& block, int) { logits_of(chunk, block); });
}

void CrossEntropy::process(Chunk& chunk) {
  if (vocabulary_ == 0) return;
  if (statistics_ == nullptr || chunk.has_gradient) make_logits(chunk);
  std::vector<RowGradient> rows;
  for (int64_t row = 0; row < chunk.size(); ++row) rows.push_back(finish_token(chunk, row));
  if (!chunk.has_gradient) return;
  const int threads = part_count(chunk);
  const int64_t part = chunk.size() * width_;
  float* dx = dx_ == nullptr ? nullptr : cpu::scratch(Scratch::kSums, threads * part);
  for_blocks(chunk, [&](const Block& block, int thread) {
    const int64_t first =
        cpu::part_begin(static_cast<int64_t>(chunk.blocks.size()), thread, threads);
    gradient_of(chunk, block, rows, dx == nullptr ? nullptr : dx + thread * part,
                &block == &chunk.blocks[static_cast<size_t>(first)]);
  });
  if (dx != nullptr) scatter_dx(chunk, dx, threads);
}

/// Calls body(block, part) for all blocks, a consecutive range of them for each thread; passes on
/// what a body throws.
template <typename Body>
void CrossEntropy::for_blocks(const Chunk& chunk, const Body& body) const {
  const auto count = static_cast<int64_t>(chunk.blocks.size());
  std::exception_ptr error;
  std::mutex mutex;
  cpu::parallel_parts(count, part_count(chunk), [&](int64_t begin, int64_t end, int part) {
    try {
      for (int64_t i = begin; i < end; ++i) body(chunk.blocks[static_cast<size_t>(i)], part);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

void CrossEntropy::make_blocks(Chunk& chunk) const {
  // The size does not depend on the threads, so neither do the sums over blocks.
  const int64_t wanted = (vocabulary_ / kBlocksWanted + kLeastColumns - 1) / kLeastColumns;
  const int64_t columns = std::clamp(wanted * kLeastColumns, kLeastColumns, kMostColumns);
  float* logits = cpu::scratch(Scratch::kProducts, chunk.size() * vocabulary_);
  chunk.statistics.resize(
      static_cast<size_t>(chunk.size() * ((vocabulary_ + columns - 1) / columns)));
  RowStatistics* statistics = chunk.statistics.data();
  for (int64_t first = 0; first < vocabulary_; first += columns, statistics += chunk.size())
    chunk.blocks.push_back(
        {first, std::min(columns, vocabulary_ - first), logits + chunk.size() * first, statistics});
}

/// The chunk's rows of x, contiguous.
const float* CrossEntropy::gather(const std::vector<int64_t>& tokens) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (tokens.back() - tokens.front() + 1 == count) return x_ + tokens.front() * width_;
  float* rows = cpu::scratch(Scratch::kGrads, count * width_);
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(x_ + tokens[static_cast<size_t>(i)] * width_, width_, rows + i * width_);
  return rows;
}

void CrossEntropy::logits_of(const Chunk& chunk, const Block& block) const {
  const int64_t stride = is_transposed_ ? width_ : vocabulary_;
  const float* w = w_ + block.first * (is_transposed_ ? width_ : 1);
  cpu::gemm({.m = chunk.size(),
             .n = block.columns,
             .k = width_,
             .transpose_b = is_transposed_,
             .alpha = static_cast<float>(scale_)},
            chunk.x, width_, w, stride, block.logits, block.columns);
  cross_entropy::block_statistics(block.logits, chunk.size(), block.columns, block.statistics);
}

/// Column of the first logit that is `largest`, if it is not after `last`; else -1.
int64_t CrossEntropy::first_largest(const Chunk& chunk, int64_t row, int64_t last,
                                    float largest) const {
  for (const Block& block : chunk.blocks) {
    if (block.first > last) break;
    if (block.statistics[row].largest != largest) continue;
    const float* logits = block.logits + row * block.columns;
    return std::find(logits, logits + block.columns, largest) - logits + block.first;
  }
  return -1;
}

/// From the logits of this block of the vocabulary.
TokenStatistics CrossEntropy::statistics_of(const Chunk& chunk, int64_t row) const {
  TokenStatistics all;
  all.add_parts(std::ssize(chunk.blocks),
                [&](int64_t b) { return chunk.blocks[static_cast<size_t>(b)].statistics[row]; });
  const int64_t target = targets_[chunk.tokens[static_cast<size_t>(row)]] - first_column_;
  if (target >= 0 && target < vocabulary_) {
    const Block& block = chunk.blocks[static_cast<size_t>(target / chunk.blocks.front().columns)];
    all.target = block.logits[row * block.columns + target - block.first];
    all.is_correct = first_largest(chunk, row, target, all.largest) == target;
  }
  return all;
}

void CrossEntropy::pass_on(const Chunk& chunk, float* statistics) const {
  for (int64_t row = 0; row < chunk.size(); ++row) {
    const TokenStatistics s = statistics_of(chunk, row);
    float* to = statistics + chunk.tokens[static_cast<size_t>(row)] * kPassedOn;
    to[0] = s.largest;
    to[1] = static_cast<float>(s.exponentials);
    to[2] = static_cast<float>(s.sum);
    to[3] = s.target;
    to[4] = static_cast<float>(first_largest(chunk, row, vocabulary_, s.largest) + first_column_);
  }
}

/// From what the blocks of the vocabulary passed on, in their order.
TokenStatistics CrossEntropy::merged_statistics(int64_t token) const {
  const float* first = statistics_ + token * blocks_ * kPassedOn;
  TokenStatistics all;
  all.add_parts(blocks_, [&](int64_t b) {
    const float* s = first + b * kPassedOn;
    return RowStatistics{s[0], s[1], s[2]};
  });
  bool is_first = true;
  for (int64_t b = 0; b < blocks_; ++b) {
    const float* s = first + b * kPassedOn;
    all.target += s[3];
    if (is_first && s[0] == all.largest) {
      all.is_correct = s[4] == static_cast<float>(targets_[token]);
      is_first = false;
    }
  }
  return all;
}

/// Log-probability and loss of a token from its logits' statistics.
RowGradient CrossEntropy::finish_token(const Chunk& chunk, int64_t row) {
  const int64_t token = chunk.tokens[static_cast<size_t>(row)];
  const TokenStatistics s =
      statistics_ != nullptr ? merged_statistics(token) : statistics_of(chunk, row);
  const cross_entropy::TokenLoss loss = rule_.of(s);
  // The block of the vocabulary that has the target counts the token.
  const int64_t target = targets_[token] - first_column_;
  const bool is_here = target >= 0 && target < vocabulary_;
  if (log_probability_ != nullptr)
    log_probability_[token] = is_here ? static_cast<float>(loss.log_probability) : 0;
  const auto weight = static_cast<double>(weights_[token]);
  if (weight == 0) return {};
  if (is_here) {
    sums_.loss += weight * loss.loss;
    sums_.z_loss += weight * loss.z_loss;
    sums_.correct += loss.correct;
  }
  return {static_cast<float>(s.lse()),
          static_cast<float>(weight * (1 + 2 * rule_.z_loss * s.lse())),
          static_cast<float>(weight * rule_.off)};
}

/// Logits become their gradients; adds the block's part to dx and dw.
void CrossEntropy::gradient_of(const Chunk& chunk, const Block& block,
                               const std::vector<RowGradient>& rows, float* dx,
                               bool is_first) const {
  cross_entropy::block_gradient(block.logits, chunk.size(), block.columns, rows.data());
  for (int64_t row = 0; row < chunk.size(); ++row) {
    const int64_t token = chunk.tokens[static_cast<size_t>(row)];
    const int64_t column = targets_[token] - first_column_ - block.first;
    if (column >= 0 && column < block.columns)
      block.logits[row * block.columns + column] -=
          static_cast<float>(static_cast<double>(weights_[token]) * (rule_.on - rule_.off));
  }
  const auto alpha = static_cast<float>(scale_);
  const int64_t stride = is_transposed_ ? width_ : vocabulary_;
  const int64_t offset = block.first * (is_transposed_ ? width_ : 1);
  if (dx != nullptr)
    cpu::gemm({.m = chunk.size(),
               .n = width_,
               .k = block.columns,
               .transpose_b = !is_transposed_,
               .alpha = alpha,
               .beta = is_first ? 0.0F : 1.0F},
              block.logits, block.columns, w_ + offset, stride, dx, width_);
  if (dw_ == nullptr) return;
  const float beta = chunk.is_first ? dw_beta_ : 1.0F;
  if (is_transposed_)
    cpu::gemm({.m = block.columns,
               .n = width_,
               .k = chunk.size(),
               .transpose_a = true,
               .alpha = alpha,
               .beta = beta},
              block.logits, block.columns, chunk.x, width_, dw_ + offset, stride);
  else
    cpu::gemm({.m = width_,
               .n = block.columns,
               .k = chunk.size(),
               .transpose_a = true,
               .alpha = alpha,
               .beta = beta},
              chunk.x, width_, block.logits, block.columns, dw_ + offset, stride);
}

/// dx of the chunk's tokens: the threads' parts, added in order.
void CrossEntropy::scatter_dx(const Chunk& chunk, const float* parts, int count) const {
  const int64_t part = chunk.size() * width_;
  cpu::parallel_for(chunk.size(), cpu::row_grain(width_), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* to = dx_ + chunk.tokens[static_cast<size_t>(row)] * width_;
      for (int i = 0; i < count; ++i)
        for (int64_t c = 0; c < width_; ++c) to[c] += parts[i * part + row * width_ + c];
    }
  });
}

}  // namespace

void cross_entropy_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  CrossEntropy(in, out, attrs, false).run();
}

void cross_entropy_t_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  CrossEntropy(in, out, attrs, true).run();
}

void cross_entropy_statistics_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  CrossEntropy::make_statistics(in, out[0], attrs, false);
}

void cross_entropy_t_statistics_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  CrossEntropy::make_statistics(in, out[0], attrs, true);
}

void cross_entropy_apply_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  CrossEntropy(in, out, attrs, false).run();
}

void cross_entropy_t_apply_cpu(Views in, Views out, const Attrs& attrs, Stream) {
  CrossEntropy(in, out, attrs, true).run();
}

}  // namespace quintet
