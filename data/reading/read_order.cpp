#include "data/reading/read_order.h"

#include <algorithm>

#include "data/reading/work_chunks.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr uint32_t kOrder = 1, kExamples = 2, kInWindows = 3;  // what an epoch's key is folded with

class PlaceStream final : public Stream {
 public:
  PlaceStream(std::shared_ptr<const ReadOrder> order, int64_t first, int64_t count)
      : order_(std::move(order)), at_(first), end_(first + count) {
    if (const auto size = order_->size()) end_ = std::min(end_, *size);
  }
  bool next(Example& out) override {
    while (at_ < end_) {
      const auto [epoch, i] = order_->split_place(at_++);
      if (!epoch_ || epoch_->number() != epoch) epoch_ = order_->epoch(epoch);
      if (order_->read(*epoch_, i, out)) return true;
    }
    return false;
  }
  void save(Position& position) const override { position.push_back(at_); }
  void restore(PositionReader&) override { QT_ASSERT(false); }

 private:
  std::shared_ptr<const ReadOrder> order_;
  int64_t at_, end_;
  std::optional<ReadOrder::Epoch> epoch_;
};

}  // namespace

ReadOrder::ReadOrder(std::shared_ptr<const Reader> reader, const ReadOptions& options)
    : reader_(std::move(reader)), options_(options), size_(reader_->size()) {
  QT_CHECK_AS(ExitCode::kData, options_.epochs.has_value() || !size_ || *size_ > 0,
              "{}: the data set is empty; training needs at least one example", reader_->where(-1));
  QT_CHECK(
      size_ || !options_.epochs,
      "{}: the split has no end, so it cannot be read once; choose another split for evaluation",
      reader_->where(-1));
}

std::optional<int64_t> ReadOrder::size() const {
  if (size_ && *size_ == 0) return 0;
  return options_.epochs ? std::optional(*size_ * *options_.epochs) : std::nullopt;
}

std::pair<int64_t, int64_t> ReadOrder::split_place(int64_t place) const {
  if (!size_) return {0, place};
  return {place / *size_, place % *size_};
}

ReadOrder::Epoch ReadOrder::epoch(int64_t number) const {
  const Key key = split_at(key_from_seed(options_.seed), static_cast<uint64_t>(number));
  Epoch epoch;
  epoch.number_ = number;
  epoch.examples_ = fold_in(key, kExamples);
  if (!options_.shuffle || !size_ || *size_ < 2) return epoch;
  epoch.window_ = std::min(*size_, reader_->shuffle_window());
  epoch.in_windows_ = fold_in(key, kInWindows);
  epoch.rest_ = epoch.window_ > 0 ? *size_ % epoch.window_ : 0;
  epoch.in_full_windows_ = *size_ - epoch.rest_;
  const int64_t items = epoch.window_ > 0 ? *size_ / epoch.window_ : *size_;
  epoch.permutation_.emplace(fold_in(key, kOrder), items);
  return epoch;
}

int64_t ReadOrder::Epoch::index(int64_t i) const {
  if (!permutation_) return i;
  if (window_ == 0) return (*permutation_)(i);
  const bool full = i < in_full_windows_;
  const int64_t window = full ? (*permutation_)(i / window_) : in_full_windows_ / window_;
  const Permutation inside(split_at(in_windows_, static_cast<uint64_t>(window)),
                           full ? window_ : rest_);
  return window * window_ + inside(full ? i % window_ : i - in_full_windows_);
}

bool ReadOrder::read(const Epoch& epoch, int64_t i, Example& out) const {
  const int64_t index = epoch.index(i);
  out.clear();
  out.key = epoch.key(index);
  out.provenance = reader_.get();
  out.index = index;
  try {
    reader_->read(index, out);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    reader_->leave_out(index, error);
    return false;
  }
  return true;
}

StreamPtr place_stream(std::shared_ptr<const ReadOrder> order, int64_t first, int64_t count) {
  return std::make_unique<PlaceStream>(std::move(order), first, count);
}

StreamPtr read_stream(std::shared_ptr<const Reader> reader, const ReadOptions& options) {
  return chunk_stream(std::make_shared<ReadOrder>(std::move(reader), options),
                      [](StreamPtr input) { return input; }, {});
}

}  // namespace quintet::data
