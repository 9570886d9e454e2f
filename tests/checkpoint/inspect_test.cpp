// `quintet inspect` names what is there and what is wrong with it.

#include <gtest/gtest.h>

#include "apps/verbs.h"
#include "checkpoint/safetensors.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

using testing::Scratch;

struct Output {
  int code;
  std::string text;
};

Output inspect(std::vector<std::string> args) {
  std::vector<char*> pointers;
  for (std::string& arg : args) pointers.push_back(arg.data());
  ::testing::internal::CaptureStdout();
  int code = -1;
  try {
    code = run_inspect(pointers);
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), ::testing::internal::GetCapturedStdout() + error.what()};
  }
  std::fflush(stdout);
  return {code, ::testing::internal::GetCapturedStdout()};
}

TEST(Inspect, ListsACheckpointsTensors) {
  const Scratch scratch;
  HostArrays state = testing::small_state();
  state["some/floats"] = HostArray(DType::f32, {4});
  const float values[] = {3, -4, 0, std::nanf("")};
  std::memcpy(state["some/floats"].bytes.data(), values, sizeof values);
  {
    const FolderLock lock(scratch.path());
    CheckpointManager(lock, {.run_id = "r1"}).save(12, testing::slices_of(state), R"({"at":3})");
  }
  const auto folder = checkpoint_path(scratch.path(), 12);
  const Output json = inspect({folder, "--format=json", "--stats"});
  EXPECT_EQ(json.code, 0) << json.text;
  const Json parsed = Json::parse(json.text);
  EXPECT_EQ(parsed["step"].as_int(), 12);
  EXPECT_EQ(parsed["run_id"].as_string(), "r1");
  EXPECT_EQ(parsed["state"]["at"].as_int(), 3);
  EXPECT_TRUE(parsed["verified"].as_bool());
  EXPECT_EQ(parsed["tensors"].size(), state.size());
  const Json floats = parsed["tensors"]["some/floats"];
  EXPECT_EQ(floats["shape"].as_ints(), std::vector<int64_t>{4});
  EXPECT_EQ(floats["min"].as_double(), -4);
  EXPECT_EQ(floats["max"].as_double(), 3);
  EXPECT_DOUBLE_EQ(floats["rms"].as_double(), std::sqrt(25.0 / 3));
  EXPECT_EQ(floats["not_finite"].as_int(), 1);
  const Output text = inspect({folder});
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"target/encoder/layers_0/mlp/wi_0/kernel", "[7, 13]", "bfloat16",
                           "every byte", "13 tensors"})
    EXPECT_NE(text.text.find(part), std::string::npos) << part << "\n" << text.text;
}

TEST(Inspect, TellsWholeFromDamaged) {
  const Scratch scratch;
  {
    const FolderLock lock(scratch.path());
    CheckpointManager manager(lock, {.keep = 0});
    for (const int64_t step : {1, 2}) manager.save(step, testing::slices_of(testing::small_state()), "{}");
  }
  EXPECT_EQ(inspect({scratch.path()}).code, 0);
  const auto file = checkpoint_path(scratch.path(), 2) / "data-00000-of-00001.h5";
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  testing::write_bytes(file, bytes);
  const Output all = inspect({scratch.path(), "--format=json"});
  EXPECT_EQ(all.code, 3);
  std::vector<bool> whole;
  std::istringstream lines(all.text);
  for (std::string line; std::getline(lines, line);)
    whole.push_back(Json::parse(line)["whole"].as_bool());
  EXPECT_EQ(whole, (std::vector<bool>{true, false}));
  EXPECT_EQ(inspect({scratch.path(), "--no-verify"}).code, 0) << "the sizes are right";
  const Output one = inspect({checkpoint_path(scratch.path(), 2)});
  EXPECT_EQ(one.code, 3);
  EXPECT_NE(one.text.find("data-00000-of-00001.h5"), std::string::npos);
}

TEST(Inspect, ReadsSafetensorsAndSaysWhatItCannotRead) {
  const Scratch scratch;
  const auto file = scratch.path() / "m.safetensors";
  write_safetensors(file, testing::small_state(), {{"step", "5"}});
  const Json parsed = Json::parse(inspect({file, "--format=json"}).text);
  EXPECT_EQ(parsed["kind"].as_string(), "safetensors");
  EXPECT_EQ(parsed["state"]["step"].as_string(), "5");
  EXPECT_EQ(inspect({scratch.path() / "nothing"}).code, 2);
  EXPECT_EQ(inspect({scratch.path()}).code, 3) << "a folder with neither";
  EXPECT_EQ(inspect({file, "--frmat=json"}).code, 2);
}

}  // namespace
}  // namespace quintet
