// OCDBT stores: trees of every shape that TensorStore writes are read byte for byte, and what a tree may ask of its
// reader is limited by what it is.

#include <gtest/gtest.h>
#include <zstd.h>

#include <random>

#include "checkpoint/ocdbt/encoding.h"
#include "checkpoint/ocdbt/store.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/orbax/orbax_reader.h"
#include "runtime/base/formats/crc32c.h"
#include "tests/checkpoint/foreign.h"
#include "tests/checkpoint/ocdbt_files.h"
#include "tests/checkpoint/t5x_files.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_folders;
using testing::fixture_root;

ocdbt::Store open_store(const fs::path& folder) {
  return ocdbt::Store(std::make_unique<ocdbt::FolderFiles>(folder));
}

/// A folder of the fixture and the file of values beside it.
HostArrays values_of(fs::path folder) { return read_safetensors(folder += ".safetensors"); }

TEST(OcdbtStore, ReadsEveryShapeByteForByte) {
  const auto folders = fixture_folders("ocdbt/stores");
  ASSERT_FALSE(folders.empty());
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder);
    const ocdbt::Store store = open_store(folder);
    HostArrays want = values_of(folder);
    if (want.contains("none")) want.clear();
    ASSERT_EQ(store.values().size(), want.size());
    for (const auto& [key, array] : want) {
      ASSERT_TRUE(store.values().contains(key)) << key;
      EXPECT_TRUE(std::ranges::equal(store.values().at(key), array.bytes)) << key;
    }
  }
}

TEST(OrbaxReader, ReadsArraysOfEveryTypeAndLayout) {
  const fs::path folder = fixture_root() / "ocdbt/arrays";
  const orbax::Reader reader(folder);
  EXPECT_TRUE(testing::same_state(testing::read_all(reader), values_of(folder)));
  testing::check_regions(reader, values_of(folder));
}

TEST(OrbaxReader, ReadsShardsOfSeveralDevicesAndProcesses) {
  const auto folders = fixture_folders("ocdbt/orbax");
  ASSERT_FALSE(folders.empty());
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder);
    for (const int64_t step : list_checkpoints(folder)) {
      const orbax::Reader reader(checkpoint_path(folder, step));
      EXPECT_EQ(reader.step(), step);
      EXPECT_TRUE(testing::same_state(testing::read_all(reader), values_of(folder)));
      testing::check_regions(reader, values_of(folder));
    }
  }
}

/// As Orbax of 2023 wrote it: a msgpack file names the store's arrays and holds others.
TEST(OrbaxReader, ReadsAStoreWithAnIndexInMsgpack) {
  namespace pack = testing::pack;
  const testing::Scratch scratch;
  const fs::path item = scratch.path() / "state";
  fs::copy(fixture_root() / "ocdbt/arrays", item, fs::copy_options::recursive);
  const auto all = values_of(fixture_root() / "ocdbt/arrays");
  const std::string small = testing::floats({3, 4, 5});
  testing::write_bytes(
      item / "checkpoint",
      pack::dict({{"target", pack::dict({{"a.b", pack::text("PLACEHOLDER://target.f32.whole")},
                                         {"c", pack::array("float32", {3}, small)}})},
                  {"state", pack::dict({{"step", pack::number(41)}})}}));
  const auto reader = open_checkpoint(scratch.path());
  EXPECT_EQ(reader->step(), 41);
  HostArrays want = all;
  want.erase("target/f32/whole");
  want["target/a.b"] = all.at("target/f32/whole");
  want["target/c"] = HostArray(DType::f32, {3});
  std::memcpy(want["target/c"].bytes.data(), small.data(), small.size());
  want["state/step"] = testing::read_region(*reader, {"state/step", {}, {}});
  EXPECT_TRUE(testing::same_state(testing::read_all(*reader), want));
  EXPECT_EQ(reader->verify().size(), 1u) << "of the array that is filled with infinity";
}

TEST(RefusedOcdbt, ASaveThatWasNotFinished) {
  const testing::Scratch scratch;
  fs::copy(fixture_root() / "ocdbt/orbax/processes", scratch.path() / "a",
           fs::copy_options::recursive);
  for (const int64_t step : list_checkpoints(scratch.path() / "a")) {
    const fs::path folder = checkpoint_path(scratch.path() / "a", step);
    fs::remove(folder / "state/manifest.ocdbt");
    const std::string what =
        testing::error_of(ExitCode::kData, [&] { orbax::Reader reader(folder); });
    EXPECT_NE(what.find("was not finished"), std::string::npos) << what;
  }
}

// Stores by hand: nodes without compression, all in one data file.

using testing::encoded;
using testing::MemoryStore;
using testing::varint;

std::string manifest(uint64_t root_offset, uint64_t root_length, int height,
                     const std::string& path = "d/a") {
  std::string body(16, 'u');
  body += varint(0) + varint(100) + varint(100'000'000) + '\x04' + varint(0);
  body += testing::data_files(path) + varint(1) + varint(1) + static_cast<char>(height) + varint(0);
  body += varint(root_offset) + varint(root_length) + varint(1) + varint(1) + varint(1);
  body += std::string(8, '\0') + varint(0);
  return encoded(ocdbt::kManifestMagic, body);
}

/// A node that is no leaf, whose children are all the same one.
std::string parent(int height, const std::vector<std::string>& keys, uint64_t offset,
                   uint64_t length) {
  std::string body(1, static_cast<char>(height));
  body += testing::data_files("d/a") + varint(keys.size());
  for (size_t i = 1; i < keys.size(); ++i) body += varint(0);
  for (const std::string& key : keys) body += varint(key.size());
  for (const std::string& key : keys) body += varint(key.size());
  for (const std::string& key : keys) body += key;
  for (size_t i = 0; i < keys.size(); ++i) body += varint(0);
  for (size_t i = 0; i < keys.size(); ++i) body += varint(offset);
  for (size_t i = 0; i < keys.size(); ++i) body += varint(length);
  for (size_t i = 0; i < 3 * keys.size(); ++i) body += varint(1);
  return encoded(ocdbt::kBtreeMagic, body);
}

/// One key with a value inside.
std::string leaf(const std::string& key, const std::string& value) {
  std::string body(1, '\0');
  body += varint(0) + varint(1) + varint(key.size()) + key + varint(value.size()) + varint(0);
  return encoded(ocdbt::kBtreeMagic, body + value);
}

std::string refusal(const std::string& manifest, const std::string& data) {
  return testing::error_of(
      ExitCode::kData, [&] { ocdbt::Store store(std::make_unique<MemoryStore>(manifest, data)); });
}

TEST(OcdbtStore, AsMadeByHand) {
  const std::string low = leaf("x", "value"), top = parent(1, {"a", "b"}, 0, low.size());
  const ocdbt::Store store(
      std::make_unique<MemoryStore>(manifest(low.size(), top.size(), 1), low + top));
  ASSERT_EQ(store.values().size(), 2u) << "one leaf hangs from two places";
  EXPECT_EQ(store.values().begin()->first, "ax");
  EXPECT_EQ(store.values().rbegin()->first, "bx");
}

TEST(RefusedOcdbt, TreesThatNeverEnd) {
  // A node below itself: no height fits.
  std::string self = parent(1, {"a"}, 0, 0);
  self = parent(1, {"a"}, 0, self.size());
  EXPECT_NE(refusal(manifest(0, self.size(), 1), self).find("of height 1"), std::string::npos);
  // Sixty levels of two children that are one: 2^60 keys.
  std::string data = leaf("x", "");
  size_t offset = 0, length = data.size();
  for (int height = 1; height <= 60; ++height) {
    const std::string node = parent(height, {"a", "b"}, offset, length);
    offset = data.size();
    length = node.size();
    data += node;
  }
  const std::string what = refusal(manifest(offset, length, 60), data);
  EXPECT_NE(what.find("times what it is made of"), std::string::npos) << what;
}

TEST(RefusedOcdbt, NodesThatGrowWithoutEnd) {
  const std::string zeros(64 << 20, '\0');
  std::string packed(ZSTD_compressBound(zeros.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), zeros.data(), zeros.size(), 1));
  const std::string node = encoded(ocdbt::kBtreeMagic, packed, 1);
  ASSERT_LT(node.size(), 10'000u);
  const std::string what = refusal(manifest(0, node.size(), 0), node);
  EXPECT_NE(what.find("holds more than"), std::string::npos) << what;
}

TEST(RefusedOcdbt, FilesOutsideOfTheFolder) {
  const std::string node = leaf("x", "value");
  for (const char* path : {"../a", "/etc/passwd", "d/../../a", "d/.."}) {
    const std::string what = refusal(manifest(0, node.size(), 0, path), node);
    EXPECT_NE(what.find("outside of the folder"), std::string::npos) << what;
  }
}

TEST(RefusedOcdbt, KeysOutOfOrderAndOtherVersions) {
  const std::string low = leaf("x", "");
  const std::string top = parent(1, {"b", "a"}, 0, low.size());
  EXPECT_NE(refusal(manifest(low.size(), top.size(), 1), low + top).find("does not come after"),
            std::string::npos);
  const std::string later = encoded(ocdbt::kBtreeMagic, "", 0, 1);
  EXPECT_NE(refusal(manifest(0, later.size(), 0), later).find("format version 1"),
            std::string::npos);
}

/// Bits that flip and ends that are missing, in every file of a store.
class DamagedStore {
 public:
  explicit DamagedStore(const fs::path& fixture) {
    fs::copy(fixture, folder(), fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(folder()))
      if (entry.is_regular_file() && entry.file_size() > 0) files_.push_back(entry.path());
    std::sort(files_.begin(), files_.end());
    before_ = values();
    unpacked_ = testing::bytes_of_files(folder());
    for (const auto& [key, value] : before_) unpacked_ += std::ssize(key) + std::ssize(value);
  }
  const std::vector<fs::path>& files() const { return files_; }

  /// Unless it is an error that names the folder, what a flip changes is one byte of one value: they have
  /// no checksum. Gives whether it is an error.
  bool flip_is_reported(const fs::path& file, size_t bit) const {
    const std::string whole = read_file(file);
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    testing::write_bytes(file, bytes);
    const bool told = is_reported([&](const std::map<std::string, std::string>& after) {
      ASSERT_EQ(after.size(), before_.size());
      int differ = 0;
      for (const auto& [key, value] : before_) {
        ASSERT_TRUE(after.contains(key) && after.at(key).size() == value.size()) << key;
        for (size_t i = 0; i < value.size(); ++i) differ += value[i] != after.at(key)[i] ? 1 : 0;
      }
      EXPECT_LE(differ, 1);
    });
    testing::write_bytes(file, whole);
    return told;
  }
  /// A store that is read all the same holds what it held.
  bool cut_is_reported(const fs::path& file, size_t size) const {
    const std::string whole = read_file(file);
    testing::write_bytes(file, whole.substr(0, size));
    const bool told = is_reported([&](const auto& after) { EXPECT_EQ(after, before_); });
    testing::write_bytes(file, whole);
    return told;
  }

 private:
  fs::path folder() const { return scratch_.path() / "store"; }
  std::map<std::string, std::string> values() const {
    const testing::MemoryBound bound(unpacked_);
    std::map<std::string, std::string> all;
    for (const ocdbt::Store store = open_store(folder()); const auto& [key, value] : store.values())
      all[key] = {reinterpret_cast<const char*>(value.data()), value.size()};
    return all;
  }
  template <typename Check>
  bool is_reported(const Check& check) const {
    try {
      check(values());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_NE(std::string(error.what()).find(folder().string()), std::string::npos)
          << error.what();
      return true;
    }
    return false;
  }

  testing::Scratch scratch_;
  std::vector<fs::path> files_;
  std::map<std::string, std::string> before_;
  int64_t unpacked_ = 1 << 30;  // bytes of the files and of what they hold
};

TEST(DamagedOcdbt, IsAnErrorOrOneByteOfAValue) {
  for (const char* name : {"stores/inline", "stores/numbered", "stores/levels"}) {
    SCOPED_TRACE(name);
    const DamagedStore store(fixture_root() / "ocdbt" / name);
    std::mt19937 random(5);
    int told = 0;
    for (int i = 0; i < 2000; ++i) {
      const fs::path& file = store.files()[random() % store.files().size()];
      told += store.flip_is_reported(file, random() % (fs::file_size(file) * 8)) ? 1 : 0;
    }
    EXPECT_GT(told, 100);
    for (size_t i = 0; i < 64; ++i) {
      const fs::path& file = store.files()[random() % store.files().size()];
      store.cut_is_reported(file, fs::file_size(file) * i / 64);
    }
    for (const fs::path& file : store.files()) {
      if (file.filename() != "manifest.ocdbt") continue;
      for (size_t i = 0; i < 64; ++i)
        EXPECT_TRUE(store.cut_is_reported(file, fs::file_size(file) * i / 64));
    }
  }
}

}  // namespace
}  // namespace quintet
