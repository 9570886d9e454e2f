// Our safetensors files: what is written reads back, here and with the format's own library; damage
// is seen.

#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/checkpoint/foreign.h"

namespace quintet {
namespace {

using testing::error_of;
using testing::Scratch;

TEST(Safetensors, ReadsBackWhatItWrote) {
  const Scratch scratch;
  const auto file = scratch.path() / "a.safetensors";
  const HostArrays arrays = testing::small_state();
  const SafetensorsMetadata metadata{{"format", "quintet"}, {"quote", "\"crc32c\":\"00000000"}};
  write_safetensors(file, arrays, metadata);
  const SafetensorsFile read = read_safetensors_file(file);
  EXPECT_TRUE(testing::same_state(read.arrays, arrays));
  EXPECT_EQ(read.metadata, metadata);
  write_safetensors(file, {});
  EXPECT_TRUE(read_safetensors(file).empty());
  std::filesystem::create_symlink(file, scratch.path() / "link");
  EXPECT_TRUE(read_safetensors(scratch.path() / "link").empty());
  error_of(ExitCode::kUsage, [&] { write_safetensors(file, {}, {{"crc32c:a", ""}}); });
}

TEST(Safetensors, TheFormatsOwnLibraryReadsOurs) {
  const char* python = std::getenv("QUINTET_PYTHON");
  const std::string command = python != nullptr ? python : "python3";
  if (std::system((command + " -c 'import safetensors.numpy' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no Python with safetensors (QUINTET_PYTHON names another)";
  const Scratch scratch;
  const HostArrays arrays{{"x/y", testing::filled<int32_t>({2, 3}, 1)},
                          {"z", testing::filled<int64_t>({}, 2)},
                          {"b", testing::filled<uint8_t>({5}, 3)}};
  const auto file = scratch.path() / "a.safetensors";
  write_safetensors(file, arrays, {{"k", "v"}});
  std::string expected;
  for (const auto& [name, array] : arrays) {
    expected += name + ":";
    for (const std::byte byte : array.bytes) expected += fmt::format("{:02x}", byte);
    expected += ";";
  }
  const std::string script =
      "import sys,safetensors.numpy as s; a=s.load_file(sys.argv[1]); "
      "t=''.join(k+':'+a[k].tobytes().hex()+';' for k in sorted(a)); "
      "sys.exit(0 if t==sys.argv[2] else t)";
  EXPECT_EQ(
      std::system(
          fmt::format("{} -c \"{}\" '{}' '{}'", command, script, file.string(), expected).c_str()),
      0);
}

TEST(Safetensors, EveryFlippedBitIsSeen) {
  const Scratch scratch;
  const auto file = scratch.path() / "a.safetensors", damaged = scratch.path() / "b.safetensors";
  write_safetensors(file, testing::small_state(), {{"step", "100"}});
  const std::string good = read_file(file);
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  std::mt19937 random(3);
  // Every bit of the header's size, every byte of the header, then 2,000 anywhere.
  for (size_t i = 0; i < 64 + header + 2000; ++i) {
    const size_t at = i < 64 ? i / 8 : i < 64 + header ? i - 64 + 8 : random() % good.size();
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (i < 64 ? i % 8 : random() % 8)));
    testing::write_bytes(damaged, bad);
    error_of(ExitCode::kData, [&] {
      const testing::MemoryBound bound(std::ssize(bad));
      read_safetensors(damaged);
    });
    if (::testing::Test::HasFailure()) FAIL() << "byte " << at << " of " << good.size();
  }
}

TEST(Safetensors, CutFilesAreRefused) {
  const Scratch scratch;
  const auto file = scratch.path() / "a.safetensors";
  write_safetensors(file, testing::small_state());
  const std::string good = read_file(file);
  for (size_t i = 0; i < 64; ++i) {
    testing::write_bytes(file, good.substr(0, good.size() * i / 64));
    const std::string message = error_of(ExitCode::kData, [&] {
      const testing::MemoryBound bound(std::ssize(good) * static_cast<int64_t>(i) / 64);
      read_safetensors(file);
    });
    EXPECT_NE(message.find("a.safetensors"), std::string::npos);
  }
}

TEST(Safetensors, HostileHeadersAreRefused) {
  const auto refuses = [](const std::string& json, int64_t data_bytes) {
    error_of(ExitCode::kData, [&] { parse_safetensors_header(json, data_bytes, "x"); });
  };
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(parse_safetensors_header(entry("[2]", "[0,8]"), 8, "x").entries.size(), 1u);
  refuses(entry("[2]", "[0,8]"), 9);                                      // bytes left over
  refuses(entry("[2]", "[0,8]"), 7);                                      // past the end
  refuses(entry("[2]", "[8,0]"), 8);                                      // backwards
  refuses(entry("[2]", "[-8,0]"), 8);                                     // before the beginning
  refuses(entry("[-2]", "[0,8]"), 8);                                     // negative
  refuses(entry("[4611686018427387904,4]", "[0,0]"), 0);                  // product wraps to zero
  refuses(entry("[4294967296,4294967296]", "[0,0]"), 0);                  // the same
  refuses(entry("[2.0]", "[0,8]"), 8);                                    // not an integer
  refuses(R"({"a":{"dtype":"X9","shape":[],"data_offsets":[0,4]}})", 4);  // unknown type
  refuses(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
          R"("b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
          4);                                                              // shared bytes
  refuses(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[4,8]}})", 8);  // a hole
  refuses("[]", 0);
  refuses(R"({"__metadata__":{"a":1}})", 0);
  refuses(entry("[9223372036854775807,0]", "[0,0]"), 0);
  EXPECT_EQ(parse_safetensors_header(entry("[5,0]", "[0,0]"), 0, "x").entries[0].shape[0], 5);
}

}  // namespace
}  // namespace quintet
