#include "data/reading/shuffle_buffer.h"

#include "data/examples/random.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

class ShuffleStream final : public Stream {
 public:
  ShuffleStream(StreamPtr input, int64_t size, Key key)
      : input_(std::move(input)), size_(static_cast<size_t>(size)), key_(key) {
    input_->save(round_begin_);
  }
  bool next(Example& out) override {
    if (draws_ == 0) fill();
    if (held_.empty()) return false;
    const Key round = split_at(key_, static_cast<uint64_t>(round_));
    const Key draw = split_at(round, static_cast<uint64_t>(draws_++));
    const auto i = static_cast<size_t>(Random(draw).below(std::ssize(held_)));
    out = std::move(held_[i]);
    if (read_ < round_size() && input_->next(held_[i])) {
      ++read_;
      return true;
    }
    if (i + 1 < held_.size()) held_[i] = std::move(held_.back());
    held_.pop_back();
    read_for_next_round();
    if (held_.empty()) begin_next_round();
    return true;
  }
  void save(Position& position) const override {
    position.insert(position.end(), round_begin_.begin(), round_begin_.end());
    position.insert(position.end(), {round_, draws_});
  }
  void restore(PositionReader& position) override {
    input_->restore(position);
    const int64_t round = round_ = position.take();
    const int64_t draws = position.take();
    const auto check = [&](bool is_there) {
      QT_CHECK_AS(ExitCode::kData, is_there,
                  "data position: draw {} of a round of shuffling; the data, its preprocessing or "
                  "shuffle_buffer_size has changed",
                  draws);
    };
    check(draws >= 0 && draws < static_cast<int64_t>(round_size()));
    held_.clear();
    next_.clear();
    read_ = 0;
    round_begin_.clear();
    input_->save(round_begin_);
    Example passed_over;
    for (draws_ = 0; draws_ < draws;) check(next(passed_over) && round_ == round);
  }

 private:
  size_t round_size() const { return kRoundOfBuffers * size_; }

  void fill() {
    Example example;
    for (; held_.size() < size_ && input_->next(example); ++read_)
      held_.push_back(std::move(example));
  }
  /// An example of the next round in the place of one that was given.
  void read_for_next_round() {
    if (next_.empty()) {
      next_begin_.clear();
      input_->save(next_begin_);
    }
    Example example;
    if (read_ == round_size() && input_->next(example)) next_.push_back(std::move(example));
  }
  void begin_next_round() {
    round_begin_ = std::move(next_begin_);
    held_ = std::move(next_);
    next_.clear();
    read_ = held_.size();
    ++round_;
    draws_ = 0;
  }

  StreamPtr input_;
  size_t size_;
  Key key_;
  int64_t round_ = 0, draws_ = 0;
  Position round_begin_, next_begin_;  // places of the input
  std::vector<Example> held_, next_;   // of this round; of the next, in the order read
  size_t read_ = 0;                    // of this round
};

}  // namespace

StreamPtr shuffle_stream(StreamPtr input, int64_t size, Key key) {
  QT_CHECK(size > 0, "shuffle_buffer_size is {}, expected at least 1", size);
  return std::make_unique<ShuffleStream>(std::move(input), size, key);
}

}  // namespace quintet::data
