#include "data/reading/work_chunks.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

class ChunkStream final : public Stream {
 public:
  ChunkStream(std::shared_ptr<const ReadOrder> order, Preprocess preprocess, ChunkOptions options)
      : maker_(std::make_shared<const Maker>(
            Maker{std::move(order), std::move(preprocess), options.examples})),
        options_(std::move(options)) {
    // Wrong arguments of preprocessors show now, not in a thread.
    maker_->preprocess(place_stream(maker_->order, 0, 0));
    if (const auto size = maker_->order->size())
      chunks_ = (*size + options_.examples - 1) / options_.examples;
    if (!options_.runner) return;
    number_ = options_.runner->new_stream();
    look_how_far_ahead();
  }

  bool next(Example& out) override {
    while (true) {
      ask();
      if (at_ < chunk_.examples.size()) {
        out = std::move(chunk_.examples[at_++]);
        return true;
      }
      if (chunk_.error) std::rethrow_exception(chunk_.error);
      if (next_ == chunks_) return false;
      check_any();
      pop();
    }
  }
  void save(Position& position) const override {
    const bool whole = at_ == chunk_.examples.size();
    position.insert(position.end(),
                    {whole ? next_ : next_ - 1, whole ? 0 : static_cast<int64_t>(at_)});
  }
  void restore(PositionReader& position) override {
    next_ = requested_ = position.take();
    const int64_t at = position.take();
    QT_CHECK_AS(ExitCode::kData, next_ >= 0 && at >= 0 && next_ + (at > 0) <= chunks_,
                "data position: chunk {}, example {} is outside the data", next_, at);
    coming_.clear();
    chunk_ = {};
    at_ = 0;
    without_ = 0;
    if (at == 0) return;
    ask();
    pop();
    QT_CHECK_AS(ExitCode::kData, at < static_cast<int64_t>(chunk_.examples.size()),
                "data position: example {} of {} in chunk {}; the data or its preprocessing has "
                "changed",
                at, chunk_.examples.size(), next_ - 1);
    at_ = static_cast<size_t>(at);
  }

 private:
  struct Maker {
    std::shared_ptr<const ReadOrder> order;
    Preprocess preprocess;
    int64_t examples;

    WorkChunk make(int64_t number) const {
      WorkChunk chunk;
      try {
        const StreamPtr stream = preprocess(place_stream(order, number * examples, examples));
        Example example;
        while (stream->next(example)) chunk.examples.push_back(std::move(example));
      } catch (...) {
        chunk.error = std::current_exception();
      }
      return chunk;
    }
  };

  void look_how_far_ahead() {
    prefetch_depth_ = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(options_.runner->prefetch_depth()) *
                                options_.share));
  }
  /// Has the runner begin with the chunks that are needed soon.
  void ask() {
    while (options_.runner && requested_ < std::min(chunks_, next_ + prefetch_depth_)) {
      coming_.push_back(options_.runner->run(
          number_, requested_, maker_->order->reader(),
          [maker = maker_, number = requested_] { return maker->make(number); }));
      ++requested_;
    }
  }
  void pop() {
    if (options_.runner) {
      options_.runner->depends_on(number_, next_);
      chunk_ = coming_.front().get();
      options_.runner->depends_on(number_, {});
      coming_.pop_front();
      look_how_far_ahead();
    } else {
      chunk_ = maker_->make(next_);
    }
    ++next_;
    at_ = 0;
    without_ = chunk_.examples.empty() ? without_ + options_.examples : 0;
  }
  /// Without this, a data set whose every example is dropped would be read for ever.
  void check_any() const {
    if (maker_->order->size()) return;
    constexpr int64_t kLeast = 100'000, kMost = 10'000'000;
    const int64_t size = maker_->order->reader().size().value_or(kMost);
    QT_CHECK_AS(ExitCode::kData, without_ < std::clamp(size, kLeast, kMost),
                "{}: none of the {} examples can be used: they are bad, empty, or dropped by a "
                "preprocessor",
                maker_->order->reader().where(-1), std::min(size, without_));
  }

  std::shared_ptr<const Maker> maker_;
  ChunkOptions options_;
  int64_t chunks_ = std::numeric_limits<int64_t>::max() / 2;
  int64_t number_ = 0, prefetch_depth_ = 0;
  std::deque<std::future<WorkChunk>> coming_;  // chunks next_ .. requested_ - 1
  int64_t next_ = 0, requested_ = 0;
  WorkChunk chunk_;  // number next_ - 1
  size_t at_ = 0;
  int64_t without_ = 0;  // places in a row that gave nothing
};

}  // namespace

ChunkThreads::ChunkThreads(int threads)
    : pool_("to preprocess", std::max(1, threads), {.at_end = ThreadPool::AtEnd::drop}) {}

std::future<WorkChunk> ChunkThreads::run(int64_t, int64_t, const Provenance&,
                                         std::function<WorkChunk()> make) {
  return pool_.submit(std::move(make));
}

int64_t ChunkThreads::prefetch_depth() const { return 2 * pool_.size(); }

int reader_threads(int requested) {
  constexpr int kMost = 16;
  if (requested > 0) return requested;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, kMost);
}

StreamPtr chunk_stream(std::shared_ptr<const ReadOrder> order, Preprocess preprocess,
                       const ChunkOptions& options) {
  return std::make_unique<ChunkStream>(std::move(order), std::move(preprocess), options);
}

}  // namespace quintet::data
