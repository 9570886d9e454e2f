// Event files and metrics.jsonl: what is written reads back; damage is noticed; a resumed run
// writes every line once.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/files/read_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/formats/tfrecord.h"
#include "runtime/metrics/event.pb.h"
#include "runtime/metrics/event_file.h"
#include "runtime/metrics/metrics_log.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

class Summaries : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("quintet_summaries_{}_{}", getpid(),
                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void append(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file, std::ios::app | std::ios::binary) << text;
  }
  std::filesystem::path folder_;
};

TEST_F(Summaries, EventsReadBack) {
  std::filesystem::path path;
  {
    EventFile events(folder_ / "train");
    path = events.path();
    events.scalar("loss", 0, 2.5);
    events.scalar("loss", 1 << 20, -1e-3);
    events.scalar("timing/seconds", 3, std::nan(""));
    events.text("config", 0, "# Parameters\n    emb_dim = 8\n");
  }
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents."));
  const auto events = read_event_file(path);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].tag, "");
  EXPECT_GT(events[0].wall_time, 1.7e9);
  EXPECT_TRUE(events[1].session_start);
  EXPECT_EQ(events[2].tag, "loss");
  EXPECT_EQ(events[2].step, 0);
  EXPECT_EQ(events[2].scalar, 2.5);
  EXPECT_EQ(events[3].step, 1 << 20);
  EXPECT_EQ(events[3].scalar, static_cast<double>(-1e-3f));
  EXPECT_TRUE(std::isnan(events[4].scalar));
  EXPECT_EQ(events[5].text, "# Parameters\n    emb_dim = 8\n");
}

TEST_F(Summaries, BytesThatAreNoEventAreAnError) {
  tensorboard::Event event;
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag("odd");
  value.mutable_tensor()->set_tensor_content("nine byte");
  const std::string odd = event.SerializeAsString();
  for (const auto& [bytes, reason] :
       {std::pair{odd, "'odd' holds a tensor of 9 bytes"},
        std::pair{odd.substr(0, odd.size() - 1), "record 0 is not an event"}}) {
    std::string file;
    append_tfrecord(file, bytes);
    std::ofstream(folder_ / "events", std::ios::binary) << file;
    try {
      read_event_file(folder_ / "events");
      ADD_FAILURE() << "read: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
}

// TensorFlow's writers, which T5X has, put a scalar's bytes into tensor_content; older ones have simple_value.
TEST_F(Summaries, ScalarsOfOtherWritersAreRead) {
  tensorboard::Event event;
  event.set_step(7);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag("loss");
  const float number = 2.5F;
  value.mutable_tensor()->set_dtype(tensorboard::DT_FLOAT);
  value.mutable_tensor()->mutable_tensor_shape();
  value.mutable_tensor()->set_tensor_content(&number, sizeof number);
  std::string file;
  append_tfrecord(file, event.SerializeAsString());
  value.clear_tensor();
  value.set_simple_value(number);
  append_tfrecord(file, event.SerializeAsString());
  std::ofstream(folder_ / "events", std::ios::binary) << file;
  const std::vector<Event> events = read_event_file(folder_ / "events");
  ASSERT_EQ(events.size(), 2U);
  for (const Event& read : events) {
    EXPECT_TRUE(read.is_scalar && read.histogram.empty());
    EXPECT_EQ(std::tie(read.step, read.scalar), std::tuple(7, 2.5));
  }
}

TEST_F(Summaries, HistogramsAreThoseOfTensorBoard) {
  const auto file = ::quintet::testing::fixture_root() / "seqio" / "more" / "histograms.jsonl";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& row : Json::read_lines(file)) {
    EventFile events(folder_);
    const auto values = row["values"].as_doubles();
    if (row["bins"].is_null())
      events.histogram("h", 3, values);
    else
      events.histogram("h", 3, values, row["bins"].as_int());
    events.flush();
    std::vector<double> want;
    for (const Json& bucket : row["rows"].items())
      for (const double number : bucket.as_doubles()) want.push_back(number);
    const auto got = read_event_file(events.path()).back().histogram;
    ASSERT_EQ(got.size(), want.size()) << row.path();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << row.path() << i;
  }
}

TEST_F(Summaries, ImagesAudioAndTensorsHaveTensorFlowsForm) {
  EventFile events(folder_);
  events.images("i", 3, 2, 1, {"png a", "png b"});
  events.audio("a", 3, {"wav"});
  events.tensor("g", 3, {"mine", "xy"}, std::array{int64_t{2}, int64_t{1}}, std::array{1.5, -2.0});
  events.flush();
  std::vector<std::string> found;
  const std::string bytes = read_file(events.path());
  for (std::string_view rest = bytes; const auto record = next_tfrecord(rest, "events");) {
    tensorboard::Event event;
    ASSERT_TRUE(event.ParseFromArray(record->data(), static_cast<int>(record->size())));
    for (const auto& value : event.summary().value()) {
      const auto& plugin = value.metadata().plugin_data();
      std::string text = fmt::format("{} {} {}", event.step(), value.tag(), plugin.plugin_name());
      for (const char byte : plugin.content()) text += fmt::format(" {}", int{byte});
      text += " |";
      for (const auto& size : value.tensor().tensor_shape().dim())
        text += fmt::format(" {}", size.size());
      text += " |";
      for (const std::string& blob : value.tensor().string_val()) text += " '" + blob + "'";
      EXPECT_FALSE(value.metadata().has_data_class());
      found.push_back(text);
    }
  }
  // What tf.summary.image, audio and write leave (TensorFlow 2.21, TensorBoard 2.21).
  EXPECT_EQ(found, (std::vector<std::string>{"3 i images | 4 | '2' '1' 'png a' 'png b'",
                                             "3 a audio 16 11 | 1 2 | 'wav' ''",
                                             "3 g mine 120 121 | 2 1 |"}));
  EXPECT_EQ(read_event_file(events.path()).back().histogram, (std::vector<double>{1.5, -2}));
}

TEST_F(Summaries, TwoWritersOfOneFolderDoNotShareAFile) {
  EventFile first(folder_), second(folder_, 7), third(folder_);
  EXPECT_NE(first.path(), second.path());
  // Only a run that resumes makes TensorBoard drop what is there.
  EXPECT_EQ(read_event_file(third.path()).size(), 1u);
  const auto events = read_event_file(second.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[1].session_start);
  EXPECT_EQ(events[1].step, 7);
}

TEST_F(Summaries, ManyEventsReachTheFileWithoutFlush) {
  EventFile events(folder_);
  for (int step = 0; step < 5000; ++step) events.scalar("loss", step, step);
  EXPECT_GT(read_event_file(events.path()).size(), 1000u);
}

TEST_F(Summaries, DamagedRecordsAreErrors) {
  std::string bytes;
  append_tfrecord(bytes, "first");
  append_tfrecord(bytes, std::string(300, 'x'));
  std::string_view rest = bytes;
  EXPECT_EQ(next_tfrecord(rest, "f"), "first");
  EXPECT_EQ(next_tfrecord(rest, "f")->size(), 300u);
  EXPECT_FALSE(next_tfrecord(rest, "f"));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    rest = damaged;
    EXPECT_THROW(while (next_tfrecord(rest, "f")){}, Error) << "byte " << i;
    if (i == 0 || i == 5 + 16) continue;  // cut between records: a shorter file, not a damaged one
    rest = std::string_view(bytes).substr(0, i);
    EXPECT_THROW(while (next_tfrecord(rest, "f")){}, Error) << "cut at " << i;
  }
}

TEST_F(Summaries, MetricsReadBackExactly) {
  const auto file = folder_ / "deep/metrics.jsonl";
  {
    MetricsLog log(file, 0);
    log.write(
        "train", 3,
        {{"loss", 0.1}, {"accuracy", 1.0 / 3.0}, {"bad", std::nan("")}, {"worse", -HUGE_VAL}});
    log.write("", 4, {});
    EXPECT_GT(log.bytes(), 0);
  }
  const auto lines = Json::read_lines(file);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"].as_int(), 3);
  EXPECT_EQ(lines[0]["run"].as_string(), "train");
  EXPECT_EQ(lines[0]["loss"].as_double(), 0.1);
  EXPECT_EQ(lines[0]["accuracy"].as_double(), 1.0 / 3.0);
  EXPECT_TRUE(std::isnan(lines[0]["bad"].as_double()));
  EXPECT_EQ(lines[0]["worse"].as_double(), -HUGE_VAL);
  EXPECT_FALSE(lines[1].has("run"));
}

TEST_F(Summaries, AResumedRunWritesEveryLineOnce) {
  const auto file = folder_ / "metrics.jsonl";
  const auto write = [&](int64_t from, int64_t to, int64_t keep) {
    MetricsLog log(file, keep);
    for (int64_t step = from; step < to; ++step)
      log.write("train", step, {{"loss", 1.0 / static_cast<double>(step + 1)}});
    log.flush();
    return log.bytes();
  };
  write(0, 40, 0);
  const std::string want = read_file(file);
  // Killed after step 29, in the middle of a line; the checkpoint was made after step 19.
  const int64_t at_checkpoint = write(0, 20, 0);
  write(20, 30, at_checkpoint);
  append(file, "{\"step\": 30, \"lo");
  EXPECT_EQ(MetricsLog::bytes_before_step(file, 20), at_checkpoint);
  write(20, 40, at_checkpoint);
  EXPECT_EQ(read_file(file), want);
  // The length kept may be wrong (another file): no line is ever cut in two or joined.
  write(40, 41, 1 << 20);
  write(41, 42, static_cast<int64_t>(want.size()) - 3);
  for (const Json& line : Json::read_lines(file)) EXPECT_TRUE(line.has("loss"));
  EXPECT_EQ(Json::read_lines(file).size(), 40u);
  EXPECT_EQ(MetricsLog::bytes_before_step(file, 0), 0);
  EXPECT_EQ(MetricsLog::bytes_before_step(folder_ / "none", 5), 0);
}

TEST_F(Summaries, AFolderInTheWayIsADiskError) {
  std::filesystem::create_directories(folder_ / "metrics.jsonl");
  try {
    MetricsLog log(folder_ / "metrics.jsonl", 0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDisk);
    EXPECT_NE(std::string(e.what()).find("metrics.jsonl"), std::string::npos);
  }
}

}  // namespace
}  // namespace quintet
