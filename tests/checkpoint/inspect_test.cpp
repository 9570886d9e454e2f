// `quintet inspect` names what is there and what is wrong with it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "apps/cli/verbs.h"
#include "checkpoint/safetensors.h"
#include "tests/checkpoint/scratch.h"
#include "tests/harness/fixtures.h"

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
    return {static_cast<int>(error.code()),
            ::testing::internal::GetCapturedStdout() + error.what()};
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
  for (const char* how : {"--verify", "--stats"})
    EXPECT_EQ(Json::parse(inspect({folder, "--format=json", how}).text)["not_finite"]["some/floats"]
                  .as_int(),
              1);
  EXPECT_FALSE(
      Json::parse(inspect({folder, "--format=json", "--no_verify"}).text).has("not_finite"));
  EXPECT_NE(inspect({scratch.path()}).text.find("whole, NOT FINITE: some/floats"),
            std::string::npos);
  const Output text = inspect({folder});
  EXPECT_EQ(text.code, 0);
  for (const char* part :
       {"target/encoder/layers_0/mlp/wi_0/kernel", "[7, 13]", "bfloat16", "every byte",
        "13 tensors", "NO: some/floats (1 value) holds values that are not finite"})
    EXPECT_NE(text.text.find(part), std::string::npos) << part << "\n" << text.text;
}

TEST(Inspect, LooksAtEveryNumberOfOtherProgramsCheckpoints) {
  for (const char* folder : {"huggingface/t5_1_1", "huggingface/flax"}) {
    const auto path = testing::fixture_root() / folder;
    for (const char* how : {"--verify", "--stats"}) {
      const Json json = Json::parse(inspect({path, "--format=json", how}).text);
      EXPECT_EQ(json["not_finite"].members().size(), 0u) << path;
    }
    EXPECT_FALSE(
        Json::parse(inspect({path, "--format=json", "--no_verify"}).text).has("not_finite"));
  }
  const Scratch scratch;
  std::filesystem::copy(testing::fixture_root() / "huggingface/t5_1_0", scratch.path(),
                        std::filesystem::copy_options::recursive);
  const auto file = scratch.path() / "model.safetensors";
  std::string bytes = read_file(file);
  for (size_t i = 1; i <= 4; ++i) bytes[bytes.size() - i] = static_cast<char>(i == 1 ? 0x7f : 0xff);
  testing::write_bytes(file, bytes);
  EXPECT_NE(inspect({scratch.path()}).text.find("(1 value) holds values that are not finite"),
            std::string::npos);
}

TEST(Inspect, OfAModelDirectoryShowsTheNewestsStatistics) {
  const Scratch scratch;
  {
    const FolderLock lock(scratch.path());
    CheckpointManager manager(lock, {.keep = 0});
    for (const int64_t step : {1, 2})
      manager.save(step, testing::slices_of(testing::small_state()), "{}");
  }
  const std::string newest = checkpoint_path(scratch.path(), 2).string();
  for (const char* format : {"--format=text", "--format=json"})
    EXPECT_EQ(inspect({scratch.path(), "--stats", format}).text,
              inspect({newest, "--stats", format}).text);
}

/// Two checkpoints that differ in every way that there is.
class TwoCheckpoints : public ::testing::Test {
 protected:
  TwoCheckpoints() {
    HostArrays a = testing::small_state();
    a["odd/one"] = testing::filled<float>({2, 3}, 1);
    a["odd/longer"] = testing::filled<float>({4}, 1);
    a["odd/only_first"] = testing::filled<float>({1}, 1);
    HostArrays b = a;
    b.erase("odd/only_first");
    b["odd/only_second"] = testing::filled<float>({1}, 1);
    b["odd/longer"] = testing::filled<float>({5}, 1);
    b["odd/one"].as<float>()[4] += 2;
    same_ = static_cast<int64_t>(a.size()) - 3;
    largest_ = 0;
    for (const float value : a["odd/one"].as<float>())
      largest_ = std::max(largest_, std::abs(value));
    const FolderLock lock(scratch_.path());
    CheckpointManager manager(lock, {.keep = 0});
    manager.save(1, testing::slices_of(a), "{}");
    manager.save(2, testing::slices_of(b), "{}");
  }
  std::string folder(int64_t step) const { return checkpoint_path(scratch_.path(), step).string(); }
  const Scratch scratch_;
  int64_t same_ = 0;
  float largest_ = 0;
};

TEST_F(TwoCheckpoints, AreCompared) {
  const Output output = inspect({folder(1), folder(2), "--format=json"});
  EXPECT_EQ(output.code, 0) << output.text;
  const Json json = Json::parse(output.text);
  EXPECT_EQ(json["missing"][size_t{0}].as_string(), "odd/only_first");
  EXPECT_EQ(json["extra"][size_t{0}].as_string(), "odd/only_second");
  EXPECT_EQ(json["shapes"]["odd/longer"][size_t{1}].as_ints(), std::vector<int64_t>{5});
  EXPECT_EQ(json["differences"].size(), 1u);
  EXPECT_FLOAT_EQ(static_cast<float>(json["differences"]["odd/one"]["largest"].as_double()), 2);
  EXPECT_FLOAT_EQ(static_cast<float>(json["differences"]["odd/one"]["relative"].as_double()),
                  2 / largest_);
  EXPECT_EQ(json["equal"].as_int(), same_);
  const std::string text = inspect({folder(1), folder(2)}).text;
  for (const char* part :
       {"in the first alone\n  odd/only_first", "in the second alone\n  odd/only_second",
        "odd/longer  [4]  [5]", "1 have others, 3 differ in name or shape"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  const Json equal = Json::parse(inspect({folder(1), folder(1), "--format=json"}).text);
  EXPECT_EQ(equal["differences"].size() + equal["shapes"].size() + equal["missing"].size(), 0u);
  // A folder of checkpoints is its newest; another format holds the same names.
  const auto file = scratch_.path() / "two.safetensors";
  write_safetensors(file, read_checkpoint(folder(2)).arrays, {});
  const Json formats = Json::parse(inspect({scratch_.path(), file, "--format=json"}).text);
  EXPECT_EQ(formats["differences"].size() + formats["extra"].size() + formats["missing"].size(),
            0u);
  EXPECT_EQ(inspect({folder(1), scratch_.path() / "nothing"}).code, 3);
}

TEST_F(TwoCheckpoints, GiveOneTensor) {
  const Output text = inspect({folder(1), "--tensor=odd/one"});
  EXPECT_EQ(text.code, 0) << text.text;
  EXPECT_EQ(text.text.find("odd/one  float32  [2, 3]\n[["), 0u) << text.text;
  const Json json = Json::parse(inspect({folder(1), "--tensor=odd/one", "--format=json"}).text);
  const HostArray stored = read_checkpoint(folder(1)).arrays.at("odd/one");
  ASSERT_EQ(json["values"].size(), 6u);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_EQ(static_cast<float>(json["values"][i].as_double()), stored.as<float>()[i]);
  const std::string file = (scratch_.path() / "one.npy").string();
  EXPECT_EQ(inspect({folder(1), "--tensor=odd/one", "--output=" + file}).code, 0);
  const std::string bytes = read_file(file);
  ASSERT_EQ(bytes.size(), 64 + 64 + 24u);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }"),
            std::string::npos);
  EXPECT_EQ(bytes.substr(128), std::string(reinterpret_cast<const char*>(stored.bytes.data()), 24));
  const Output typo = inspect({folder(1), "--tensor=odd/on"});
  EXPECT_EQ(typo.code, 2);
  EXPECT_NE(typo.text.find("did you mean 'odd/one'"), std::string::npos) << typo.text;
  EXPECT_EQ(inspect({folder(1), "--output=" + file}).code, 2);
}

/// `quintet inspect` in a process of its own, whose output can be read while it runs.
class RunningInspect {
 public:
  explicit RunningInspect(std::vector<std::string> args) {
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0) throw std::runtime_error("pipe");
    ::fcntl(pipe[1], F_SETPIPE_SZ, kPipeBytes);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(pipe[1], STDOUT_FILENO);
      std::vector<char*> pointers;
      for (std::string& arg : args) pointers.push_back(arg.data());
      const int code = run_inspect(pointers);
      std::fflush(stdout);
      ::_exit(code);
    }
    ::close(pipe[1]);
    output_ = pipe[0];
  }
  /// Waits for the first output.
  void wait() const {
    pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, -1);
  }
  Output finish() {
    Output result;
    std::array<char, kPipeBytes> block{};
    for (ssize_t got; (got = ::read(output_, block.data(), block.size())) > 0;)
      result.text.append(block.data(), static_cast<size_t>(got));
    ::close(output_);
    int status = 0;
    ::waitpid(process_, &status, 0);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
  }

 private:
  static constexpr size_t kPipeBytes = 4096;  // the least that Linux has
  pid_t process_ = 0;
  int output_ = -1;
};

TEST(Inspect, GoesOnPastACheckpointThatIsDeletedMeanwhile) {
  const Scratch scratch;
  const int64_t last = 150;
  {
    const FolderLock lock(scratch.path());
    CheckpointManager manager(lock, {.keep = 0});
    HostArrays state;
    state["x"] = testing::filled<float>({2}, 1);
    for (int64_t step = 1; step <= last; ++step)
      manager.save(step, testing::slices_of(state), "{}");
  }
  const auto folder = checkpoint_path(scratch.path(), last);
  // Their lines fill stdio's block and the pipe several times: when the first comes, the
  // checkpoints have been listed, and the last one is not reached before somebody reads.
  RunningInspect inspect({scratch.path(), "--format=json"});
  inspect.wait();
  std::filesystem::rename(folder, scratch.path() / ".trash-checkpoint_150");
  const Output output = inspect.finish();
  EXPECT_EQ(output.code, 0) << output.text;
  std::istringstream lines(output.text);
  int64_t whole = 0, deleted = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json.has("kind")) continue;  // the directory itself
    const bool is_deleted = json.has("deleted") && json["deleted"].as_bool();
    EXPECT_EQ(is_deleted, json["step"].as_int() == last) << line;
    ++(is_deleted ? deleted : whole);
  }
  EXPECT_EQ(whole, last - 1);
  EXPECT_EQ(deleted, 1);
}

TEST(Inspect, TellsWholeFromDamaged) {
  const Scratch scratch;
  {
    const FolderLock lock(scratch.path());
    CheckpointManager manager(lock, {.keep = 0});
    for (const int64_t step : {1, 2})
      manager.save(step, testing::slices_of(testing::small_state()), "{}");
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
    if (const Json json = Json::parse(line); !json.has("kind"))  // else the directory itself
      whole.push_back(json["whole"].as_bool());
  EXPECT_EQ(whole, (std::vector<bool>{true, false}));
  EXPECT_EQ(inspect({scratch.path(), "--no_verify"}).code, 0) << "the sizes are right";
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
