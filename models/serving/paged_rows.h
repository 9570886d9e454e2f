#pragma once
// Self-attention's cache in pages: a page holds some tokens' keys and values of all layers and
// heads and belongs to one row of one job, or to a prefix that rows share. Rows of any length lie
// side by side without a gap between what they may hold and what they do.
//
//   PagedRows rows(pages, {.rows = 4, .max_length = 128}, prefix_places);
//   rows.follow(generation.rows());              // before each step
//   rows.past(step)                              // where each token of its row stands, the step's last
//
// Pages says what a page and a token's slot are (models/serving/cpu_pages.h, gpu_pages.h).

#include <algorithm>

#include "models/serving/served_network.h"

namespace quintet::serving {

/// How many pages so many tokens take, and bytes.
template <class Pages>
int64_t pages_for(const Pages& pages, int64_t tokens) {
  return (tokens + pages.tokens() - 1) / pages.tokens();
}
template <class Pages>
int64_t bytes_for(const Pages& pages, int64_t tokens) {
  return pages_for(pages, tokens) * pages.bytes();
}

template <class Pages>
class PagedRows : public RowCaches {
 public:
  using Page = typename Pages::Page;
  using Slot = typename Pages::Slot;

  /// `prefix`: slots of tokens that all rows begin with.
  PagedRows(Pages& pages, RowLimits limits, std::span<const Slot> prefix)
      : pages_(pages), limits_(limits), shared_(std::ssize(prefix)) {
    rows_.resize(static_cast<size_t>(limits.rows));
    rows_.front().slots.assign(prefix.begin(), prefix.end());
  }

  /// Lets each row of a step continue its source's history, and takes the slots of its new tokens, which
  /// stand one after another; positions count from the end of the prefix.
  /// Frees the pages of rows that have ended, as far as no other row goes on from them.
  /// A step that failed may be taken again: what has been followed is not followed twice.
  void follow(std::span<const decoding::RowStep> steps) {
    if (std::pair(steps.front().position, steps.back().position) == followed_) return;
    // A row may continue one that is overwritten in the same step: all lists are made, then they
    // change.
    for (Row& row : rows_) row.live = false;
    for (const decoding::RowStep& step : steps) {
      Row& row = rows_.at(static_cast<size_t>(step.row));
      if (!row.live) {
        const Row& source = rows_.at(static_cast<size_t>(step.source));
        const int64_t past = shared_ + step.position;
        QT_ASSERT(std::ssize(source.slots) >= past);
        row.next.assign(source.slots.begin(), source.slots.begin() + past);
      }
      row.next.push_back(writable_slot(row, step.position));
      row.begun = row.live = true;
    }
    bool ended = false;
    for (Row& row : rows_) {
      if (row.live) row.slots.swap(row.next);
      ended = ended || (row.begun && !row.live && !row.own.empty());
    }
    if (ended) free_ended_rows();
    followed_ = {steps.front().position, steps.back().position};
  }
  /// Where the tokens that one of those steps attends to stand, its own last.
  std::span<const Slot> past(const decoding::RowStep& step) const {
    return std::span(rows_[static_cast<size_t>(step.row)].slots)
        .first(static_cast<size_t>(shared_ + step.position + 1));
  }
  /// Pages that are taken, and those that may be at most, later steps included.
  int64_t pages() const { return held_; }
  int64_t reserved() const {
    int64_t pages = 0;
    for (const Row& row : rows_)
      pages += row.live || !row.begun ? pages_for(pages_, limits_.max_length) : std::ssize(row.own);
    return pages;
  }
  int64_t bytes() const override { return pages() * pages_.bytes(); }
  int64_t reserved_bytes() const override { return reserved() * pages_.bytes(); }

 private:
  struct Row {
    std::vector<Page> own;
    std::vector<Slot> slots, next;  // of each token
    bool begun = false, live = false;
  };

  Slot writable_slot(Row& row, int64_t t) {
    QT_ASSERT(t >= 0 && t < limits_.max_length);
    for (; std::ssize(row.own) <= t / pages_.tokens(); ++held_) row.own.push_back(pages_.take());
    return pages_.slot(row.own[static_cast<size_t>(t / pages_.tokens())], t);
  }

  void free_ended_rows() {
    const auto goes_on_from = [&](const Row& row, const Page& page) {
      return std::any_of(row.slots.begin(), row.slots.end(),
                         [&](Slot slot) { return pages_.holds(page, slot); });
    };
    for (Row& row : rows_) {
      if (row.live || !row.begun) continue;
      held_ -= static_cast<int64_t>(std::erase_if(row.own, [&](const Page& page) {
        return std::none_of(rows_.begin(), rows_.end(), [&](const Row& other) {
          return other.live && goes_on_from(other, page);
        });
      }));
      row.slots.clear();
    }
  }

  Pages& pages_;
  const RowLimits limits_;
  const int64_t shared_;  // tokens of the prefix
  int64_t held_ = 0;
  std::pair<int32_t, int32_t> followed_{-1, -1};  // the last step's first and last position
  std::vector<Row> rows_;
};

}  // namespace quintet::serving
