// What lies at a path: every format is known by its content, and other things are called what they are.

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/open/formats.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/open/recognize.h"
#include "runtime/base/check.h"
#include "tests/checkpoint/scratch.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_root;
using testing::Scratch;

std::string name_at(const fs::path& path) {
  const CheckpointFormat* format = format_at(path);
  return format == nullptr ? "" : format->name;
}

TEST(Recognize, FormatsByTheirContent) {
  const fs::path checkpoint = fixture_root() / "checkpoint/t5_1_1";
  const fs::path step = [&] {
    for (const auto& entry : fs::directory_iterator(checkpoint / "t5x"))
      return entry.path().filename();
    return fs::path();
  }();
  EXPECT_EQ(name_at(checkpoint / "t5x" / step), "a T5X checkpoint");
  EXPECT_EQ(name_at(checkpoint / "t5x" / step / "checkpoint"), "a T5X checkpoint");
  EXPECT_EQ(name_at(checkpoint / "orbax" / step), "an Orbax checkpoint");
  EXPECT_EQ(name_at(checkpoint / "orbax" / step / "state"), "an Orbax checkpoint");
  EXPECT_EQ(name_at(checkpoint / "tf"), "a TensorFlow checkpoint");
  EXPECT_EQ(name_at(checkpoint / "tf/model.ckpt-3"), "a TensorFlow checkpoint");
  EXPECT_EQ(name_at(fixture_root() / "huggingface/t5_1_0"), "a Hugging Face directory");
  EXPECT_EQ(name_at(checkpoint / "t5x"), "") << "a folder of checkpoints is none itself";
  EXPECT_EQ(find_checkpoint(checkpoint / "t5x"), checkpoint / "t5x" / step);
}

TEST(Recognize, OurOwnCheckpointsAndTheNewestOfSeveral) {
  const Scratch scratch;
  const HostArrays state = testing::small_state();
  std::vector<TensorSlice> slices;
  for (const auto& [name, array] : state) slices.push_back(whole_slice(name, array));
  {
    const FolderLock lock(scratch.path());
    CheckpointManager checkpoints(lock, {.keep = 0});
    for (const int64_t step : {2, 10, 9}) checkpoints.save(step, slices, "{}");
  }
  EXPECT_EQ(find_checkpoint(scratch.path()), checkpoint_path(scratch.path(), 10));
  EXPECT_EQ(open_checkpoint(scratch.path())->step(), 10);
  fs::remove(checkpoint_path(scratch.path(), 10) / "MANIFEST.json");
  try {
    open_checkpoint(scratch.path());
    FAIL() << "one without a manifest was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("MANIFEST.json"), std::string::npos) << error.what();
  }
}

TEST(Recognize, OtherThingsAreCalledWhatTheyAre) {
  for (const auto& [name, content, what] :
       {std::tuple("saved_model.pb", "\x08\x01", "a TensorFlow SavedModel"),
        {".zarray", "{}", "a zarr array"},
        {".zgroup", "{}", "a folder of zarr arrays"},
        {"a.gguf", "GGUF", "a folder of GGUF files"},
        {"config.gin", "", "has saved no checkpoint yet"},
        {"model.safetensors", "", "without the config.json"},
        {"config.json", "{}", "whose config.json names neither"},
        {"notes.txt", "", "a folder without anything known in it"}}) {
    const Scratch scratch;
    EXPECT_NE(what_lies_at(scratch.path()).find("an empty folder"), std::string::npos);
    std::ofstream(scratch.path() / name) << content;
    try {
      open_checkpoint(scratch.path());
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      const std::string message = error.what();
      EXPECT_NE(message.find(what), std::string::npos) << message;
      EXPECT_NE(message.find(scratch.path().string()), std::string::npos) << message;
    }
  }
  const Scratch scratch;
  std::ofstream(scratch.path() / "m.bin") << "GGUF and more";
  EXPECT_EQ(what_lies_at(scratch.path() / "m.bin"), "a GGUF file");
  EXPECT_NE(what_lies_at(scratch.path() / "nothing").find("there is no such"), std::string::npos);
}

}  // namespace
}  // namespace quintet
