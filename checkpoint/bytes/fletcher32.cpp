#include "checkpoint/bytes/fletcher32.h"

#include <algorithm>
#include <cstring>

namespace quintet {
namespace {

constexpr uint64_t kModulus = 65535;
constexpr size_t kLanes = 16;
constexpr size_t kMostSteps = 360;  // 65535 x 360 x 361 / 2 < 2^32

typedef uint32_t Lanes __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Words __attribute__((vector_size(2 * kLanes)));

/// The same remainder, 0 for 0 alone, as sums with end-around carry have it.
uint64_t folded(uint64_t sum) { return sum == 0 ? 0 : (sum - 1) % kModulus + 1; }

/// `first` is the sum of the words, `second` that of all the sums on the way.
struct Sums {
  uint64_t first = 0, second = 0;

  /// Lane j has seen words j, j + kLanes, ...: `first` of them and `second` by itself.
  void add_lanes(const std::byte* at, size_t steps) {
    Lanes lane_first{}, lane_second{};
    for (size_t i = 0; i < steps; ++i, at += sizeof(Words)) {
      Words words;
      std::memcpy(&words, at, sizeof words);
      lane_first += __builtin_convertvector(words, Lanes);
      lane_second += lane_first;
    }
    second += steps * kLanes * first;
    for (size_t j = 0; j < kLanes; ++j) {
      first += lane_first[j];
      second += kLanes * uint64_t{lane_second[j]} - j * lane_first[j];
    }
    fold();
  }
  void add(uint64_t word) {
    first += word;
    second += first;
  }
  void fold() {
    first = folded(first);
    second = folded(second);
  }
};

}  // namespace

uint32_t fletcher32(std::span<const std::byte> bytes) {
  Sums sums;
  while (bytes.size() >= sizeof(Words)) {
    const size_t steps = std::min(bytes.size() / sizeof(Words), kMostSteps);
    sums.add_lanes(bytes.data(), steps);
    bytes = bytes.subspan(steps * sizeof(Words));
  }
  for (; bytes.size() >= 2; bytes = bytes.subspan(2)) {
    uint16_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    sums.add(word);
  }
  if (!bytes.empty()) sums.add(std::to_integer<uint64_t>(bytes[0]));
  sums.fold();
  // Of little-endian words until here; modulo 65535, swapping a word's bytes multiplies it by 256.
  return static_cast<uint32_t>(folded(sums.second * 256) << 16 | folded(sums.first * 256));
}

}  // namespace quintet
