#pragma once
// Where a thread takes the panels of a product from (prepacked_matmul.h): a range; or, of a product that several threads make
// together, its share and then the last panels of threads that are behind, so that nobody waits long: cores are not equally
// fast, and where they are shared with others that changes by the second. Values do not depend on who makes a panel.
//
//   SharedPanels shared(threads);                                   // one for a team, product after product
//   multiply(x, w, PanelSource(shared, thread, w.share(thread, threads)), done);
//   barrier.wait();

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace quintet {

/// A half-open range of panels.
struct PanelRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

/// What the threads of a team have left of their shares of a product.
class SharedPanels {
 public:
  explicit SharedPanels(int64_t threads) : left_(static_cast<size_t>(threads)) {}
  /// Before a thread takes any of a product; all have met since they made the one before.
  void begin(int64_t thread, PanelRange share) { of(thread).store(word(share)); }
  /// The first of a thread's own, at most `count`.
  PanelRange take(int64_t thread, int64_t count) {
    return take_of(thread, count, [](PanelRange& range, int64_t taken) {
      range.begin += taken;
      return PanelRange{range.begin - taken, range.begin};
    });
  }
  /// The last of another thread's.
  PanelRange take_of_others(int64_t thread, int64_t count) {
    const int64_t threads = std::ssize(left_);
    for (int64_t i = 1; i <= std::min(kAsked, threads - 1); ++i) {
      const PanelRange taken =
          take_of((thread + i) % threads, count, [](PanelRange& range, int64_t part) {
            range.end -= part;
            return PanelRange{range.end, range.end + part};
          });
      if (taken.count() > 0) return taken;
    }
    return {};
  }
  int64_t left(int64_t thread) { return range(of(thread).load()).count(); }

 private:
  using Word = std::atomic<uint64_t>;
  struct alignas(64) Left {
    Word word{0};
  };
  /// Each costs some 100 ns, a line of another core's.
  static constexpr int64_t kAsked = 4;

  static uint64_t word(PanelRange range) {
    return static_cast<uint64_t>(range.begin) << 32 | static_cast<uint64_t>(range.end);
  }
  static PanelRange range(uint64_t word) {
    return {static_cast<int64_t>(word >> 32), static_cast<int64_t>(word & 0xffffffffu)};
  }
  Word& of(int64_t thread) { return left_[static_cast<size_t>(thread)].word; }
  template <class Take>
  PanelRange take_of(int64_t thread, int64_t count, const Take& take) {
    Word& left = of(thread);
    for (uint64_t seen = left.load();;) {
      PanelRange rest = range(seen);
      const PanelRange taken = take(rest, std::min(count, rest.count()));
      if (taken.count() <= 0) return {};
      if (left.compare_exchange_weak(seen, word(rest))) return taken;
    }
  }

  std::vector<Left> left_;
};

/// Of one product. multiply() takes the next panels while it makes some, so that a thread keeps two times what it takes.
class PanelSource {
 public:
  explicit PanelSource(PanelRange own) : own_(own) {}
  /// `unit` panels stay together.
  PanelSource(SharedPanels& shared, int64_t thread, PanelRange share, int64_t unit = 1)
      : own_(share), shared_(&shared), thread_(thread), unit_(unit) {}

  /// The next, at most `count`; none are left if there are none.
  PanelRange take(int64_t count) {
    if (taken_.count() == 0) taken_ = take_units(std::max(count, unit_));
    const int64_t begin = taken_.begin;
    taken_.begin = std::min(begin + count, taken_.end);
    return {begin, taken_.begin};
  }
  /// Of the range, or of what is left of the thread's share.
  int64_t left() const {
    return taken_.count() + (shared_ == nullptr ? own_.count() : shared_->left(thread_));
  }

 private:
  PanelRange take_units(int64_t count) {
    if (shared_ == nullptr || !begun_) {
      const PanelRange first{own_.begin, std::min(own_.begin + count, own_.end)};
      own_.begin = first.end;
      // The first panels are not offered: this thread has them in its cache.
      if (shared_ != nullptr) shared_->begin(thread_, own_);
      begun_ = true;
      if (shared_ == nullptr || first.count() > 0) return first;
    }
    const PanelRange next = shared_->take(thread_, count);
    return next.count() > 0 ? next : shared_->take_of_others(thread_, count);
  }

  PanelRange own_, taken_;
  SharedPanels* shared_ = nullptr;
  int64_t thread_ = 0, unit_ = 1;
  bool begun_ = false;
};

}  // namespace quintet
