// The checksum behind HDF5's chunks: published values, and the sum a word at a time.

#include "checkpoint/bytes/fletcher32.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "runtime/base/threefry.h"

namespace quintet {
namespace {

uint32_t of_text(std::string_view text) {
  return fletcher32(std::as_bytes(std::span(text.data(), text.size())));
}

/// As the definition says it: big-endian words, ones' complement sums.
uint32_t word_by_word(std::span<const std::byte> bytes) {
  const auto add = [](uint64_t a, uint64_t b) {
    const uint64_t sum = a + b;
    return sum > 65535 ? sum - 65535 : sum;
  };
  uint64_t first = 0, second = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    const uint64_t low = i + 1 < bytes.size() ? std::to_integer<uint64_t>(bytes[i + 1]) : 0;
    first = add(first, std::to_integer<uint64_t>(bytes[i]) << 8 | low);
    second = add(second, first);
  }
  return static_cast<uint32_t>(second << 16 | first);
}

TEST(Fletcher32, GivesThePublishedValues) {
  EXPECT_EQ(of_text(""), 0u);
  // Published of little-endian words: f04fc729, 56502d2a, ebe19591.
  EXPECT_EQ(of_text("abcde"), 0x4ff029c7u);
  EXPECT_EQ(of_text("abcdef"), 0x50562a2du);
  EXPECT_EQ(of_text("abcdefgh"), 0xe1eb9195u);
}

TEST(Fletcher32, IsTheSumWordByWord) {
  std::vector<std::byte> bytes(100'003);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(random_bits({1, 2}, i) & 0xff);
  // Around a step of the lanes and around a block of 360 steps.
  for (const size_t size : {1, 2, 31, 32, 33, 63, 64, 65, 11'519, 11'520, 11'521, 11'552, 100'003})
    EXPECT_EQ(fletcher32(std::span(bytes).first(size)), word_by_word(std::span(bytes).first(size)))
        << size;
  // The largest sums, and those that are multiples of the modulus but not 0.
  for (const std::byte byte : {std::byte{0}, std::byte{0xff}}) {
    std::fill(bytes.begin(), bytes.end(), byte);
    for (const size_t size : {2, 32, 11'520, 100'002})
      EXPECT_EQ(fletcher32(std::span(bytes).first(size)),
                word_by_word(std::span(bytes).first(size)))
          << size;
  }
}

}  // namespace
}  // namespace quintet
