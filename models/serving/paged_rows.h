#pragma once
// Self-attention's cache in pages: a page holds some tokens' keys and values of all layers and
// heads and belongs to one row of one job, or to a prefix that rows share. Rows of any length lie
// side by side without a gap between what they may hold and what they do.
//
//   Pages pages(shape, 16);
//   PagedRows rows(pages, {.rows = 4, .max_length = 128}, prefix_places);
//   rows.follow(generation.rows());              // before each step
//   rows.past(row)                               // where each token of the row stands, the new one
//   last

#include <memory>
#include <span>
#include <vector>

#include "models/decoding/decoder_step.h"
#include "models/decoding/packed_network.h"
#include "models/decoding/request.h"

namespace quintet::serving {

class Pages {
 public:
  Pages(const decoding::NetworkShape& shape, int64_t tokens);

  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return bytes_; }
  int64_t pages_for(int64_t tokens) const { return (tokens + tokens_ - 1) / tokens_; }
  const decoding::CacheLayout& layout() const { return layout_; }
  float* place(float* page, int64_t token) const { return page + token % tokens_ * depth_; }
  struct Free {
    void operator()(float* p) const;
  };
  using Page = std::unique_ptr<float, Free>;
  /// Throws bad_alloc when memory is short.
  Page take() const;

 private:
  int64_t tokens_, depth_, bytes_;
  decoding::CacheLayout layout_;
};

struct RowLimits {
  int64_t rows = 1, max_length = 0;  // max_length: tokens of a row, without the prefix
};

class PagedRows {
 public:
  /// `prefix`: places of tokens that all rows begin with.
  PagedRows(const Pages& pages, RowLimits limits, std::span<float* const> prefix);

  /// Lets each row of a step continue its source's history, and takes the place of its new token;
  /// positions count from the end of the prefix.
  /// Frees the pages of rows that have ended, as far as no other row goes on from them.
  void follow(std::span<const decoding::RowStep> steps);
  /// Where the tokens of a row stand, the newest last.
  std::span<float* const> past(int64_t row) const { return rows_[static_cast<size_t>(row)].places; }
  /// Pages that are taken, and those that may be at most, later steps included.
  int64_t pages() const { return held_; }
  int64_t promised() const;

 private:
  struct Row {
    std::vector<Pages::Page> own;
    std::vector<float*> places, next;  // of each token
    bool begun = false, live = false;
  };
  float* own_place(Row& row, int64_t t);
  void free_ended_rows();

  const Pages& pages_;
  const RowLimits limits_;
  const int64_t shared_;  // tokens of the prefix
  int64_t held_ = 0;
  std::vector<Row> rows_;
};

}  // namespace quintet::serving
