#include "data/reading/units.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>

#include "runtime/base/check.h"
#include "runtime/base/thread.h"

namespace quintet::data {
namespace {

class UnitStream final : public Stream {
 public:
  UnitStream(std::shared_ptr<const ReadOrder> order, Preprocess preprocess, UnitOptions options)
      : maker_(std::make_shared<const Maker>(
            Maker{std::move(order), std::move(preprocess), options.places})),
        options_(std::move(options)) {
    // Wrong arguments of preprocessors show now, not in a thread.
    maker_->preprocess(place_stream(maker_->order, 0, 0));
    if (const auto places = maker_->order->places())
      units_ = (*places + options_.places - 1) / options_.places;
    if (!options_.runner) return;
    number_ = options_.runner->new_stream();
    ahead_ = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(options_.runner->ahead()) * options_.share));
  }

  bool next(Example& out) override {
    while (true) {
      ask();
      if (at_ < unit_.examples.size()) {
        out = std::move(unit_.examples[at_++]);
        return true;
      }
      if (unit_.error) std::rethrow_exception(unit_.error);
      if (next_ == units_) return false;
      check_any();
      take();
    }
  }
  void save(Position& position) const override {
    const bool whole = at_ == unit_.examples.size();
    position.insert(position.end(),
                    {whole ? next_ : next_ - 1, whole ? 0 : static_cast<int64_t>(at_)});
  }
  void restore(PositionReader& position) override {
    next_ = asked_ = position.take();
    const int64_t at = position.take();
    QT_CHECK_AS(ExitCode::kData, next_ >= 0 && at >= 0 && next_ + (at > 0) <= units_,
                "data position: unit {}, example {} is outside the data", next_, at);
    coming_.clear();
    unit_ = {};
    at_ = 0;
    without_ = 0;
    if (at == 0) return;
    ask();
    take();
    QT_CHECK_AS(ExitCode::kData, at < static_cast<int64_t>(unit_.examples.size()),
                "data position: example {} of {} in unit {}; the data or its preprocessing has "
                "changed",
                at, unit_.examples.size(), next_ - 1);
    at_ = static_cast<size_t>(at);
  }

 private:
  struct Maker {
    std::shared_ptr<const ReadOrder> order;
    Preprocess preprocess;
    int64_t places;

    Unit make(int64_t number) const {
      Unit unit;
      try {
        const StreamPtr stream = preprocess(place_stream(order, number * places, places));
        Example example;
        while (stream->next(example)) unit.examples.push_back(std::move(example));
      } catch (...) {
        unit.error = std::current_exception();
      }
      return unit;
    }
  };

  /// Has the runner begin with the units that are needed soon.
  void ask() {
    while (options_.runner && asked_ < std::min(units_, next_ + ahead_)) {
      coming_.push_back(
          options_.runner->run(number_, asked_, maker_->order->reader(),
                               [maker = maker_, number = asked_] { return maker->make(number); }));
      ++asked_;
    }
  }
  void take() {
    if (options_.runner) {
      options_.runner->waits_for(number_, next_);
      unit_ = coming_.front().get();
      options_.runner->waits_for(number_, {});
      coming_.pop_front();
    } else {
      unit_ = maker_->make(next_);
    }
    ++next_;
    at_ = 0;
    without_ = unit_.examples.empty() ? without_ + options_.places : 0;
  }
  /// Without this, a data set whose every example is dropped would be read for ever.
  void check_any() const {
    if (maker_->order->places()) return;
    constexpr int64_t kLeast = 100'000, kMost = 10'000'000;
    const int64_t size = maker_->order->reader().size().value_or(kMost);
    QT_CHECK_AS(ExitCode::kData, without_ < std::clamp(size, kLeast, kMost),
                "{}: none of the {} examples can be used: they are bad, empty, or dropped by a "
                "preprocessor",
                maker_->order->reader().where(-1), std::min(size, without_));
  }

  std::shared_ptr<const Maker> maker_;
  UnitOptions options_;
  int64_t units_ = std::numeric_limits<int64_t>::max() / 2;
  int64_t number_ = 0, ahead_ = 0;
  std::deque<std::future<Unit>> coming_;  // units next_ .. asked_ - 1
  int64_t next_ = 0, asked_ = 0;
  Unit unit_;  // number next_ - 1
  size_t at_ = 0;
  int64_t without_ = 0;  // places in a row that gave nothing
};

}  // namespace

struct UnitThreads::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::packaged_task<Unit()>> waiting;  // guarded by mutex
  bool stopping = false;                           // guarded by mutex

  void stop(std::vector<std::thread>& threads) {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
  void work() {
    while (true) {
      std::packaged_task<Unit()> task;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stopping || !waiting.empty(); });
        if (stopping) return;
        task = std::move(waiting.front());
        waiting.pop_front();
      }
      task();
    }
  }
};

UnitThreads::UnitThreads(int threads) : state_(std::make_shared<State>()) {
  try {
    for (int i = 0; i < std::max(1, threads); ++i)
      threads_.push_back(start_thread("to preprocess", [state = state_] { state->work(); }));
  } catch (...) {
    state_->stop(threads_);
    throw;
  }
}

UnitThreads::~UnitThreads() { state_->stop(threads_); }

std::future<Unit> UnitThreads::run(int64_t, int64_t, const Origin&, std::function<Unit()> make) {
  std::packaged_task<Unit()> task(std::move(make));
  std::future<Unit> result = task.get_future();
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back(std::move(task));
  }
  state_->changed.notify_one();
  return result;
}

int64_t UnitThreads::ahead() const { return 2 * static_cast<int64_t>(threads_.size()); }

int reader_threads(int requested) {
  constexpr int kMost = 16;
  if (requested > 0) return requested;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, kMost);
}

StreamPtr unit_stream(std::shared_ptr<const ReadOrder> order, Preprocess preprocess,
                      const UnitOptions& options) {
  return std::make_unique<UnitStream>(std::move(order), std::move(preprocess), options);
}

}  // namespace quintet::data
