// CRC-32C against published check values, both paths against each other, continuation and joining.

#include "runtime/base/formats/crc32c.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/threefry.h"

namespace quintet {
namespace {

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  // RFC 3720 (iSCSI), section B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending.push_back(c);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
}

TEST(Crc32c, PathsCutsAndJoinsAgree) {
  std::vector<std::byte> bytes(70001);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(random_bits({1, 2}, i) & 0xff);
  const std::span<const std::byte> all(bytes);
  for (size_t size : {0, 1, 7, 8, 9, 63, 8192, 24575, 24576, 24577, 40000, 70001}) {
    const auto part = all.first(size);
    const uint32_t want = crc32c_portable(part);
    EXPECT_EQ(crc32c(part), want) << size;
    for (size_t cut : {size_t{0}, size / 3, size}) {
      const uint32_t head = crc32c(part.first(cut)), tail = crc32c(part.subspan(cut));
      EXPECT_EQ(crc32c(part.subspan(cut), head), want) << size << " cut at " << cut;
      EXPECT_EQ(crc32c_concat(head, tail, size - cut), want) << size << " cut at " << cut;
    }
  }
}

TEST(Crc32c, OneFlippedBitChangesIt) {
  std::string text(1000, 'q');
  const uint32_t before = crc32c(text);
  for (size_t i = 0; i < text.size(); i += 37) {
    text[i] = static_cast<char>(text[i] ^ 4);
    EXPECT_NE(crc32c(text), before);
    text[i] = static_cast<char>(text[i] ^ 4);
  }
}

}  // namespace
}  // namespace quintet
