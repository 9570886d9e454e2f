#include "models/serving/paged_rows.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace quintet::serving {

Pages::Pages(const decoding::NetworkShape& shape, int64_t tokens) : tokens_(tokens) {
  QT_CHECK(tokens > 0, "serving: pages of {} tokens; at least 1", tokens);
  depth_ = padded_to_vectors(shape.head_dim);
  const int64_t values = tokens * depth_;
  layout_ = {.layer = 2 * values * shape.num_heads, .head = 2 * values, .values = values};
  bytes_ = 4 * layout_.layer * shape.num_decoder_layers;
}

void Pages::Free::operator()(float* p) const { std::free(p); }

Pages::Page Pages::take() const {
  constexpr int64_t kAlign = 128;  // of any vector
  Page page(static_cast<float*>(
      std::aligned_alloc(kAlign, static_cast<size_t>((bytes_ + kAlign - 1) / kAlign * kAlign))));
  if (page == nullptr) throw std::bad_alloc();
  return page;
}

PagedRows::PagedRows(const Pages& pages, RowLimits limits, std::span<float* const> prefix)
    : pages_(pages), limits_(limits), shared_(std::ssize(prefix)) {
  rows_.resize(static_cast<size_t>(limits.rows));
  rows_.front().places.assign(prefix.begin(), prefix.end());
}

float* PagedRows::own_place(Row& row, int64_t t) {
  QT_ASSERT(t >= 0 && t < limits_.max_length);
  for (; std::ssize(row.own) <= t / pages_.tokens(); ++held_) row.own.push_back(pages_.take());
  return pages_.place(row.own[static_cast<size_t>(t / pages_.tokens())].get(), t);
}

void PagedRows::follow(std::span<const decoding::RowStep> steps) {
  // A row may continue one that is overwritten in the same step: all lists are made, then they
  // change.
  for (Row& row : rows_) row.live = false;
  for (const decoding::RowStep& step : steps) {
    Row& row = rows_.at(static_cast<size_t>(step.row));
    const Row& source = rows_.at(static_cast<size_t>(step.source));
    const int64_t past = shared_ + step.position;
    QT_ASSERT(std::ssize(source.places) >= past);
    row.next.assign(source.places.begin(), source.places.begin() + past);
    row.next.push_back(own_place(row, step.position));
    row.begun = row.live = true;
  }
  bool ended = false;
  for (Row& row : rows_) {
    if (row.live) row.places.swap(row.next);
    ended = ended || (row.begun && !row.live && !row.own.empty());
  }
  if (ended) free_ended_rows();
}

void PagedRows::free_ended_rows() {
  const int64_t floats = pages_.bytes() / 4;
  const auto goes_on_from = [&](const Row& row, const Pages::Page& page) {
    return std::any_of(row.places.begin(), row.places.end(), [&](const float* place) {
      return place >= page.get() && place < page.get() + floats;
    });
  };
  for (Row& row : rows_) {
    if (row.live || !row.begun) continue;
    held_ -= static_cast<int64_t>(std::erase_if(row.own, [&](const Pages::Page& page) {
      return std::none_of(rows_.begin(), rows_.end(), [&](const Row& other) {
        return other.live && goes_on_from(other, page);
      });
    }));
    row.places.clear();
  }
}

int64_t PagedRows::promised() const {
  int64_t pages = 0;
  for (const Row& row : rows_)
    pages += row.live || !row.begun ? pages_.pages_for(limits_.max_length) : std::ssize(row.own);
  return pages;
}

}  // namespace quintet::serving
