// ArrayRecord files: those that array_record wrote (tests/oracles/gen_array_record.py), and our own.
#include "data/examples/base64.h"
#include "data/examples/random.h"
#include "data/sources/array_record/array_record_file.h"
#include "data/sources/array_record/riegeli.h"
#include "runtime/base/formats/json.h"
#include "tests/data/files.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;
using ArrayRecord = testing::FileTest;

std::vector<std::string> records_in(const std::string& path) {
  const RecordFilePtr file = open_record_file(path, {});
  std::vector<std::string> records;
  std::string buffer;
  for (int64_t i = 0; i < file->size(); ++i) records.emplace_back(file->read(i, buffer));
  return records;
}

void write_records(const fs::path& path, int64_t group_size, const std::vector<std::string>& all) {
  size_t next = 0;
  write_array_record(path, group_size, [&](std::string& record) {
    if (next == all.size()) return false;
    record = all[next++];
    return true;
  });
}

/// Records of many sizes, with one that spans blocks.
std::vector<std::string> some_records() {
  Random random(key_from_seed(3));
  std::vector<std::string> records;
  for (size_t i = 0; i < 60; ++i) {
    records.emplace_back(i == 40 ? 150'000 : i * 7, static_cast<char>('a' + i % 26));
    if (i % 2 == 0)
      for (char& byte : records.back()) byte = static_cast<char>(random.bits());
  }
  return records;
}

TEST(ArrayRecords, AreReadAsTheyWereWritten) {
  const fs::path folder = ::quintet::testing::fixture_root() / "array_record";
  if (!fs::exists(folder)) GTEST_SKIP() << "no " << folder;
  const Json json = Json::read(folder / "files.json");
  std::vector<std::string> all;
  for (const std::string& text : json["records"].as_strings()) all.push_back(*from_base64(text));
  for (const auto& [name, file] : json["files"].members()) {
    const std::string path = (folder / (name + ".array_record")).string();
    SCOPED_TRACE(path);
    const std::string options = file["options"].as_string();
    if (options.find("brotli") != std::string::npos ||
        options.find("transpose") != std::string::npos) {
      EXPECT_TRUE(
          contains(message_of(ExitCode::kData, [&] { records_in(path); }), "write the file with"));
      continue;
    }
    EXPECT_EQ(records_in(path),
              std::vector<std::string>(all.begin(), all.begin() + file["count"].as_int()));
  }
}

TEST_F(ArrayRecord, FilesOfAnyGroupsHoldTheRecords) {
  const std::vector<std::string> records = some_records();
  for (const int64_t group_size : {1, 7, 1000}) {
    const std::string path = (folder_ / fmt::format("of-{}", group_size)).string();
    write_records(path, group_size, records);
    EXPECT_EQ(records_in(path), records) << group_size;
  }
  // In any order, from two files at a time.
  const RecordFilePtr one = open_record_file((folder_ / "of-1").string(), {}),
                      seven = open_record_file((folder_ / "of-7").string(), {});
  std::string buffer;
  for (size_t i = records.size(); i-- > 0;) {
    EXPECT_EQ(one->read(static_cast<int64_t>(i), buffer), records[i]);
    EXPECT_EQ(seven->read(static_cast<int64_t>(i), buffer), records[i]);
  }
}

TEST_F(ArrayRecord, BlockHeadersSayWhereTheirChunkBeginsAndEnds) {
  // A long chunk from byte 64; in its second block the header has the way back, and to the end.
  write_records(folder_ / "long", 1, {some_records()[40]});
  const std::string bytes = read_file(folder_ / "long");
  const auto number = [&](int64_t at) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return static_cast<int64_t>(value);
  };
  EXPECT_EQ(number(kRiegeliBlockBytes + 8), kRiegeliBlockBytes - 64);
  const int64_t end = kRiegeliBlockBytes + number(kRiegeliBlockBytes + 16);
  EXPECT_EQ(number(2 * kRiegeliBlockBytes + 16), end - 2 * kRiegeliBlockBytes);
  EXPECT_EQ(read_riegeli_records(InputFile((folder_ / "long").string()), end).size(),
            2U);  // the footer
  EXPECT_EQ(std::ssize(bytes) % kRiegeliBlockBytes, 0);
}

TEST_F(ArrayRecord, DamageIsFoundAndNamed) {
  write_records(folder_ / "whole", 7, some_records());
  const std::string whole = read_file(folder_ / "whole");
  const auto message = [&](std::string bytes) {
    const std::string path = write("damaged", bytes);
    return message_of(ExitCode::kData, [&] { records_in(path); });
  };
  const auto changed = [&](int64_t at) {
    std::string bytes = whole;
    bytes[static_cast<size_t>(at)] ^= 1;
    return bytes;
  };
  EXPECT_TRUE(contains(message(changed(64)), "chunk at byte 64: the checksum of its header"));
  EXPECT_TRUE(contains(message(changed(120)), "chunk at byte 64: the checksum of its data"));
  EXPECT_TRUE(contains(message(whole.substr(0, whole.size() - 1)), "cut short"));
  EXPECT_TRUE(
      contains(message(whole.substr(0, whole.size() - kRiegeliBlockBytes)), "chunk at byte"));
  EXPECT_TRUE(contains(message(changed(std::ssize(whole) - kRiegeliBlockBytes + 40)), "checksum"));
  // What can be read of a damaged file is read, where bad examples are left out.
  const RecordFilePtr file = open_record_file(write("damaged", changed(120)), {});
  std::string buffer;
  EXPECT_EQ(file->read(7, buffer), some_records()[7]);
}

}  // namespace
}  // namespace quintet::data
