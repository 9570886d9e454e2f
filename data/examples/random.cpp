#include "data/examples/random.h"

#include <bit>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {
constexpr uint32_t kRounds = 6;
}

Permutation::Permutation(Key key, int64_t size) : key_(key), size_(static_cast<uint64_t>(size)) {
  QT_ASSERT(size > 0);
  const int bits = std::max(2, static_cast<int>(std::bit_width(size_ - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

uint64_t Permutation::encipher(uint64_t x) const {
  const uint64_t low_mask = (uint64_t{1} << low_bits_) - 1;
  const uint64_t high_mask = (uint64_t{1} << high_bits_) - 1;
  uint64_t low = x & low_mask, high = x >> low_bits_;
  for (uint32_t round = 0; round < kRounds; round += 2) {
    const Key a = threefry2x32(key_, static_cast<uint32_t>(low), round);
    high ^= ((static_cast<uint64_t>(a.a) << 32) | a.b) & high_mask;
    const Key b = threefry2x32(key_, static_cast<uint32_t>(high), round + 1);
    low ^= ((static_cast<uint64_t>(b.a) << 32) | b.b) & low_mask;
  }
  return (high << low_bits_) | low;
}

int64_t Permutation::operator()(int64_t i) const {
  uint64_t x = static_cast<uint64_t>(i);
  do {
    x = encipher(x);
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

}  // namespace quintet::data
