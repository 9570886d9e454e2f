#pragma once
// Random numbers for data: a counter over Threefry, so a draw is a function of (key, number of the
// draw).
//
//   Random random(take_key(example));
//   const int64_t start = random.below(tokens.size());

#include <cstdint>
#include <utility>

#include "data/examples/dataset.h"
#include "runtime/base/threefry.h"

namespace quintet::data {

class Random {
 public:
  explicit Random(Key key) : key_(key) {}
  uint64_t bits() {
    const Key block = split_at(key_, counter_++);
    return (static_cast<uint64_t>(block.a) << 32) | block.b;
  }
  /// Uniform in [0, n), n > 0. The bias is below n / 2^64.
  int64_t below(int64_t n) {
    return static_cast<int64_t>(static_cast<uint64_t>(
        (static_cast<unsigned __int128>(bits()) * static_cast<uint64_t>(n)) >> 64));
  }
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  Key key_;
  uint64_t counter_ = 0;
};

/// A key for one random choice about an example; the next call gives another one.
inline Key take_key(Example& example) {
  const Key used = fold_in(example.key, 1);
  example.key = fold_in(example.key, 2);
  return used;
}

/// A permutation of [0, size) that needs no table: element i is computed from the key. A Feistel
/// network over the next power of two, walked until the image is inside.
class Permutation {
 public:
  Permutation(Key key, int64_t size);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t encipher(uint64_t x) const;
  Key key_;
  uint64_t size_;
  int low_bits_, high_bits_;
};

}  // namespace quintet::data
