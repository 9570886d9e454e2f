#include <cstdio>

#include "data/data_source.h"
#include "data/random.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr uint32_t kOrder = 1, kExamples = 2;  // what an epoch's key is folded with
constexpr int kLoggedBadExamples = 10;

class ReadStream final : public Stream {
 public:
  ReadStream(std::shared_ptr<const Reader> reader, const ReadOptions& options)
      : reader_(std::move(reader)), options_(options), size_(reader_->size()) {
    QT_CHECK_AS(ExitCode::kData, options_.epochs.has_value() || !size_ || *size_ > 0,
                "{}: the data set is empty; training needs at least one example",
                reader_->where(-1));
    QT_CHECK(
        size_ || !options_.epochs,
        "{}: the split has no end, so it cannot be read once; choose another split for evaluation",
        reader_->where(-1));
    start_epoch();
  }

  bool next(Example& out) override {
    while (true) {
      if (size_ && at_ == *size_) {
        if (*size_ == 0 || (options_.epochs && epoch_ + 1 >= *options_.epochs)) return false;
        QT_CHECK_AS(ExitCode::kData, used_in_epoch_ > 0, "{}: none of the {} examples can be used",
                    reader_->where(-1), *size_);
        ++epoch_;
        at_ = 0;
        start_epoch();
      }
      const int64_t index = order_ ? (*order_)(at_) : at_;
      ++at_;
      if (read(index, out)) return true;
    }
  }

  void save(Position& position) const override {
    position.insert(position.end(), {size_.value_or(-1), epoch_, at_, used_in_epoch_});
  }
  void restore(PositionReader& position) override {
    const int64_t size = position.take();
    QT_CHECK_AS(
        ExitCode::kData, size == size_.value_or(-1),
        "{}: holds {} examples now, {} when the data position was saved; bring back the data "
        "as it was, or start the data anew",
        reader_->where(-1), size_.value_or(-1), size);
    epoch_ = position.take();
    at_ = position.take();
    used_in_epoch_ = position.take();
    QT_CHECK_AS(ExitCode::kData, epoch_ >= 0 && at_ >= 0 && (!size_ || at_ <= *size_),
                "data position: epoch {}, example {} is outside the data", epoch_, at_);
    const int64_t used = used_in_epoch_;
    start_epoch();
    used_in_epoch_ = used;
  }

 private:
  void start_epoch() {
    const Key epoch_key = split_at(key_from_seed(options_.seed), static_cast<uint64_t>(epoch_));
    example_key_ = fold_in(epoch_key, kExamples);
    if (options_.shuffle && size_ && *size_ > 1) order_.emplace(fold_in(epoch_key, kOrder), *size_);
    used_in_epoch_ = 0;
  }

  bool read(int64_t index, Example& out) {
    out.clear();
    out.key = split_at(example_key_, static_cast<uint64_t>(index));
    out.origin = reader_.get();
    out.index = index;
    try {
      reader_->read(index, out);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData || reader_->on_bad_example == OnBadExample::fail) throw;
      if (++bad_examples_ <= kLoggedBadExamples) fmt::print(stderr, "skipped: {}\n", error.what());
      return false;
    }
    ++used_in_epoch_;
    return true;
  }

  std::shared_ptr<const Reader> reader_;
  ReadOptions options_;
  std::optional<int64_t> size_;
  std::optional<Permutation> order_;
  Key example_key_;
  int64_t epoch_ = 0, at_ = 0, used_in_epoch_ = 0;
  int bad_examples_ = 0;
};

}  // namespace

StreamPtr read_stream(std::shared_ptr<const Reader> reader, const ReadOptions& options) {
  return std::make_unique<ReadStream>(std::move(reader), options);
}

}  // namespace quintet::data
