#pragma once
// A step's memory on the device and, pinned, on the host: what it reads and what it answers, one copy
// each way.
//
//   StepMemory memory(max_rows, max_length);
//   memory.clear(), memory.tokens()[0] = token, memory.send();    // then kernels read device_tokens()
//   answers.queue(logits, vocab, memory.device_draws());          // after the synchronize: from(row, draw)

#include <algorithm>

#include "kernels/gpu/gpu_kernels.h"
#include "models/decoding/search/top_k_result.h"

namespace quintet::serving {

/// What a step reads of the host, in one copy: the groups of self-attention and of cross-attention,
/// what is drawn, tokens and their positions, and the slots of all rows' tokens.
class StepMemory {
 public:
  StepMemory(int64_t rows, int64_t max_length)
      : rows_(rows),
        device_(Device::current().memory().allocate(bytes(rows * max_length))),
        host_(Device::current().pinned(bytes(rows * max_length))) {}

  std::span<PagedGroup> self() { return groups(host_, 0); }
  std::span<PagedGroup> cross() { return groups(host_, 1); }
  std::span<RowDraw> draws() { return draws(host_); }
  std::span<int32_t> tokens() { return {ints(host_), static_cast<size_t>(rows_)}; }
  std::span<int32_t> positions() { return {ints(host_) + rows_, static_cast<size_t>(rows_)}; }
  /// Of each row's own token; -1: it rests.
  std::span<int32_t> slots() { return {ints(host_) + 2 * rows_, static_cast<size_t>(rows_)}; }
  const PagedGroup* device_self() { return groups(device_, 0).data(); }
  const PagedGroup* device_cross() { return groups(device_, 1).data(); }
  const RowDraw* device_draws() { return draws(device_).data(); }
  const int32_t* device_tokens() { return ints(device_); }
  const int32_t* device_positions() { return ints(device_) + rows_; }
  const int32_t* device_slots() { return ints(device_) + 2 * rows_; }

  void clear() {
    std::fill_n(self().data(), 2 * rows_, PagedGroup{});
    std::ranges::fill(draws(), RowDraw{});
    std::fill_n(ints(host_), 2 * rows_, 0);
    std::ranges::fill(slots(), -1);
    listed_ = 0;
  }
  /// Where the list will be on the device.
  const int32_t* add_slots(std::span<const int32_t> slots) {
    std::copy(slots.begin(), slots.end(), ints(host_) + 3 * rows_ + listed_);
    const int32_t* const added = ints(device_) + 3 * rows_ + listed_;
    listed_ += std::ssize(slots);
    return added;
  }
  void send() { Device::current().copy(device_.get(), host_.get(), bytes(listed_)); }

 private:
  int64_t bytes(int64_t listed) const {
    return rows_ * static_cast<int64_t>(2 * sizeof(PagedGroup) + sizeof(RowDraw)) +
           4 * (3 * rows_ + listed);
  }
  std::span<PagedGroup> groups(const Buffer& memory, int64_t which) const {
    return {reinterpret_cast<PagedGroup*>(memory.get()) + which * rows_,
            static_cast<size_t>(rows_)};
  }
  std::span<RowDraw> draws(const Buffer& memory) const {
    return {reinterpret_cast<RowDraw*>(groups(memory, 2).data()), static_cast<size_t>(rows_)};
  }
  int32_t* ints(const Buffer& memory) const {
    const std::span<RowDraw> before = draws(memory);
    return reinterpret_cast<int32_t*>(before.data() + before.size());
  }

  const int64_t rows_;
  Buffer device_, host_;
  int64_t listed_ = 0;
};

/// What a step leaves for the host, in one copy: tokens that were asked for, and TopRows' parts.
class AnswerMemory {
 public:
  AnswerMemory(int64_t rows, int64_t vocab)
      : rows_(rows),
        top_(std::min(kMostTop, vocab)),
        draws_(vocab <= kMostDrawnFrom),
        device_(Device::current().memory().allocate(bytes())),
        host_(Device::current().pinned(bytes())) {}

  /// Whether the sampling request has its result here.
  bool holds(const decoding::SamplingRequest* sampling_request) const {
    return sampling_request != nullptr && sampling_request->best <= top_ &&
           (draws_ || sampling_request->draws.empty());
  }
  /// Behind the logits [rows, vocab].
  void queue(const float* logits, int64_t vocab, const RowDraw* draws) const {
    Device& device = Device::current();
    TopRows top = parts(device_);
    top.logits = logits;
    top.vocab = vocab;
    device.kernels().top(top, device.stream());
    if (draws_)
      device.kernels().draw({logits, vocab, rows_, draws, drawn(device_)}, device.stream());
    device.copy(host_.get(), device_.get(), bytes());
  }
  /// Of the rows and the draws from there on.
  decoding::TopKResult from(int64_t row, int64_t draw) const {
    const TopRows top = parts(host_);
    return {.width = top_,
            .values = top.values + row * top_,
            .indices = top.indices + row * top_,
            .log_sums = top.log_sums + row,
            .drawn = drawn(host_) + draw};
  }

 private:
  int64_t bytes() const {
    return rows_ * (static_cast<int64_t>(sizeof(DrawnToken)) + 4 * (2 * top_ + 1));
  }
  DrawnToken* drawn(const Buffer& memory) const {
    return reinterpret_cast<DrawnToken*>(memory.get());
  }
  TopRows parts(const Buffer& memory) const {
    auto* const values = reinterpret_cast<float*>(drawn(memory) + rows_);
    return {.rows = rows_,
            .top = top_,
            .values = values,
            .indices = reinterpret_cast<int32_t*>(values + rows_ * top_),
            .log_sums = values + 2 * rows_ * top_};
  }

  const int64_t rows_, top_;
  const bool draws_;
  Buffer device_, host_;
};

}  // namespace quintet::serving
