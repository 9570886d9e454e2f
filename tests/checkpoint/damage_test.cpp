// Checkpoints that were cut, changed, mixed up or forged are refused with the name of what is wrong,
// and a run goes back to the one before (fault rows C5, C6, C7, C13, F3).

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <random>

#include "checkpoint/manifest.h"
#include "checkpoint/region_reader.h"
#include "runtime/base/formats/crc32c.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

using testing::error_of;
using testing::Scratch;
using testing::slices_of;
using testing::small_state;
using testing::write_bytes;

constexpr const char* kData = "data-00000-of-00001.h5";

class Damage : public ::testing::Test {
 protected:
  Damage() {
    const FolderLock lock(model_dir());
    CheckpointManager manager(lock, {.keep = 0, .run_id = "run-a"});
    manager.save(100, slices_of(small_state(1)), R"({"at":100})");
    manager.save(200, slices_of(small_state(2)), R"({"at":200})");
  }
  std::filesystem::path model_dir() const { return scratch_.path() / "model"; }
  std::filesystem::path newest() const { return checkpoint_path(model_dir(), 200); }
  std::string refusal() const {
    return error_of(ExitCode::kData, [&] { read_checkpoint(newest()); });
  }
  void expect_refused(const std::string& part) const {
    const std::string message = refusal();
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  /// Puts a text under a right CRC in place of the manifest.
  void forge(const std::string& from, const std::string& to) const {
    std::string text = read_file(newest() / kManifestName);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const size_t tail = text.rfind(",\n\"crc32c\":\"");
    text.resize(tail);
    text += fmt::format(",\n\"crc32c\":\"{:08x}\"}}\n", crc32c(text));
    write_bytes(newest() / kManifestName, text);
  }
  Scratch scratch_;
};

TEST_F(Damage, EveryFlippedBitIsSeen) {
  std::mt19937 random(5);
  for (const char* name : {kManifestName, kData, kStateName}) {
    const std::string good = read_file(newest() / name);
    const bool all = name == std::string(kManifestName);
    for (size_t i = 0; i < (all ? good.size() : 1000); ++i) {
      const size_t at = all ? i : random() % good.size();
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
      write_bytes(newest() / name, bad);
      const std::string message = refusal();
      EXPECT_NE(message.find(name), std::string::npos) << message;
      if (HasFailure()) FAIL() << name << ": byte " << at;
    }
    write_bytes(newest() / name, good);
  }
  read_checkpoint(newest());
}

TEST_F(Damage, AFlipInATensorNamesIt) {
  const Manifest manifest = read_manifest(newest());
  std::string bytes = read_file(newest() / kData);
  const auto& slice = manifest.tensors.at("target/decoder/logits_dense/kernel").slices[0];
  bytes[static_cast<size_t>(slice.extents[0].offset) + 77] ^= 1;
  write_bytes(newest() / kData, bytes);
  expect_refused("target/decoder/logits_dense/kernel");
  EXPECT_NE(refusal().find("CRC-32C"), std::string::npos);
  // Another tensor of the same checkpoint can still be had.
  std::vector<std::byte> other(3 * sizeof(double));
  NativeCheckpointReader(newest()).read({"state/double", {0}, {3}}, other.data());
  EXPECT_EQ(other, small_state(2).at("state/double").bytes);
}

TEST_F(Damage, CutFilesAreRefusedWithBothSizes) {
  for (const char* name : {kManifestName, kData, kStateName}) {
    const std::string good = read_file(newest() / name);
    for (size_t i = 0; i < 64; ++i) {
      const size_t size = good.size() * i / 64;
      write_bytes(newest() / name, good.substr(0, size));
      const std::string message = refusal();
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find(fmt::format("{} bytes", size)), std::string::npos) << message;
    }
    write_bytes(newest() / name, good + "x");
    EXPECT_NE(refusal().find(name), std::string::npos);
    write_bytes(newest() / name, good);
  }
}

TEST_F(Damage, MissingExtraAndExchangedFilesAreRefused) {
  const auto older = checkpoint_path(model_dir(), 100);
  for (const char* name : {kManifestName, kData, kStateName}) {
    const std::string good = read_file(newest() / name);
    std::filesystem::remove(newest() / name);
    expect_refused(name);
    std::filesystem::copy(older / name, newest() / name);
    refusal();  // the same file of another step, of the same size
    std::filesystem::remove(newest() / name);
    write_bytes(newest() / name, good);
  }
  write_bytes(newest() / "data-00001-of-00002.h5", "x");
  expect_refused("data-00001-of-00002.h5");
  std::filesystem::remove(newest() / "data-00001-of-00002.h5");
  std::filesystem::remove(newest() / kData);
  std::filesystem::create_symlink(older / kData, newest() / kData);
  expect_refused("symbolic link");
  std::filesystem::remove(newest() / kData);
  ASSERT_EQ(::mkfifo((newest() / kData).c_str(), 0600), 0);
  expect_refused("not an ordinary file");  // and does not wait for a writer
}

TEST_F(Damage, AFolderUnderAnotherStepsNameIsRefused) {
  std::filesystem::rename(checkpoint_path(model_dir(), 100), checkpoint_path(model_dir(), 300));
  const std::string message =
      error_of(ExitCode::kData, [&] { read_checkpoint(checkpoint_path(model_dir(), 300)); });
  EXPECT_NE(message.find("holds step 100"), std::string::npos) << message;
  std::filesystem::rename(checkpoint_path(model_dir(), 300), model_dir() / "best");
  EXPECT_EQ(read_checkpoint(model_dir() / "best").step, 100) << "any other name is fine";
}

TEST_F(Damage, ARunDoesNotGoOnFromNumbersThatAreNotFinite) {
  const FolderLock lock(model_dir());
  std::vector<std::string> warnings;
  CheckpointManager manager(
      lock, {.keep = 0, .warn = [&](const std::string& text) { warnings.push_back(text); }});
  HostArrays state = small_state();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  state.at("target/decoder/logits_dense/kernel").as<float>()[5] = static_cast<float>(-kInfinity);
  state.at("target/token_embedder/embedding").as<bfloat16>()[29] = bfloat16(std::nanf(""));
  state.at("state/double").as<double>()[2] = kInfinity;
  state.at("state/bytes").as<uint8_t>()[0] = 0xff;
  manager.save(300, testing::slices_of(state), "{}");
  EXPECT_EQ(manager.latest_whole()->step(), 200);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("state/double (1 value) and 2 other tensors hold values that are not "
                             "finite"),
            std::string::npos)
      << warnings[0];
  EXPECT_TRUE(std::filesystem::exists(model_dir() / "damaged-checkpoint_300"));
}

TEST_F(Damage, ARunGoesBackLoudlyAndSetsTheDamagedOneAside) {
  const std::string bytes = read_file(newest() / kData);
  write_bytes(newest() / kData, bytes.substr(1));
  const FolderLock lock(model_dir());
  std::vector<std::string> warnings;
  CheckpointManager manager(
      lock, {.keep = 1, .warn = [&](const std::string& text) { warnings.push_back(text); }});
  ASSERT_EQ(manager.latest_whole()->step(), 100);
  const Checkpoint restored = read_checkpoint(checkpoint_path(model_dir(), 100));
  EXPECT_EQ(restored.step, 100);
  EXPECT_EQ(restored.state_json, R"({"at":100})");
  EXPECT_TRUE(testing::same_state(restored.arrays, small_state(1)));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("CHECKPOINT 200 IS DAMAGED"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find(kData), std::string::npos) << warnings[0];
  EXPECT_TRUE(std::filesystem::exists(model_dir() / "damaged-checkpoint_200" / kData));
  // With keep=1 a damaged newer one that still counted would have pushed out the good one.
  EXPECT_EQ(manager.steps(), std::vector<int64_t>{100});
}

TEST_F(Damage, WithoutAWholeCheckpointThereIsNoSilentStartFromScratch) {
  for (int64_t step : {100, 200})
    std::filesystem::remove(checkpoint_path(model_dir(), step) / kManifestName);
  const FolderLock lock(model_dir());
  CheckpointManager manager(lock, {.warn = [](const std::string&) {}});
  const std::string message = error_of(ExitCode::kData, [&] { manager.latest_whole(); });
  for (const char* part : {"checkpoint_100", "checkpoint_200", "no checkpoint is whole"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

// Written once by this program as it was when the version was new; never written again.
TEST(Format, EveryVersionEverWrittenIsRead) {
  for (int64_t version = 1; version <= kCheckpointVersion; ++version) {
    const auto folder = std::filesystem::path(QUINTET_SOURCE_DIR) / "tests/checkpoint" /
                        fmt::format("format_{}", version) / "checkpoint_7";
    const Checkpoint checkpoint = read_checkpoint(folder);
    EXPECT_EQ(checkpoint.step, 7);
    EXPECT_EQ(checkpoint.run_id, fmt::format("format-{}", version));
    EXPECT_EQ(checkpoint.state_json, R"({"position":448})");
    EXPECT_TRUE(testing::same_state(checkpoint.arrays, small_state(1, false)));
    if (version == kCheckpointVersion) {
      EXPECT_EQ(manifest_text(read_manifest(folder)), read_file(folder / kManifestName));
    }
  }
}

TEST_F(Damage, OtherFormatVersionsAreNamed) {
  forge("\"version\":1", "\"version\":2");
  expect_refused("format version 2, this program knows 1; read it with a newer quintet");
  forge("\"version\":2", "\"version\":0");
  expect_refused("format version 0");
  forge("quintet-checkpoint", "something-else");
  expect_refused("something-else");
}

TEST_F(Damage, HostilePathsInAManifestAreRefused) {
  const std::string good = read_file(newest() / kManifestName);
  for (const char* name : {"../checkpoint_100/data-00000-of-00001.h5", "/etc/passwd", "state.h5",
                           "data-00000-of-00001.h5\\u0000x", "data-00001-of-00001.h5", "", "."}) {
    forge(fmt::format("\"name\":\"{}\"", kData), fmt::format("\"name\":\"{}\"", name));
    expect_refused("is not a name of a checkpoint's file");
    write_bytes(newest() / kManifestName, good);
  }
  for (const char* name : {"../x", "/x", "a//b", "a/./b", "a\\u0000b", ""}) {
    forge("\"state/step\"", fmt::format("\"{}\"", name));
    expect_refused("not a tensor's name");
    write_bytes(newest() / kManifestName, good);
  }
}

TEST_F(Damage, HostileNumbersInAManifestAreRefusedBeforeMemoryIsTaken) {
  const std::string good = read_file(newest() / kManifestName);
  const Manifest manifest = read_manifest(newest());
  const auto& wide = manifest.tensors.at("state/double").slices[0];
  const std::string extent = fmt::format("[{},24]", wide.extents[0].offset);
  struct Case {
    std::string from, to;
  };
  const std::vector<Case> cases = {
      {"\"step\":200", "\"step\":-200"},
      {"\"step\":200", "\"step\":1e3"},
      {"\"hosts\":1", "\"hosts\":0"},
      {"\"hosts\":1", "\"hosts\":1000000000000"},
      {"\"shape\":[3]", "\"shape\":[-3]"},
      {"\"shape\":[3]", "\"shape\":[4]"},                      // a hole
      {"\"shape\":[3]", "\"shape\":[2]"},                      // slice outside
      {"\"shape\":[3]", "\"shape\":[4611686018427387904,4]"},  // wraps
      {"\"shape\":[3]", "\"shape\":[3,1152921504606846976]"},  // huge
      {"\"origin\":[0],\"sizes\":[3]", "\"origin\":[9223372036854775807],\"sizes\":[3]"},
      {"\"origin\":[0],\"sizes\":[3]", "\"origin\":[-1],\"sizes\":[3]"},
      {"\"origin\":[0],\"sizes\":[3]", "\"origin\":[0,0],\"sizes\":[3,1]"},
      {extent, "[9223372036854775807,24]"},
      {extent, "[-8,24]"},
      {extent, fmt::format("[{},25]", wide.extents[0].offset)},
      {extent, fmt::format("[{},24],[{},24]", wide.extents[0].offset, wide.extents[0].offset)},
      {extent, "[0]"},
      {"\"dtype\":\"float64\"", "\"dtype\":\"float32\""},
      {"\"dtype\":\"float64\"", "\"dtype\":\"complex\""},
      {"\"crc32c\":\"", "\"crc32c\":\"zz"},
      {"\"state\":{", "\"state\":[{"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.from + " -> " + c.to);
    forge(c.from, c.to);
    refusal();
    write_bytes(newest() / kManifestName, good);
  }
  // Two tensors that claim the same bytes.
  const auto& other = manifest.tensors.at("state/long").slices[0];
  forge(fmt::format("[{},16]", other.extents[0].offset),
        fmt::format("[{},16]", wide.extents[0].offset));
  expect_refused("share bytes");
}

}  // namespace
}  // namespace quintet
