#pragma once
// The order in which a task's examples are read: an endless (or `epochs` long) row of places, of
// which each is computed, not stored. Place n lies in epoch n / size; there, the examples come in
// the order of the files or in a permutation of (seed, epoch).
//
//   const auto order =
//       std::make_shared<ReadOrder>(source.open("train"), ReadOptions{.shuffle = true});
//   StreamPtr some = place_stream(order, 1280, 128);      // examples at places 1280 .. 1407

#include "data/examples/data_source.h"
#include "data/examples/random.h"

namespace quintet::data {

class ReadOrder {
 public:
  /// Throws kData for an empty reader that is to be read for ever, a usage error for one without
  /// end that is to be read `epochs` times.
  ReadOrder(std::shared_ptr<const Reader> reader, const ReadOptions& options);

  /// Places there are; none: no end.
  std::optional<int64_t> size() const;
  const Reader& reader() const { return *reader_; }

  /// One epoch's order and keys; made once and used for many places.
  class Epoch {
   public:
    int64_t number() const { return number_; }
    int64_t index(int64_t i) const;  // of the example that comes i-th in this epoch
    Key key(int64_t index) const { return split_at(examples_, static_cast<uint64_t>(index)); }

   private:
    friend class ReadOrder;
    int64_t number_ = 0, window_ = 0;
    Key examples_, in_windows_;
    std::optional<Permutation> permutation_;  // of all examples, or of the full windows
    int64_t in_full_windows_ = 0;             // examples in them
    int64_t rest_ = 0;                        // examples after them
  };
  Epoch epoch(int64_t number) const;
  /// The epoch of a place and its number within; an endless reader has one epoch.
  std::pair<int64_t, int64_t> split_place(int64_t place) const;
  /// Fills out with the example at a place of `epoch`; false: it is bad, and the source skips bad
  /// ones. Safe to call from several threads.
  bool read(const Epoch& epoch, int64_t i, Example& out) const;

 private:
  std::shared_ptr<const Reader> reader_;
  ReadOptions options_;
  std::optional<int64_t> size_;
};

/// The examples at `count` places from `first` on (fewer where the places end). Cannot be restored.
StreamPtr place_stream(std::shared_ptr<const ReadOrder> order, int64_t first, int64_t count);

}  // namespace quintet::data
