// float8 against its definition: every byte, and nearest bytes found by comparing with all of them; both formats against
// bytes that were recorded.

#include "runtime/base/float8.h"

#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

float value_of(int byte) {
  float8 x;
  x.bits = static_cast<uint8_t>(byte);
  return static_cast<float>(x);
}

TEST(Float8, BytesAreThoseOfTheFormat) {
  EXPECT_EQ(value_of(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(value_of(0x80)));
  EXPECT_EQ(value_of(0x01), 0x1p-9f);
  EXPECT_EQ(value_of(0x07), 0x7p-9f);
  EXPECT_EQ(value_of(0x08), 0x1p-6f);
  EXPECT_EQ(value_of(0x38), 1.0f);
  EXPECT_EQ(value_of(0xb9), -1.125f);
  EXPECT_EQ(value_of(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(value_of(0x7f)) && std::isnan(value_of(0xff)));
}

TEST(Float8, EveryByteComesBack) {
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(float8(value_of(byte)).bits, byte) << value_of(byte);
}

TEST(Float8, RoundsToNearestEven) {
  for (int byte = 0; byte < 0x7e; ++byte) {
    const float low = value_of(byte), high = value_of(byte + 1), middle = (low + high) / 2;
    const int even = byte % 2 == 0 ? byte : byte + 1;
    EXPECT_EQ(float8(middle).bits, even) << middle;
    EXPECT_EQ(float8(std::nextafter(middle, 0.0f)).bits, byte) << middle;
    EXPECT_EQ(float8(std::nextafter(middle, 1e9f)).bits, byte + 1) << middle;
    EXPECT_EQ(float8(-middle).bits, even | 0x80) << middle;
  }
}

TEST(Float8, WhatIsTooLargeIsTheLargest) {
  for (const float x : {449.0f, 480.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(float8(x).bits, 0x7e);
    EXPECT_EQ(float8(-x).bits, 0xfe);
  }
  EXPECT_EQ(float8(std::numeric_limits<float>::quiet_NaN()).bits & 0x7f, 0x7f);
}

TEST(Float8, IsWhatIsRecordedInBothFormats) {
  const HostArrays casts = read_safetensors(testing::fixture_root() / "fp8/casts.safetensors");
  const auto x = casts.at("x").as<float>();
  const auto e4m3 = casts.at("e4m3").as<uint8_t>(), e5m2 = casts.at("e5m2").as<uint8_t>();
  ASSERT_GT(x.size(), 4000u);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(narrowed(x[i], Float8::e4m3), e4m3[i]) << x[i];
    ASSERT_EQ(narrowed(x[i], Float8::e5m2), e5m2[i]) << x[i];
  }
}

TEST(Float8, BytesOfE5m2AreUpperBytesOfBinary16) {
  EXPECT_EQ(widened(0x01, Float8::e5m2), 0x1p-16f);
  EXPECT_EQ(widened(0x04, Float8::e5m2), 0x1p-14f);
  EXPECT_EQ(widened(0xbd, Float8::e5m2), -1.25f);
  EXPECT_EQ(widened(0x7b, Float8::e5m2), 57344.0f);
  EXPECT_TRUE(std::isinf(widened(0xfc, Float8::e5m2)) && std::isnan(widened(0x7f, Float8::e5m2)));
  for (int byte = 0; byte < 0x7c; ++byte)
    EXPECT_EQ(narrowed(widened(static_cast<uint8_t>(byte), Float8::e5m2), Float8::e5m2), byte);
}

}  // namespace
}  // namespace quintet
