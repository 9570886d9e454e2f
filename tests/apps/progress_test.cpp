#include "apps/process/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace quintet {
namespace {

double g_now = 0;

/// What is written between construction and text().
class Capture {
 public:
  Capture() : file_(open_memstream(&buffer_, &size_)) {}
  ~Capture() {
    std::fclose(file_);
    std::free(buffer_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {buffer_, size_};
  }

 private:
  char* buffer_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

Progress::Options options(Capture& capture, bool terminal) {
  g_now = 0;
  Progress::Options options;
  options.terminal = terminal;
  options.out = capture.file();
  options.clock = [] { return g_now; };
  return options;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Progress, DrawsABarAtMostTenTimesASecond) {
  Capture capture;
  Progress progress("train", 0, 1000, options(capture, true));
  for (int step = 1; step <= 1000; ++step) {
    g_now += 0.001;  // a second in all
    progress.update(step, "loss 1.0");
  }
  progress.finish();
  EXPECT_LE(count(capture.text(), "\r"), 12u);
  EXPECT_GE(count(capture.text(), "\r"), 9u);
  EXPECT_NE(capture.text().find("1000/1000"), std::string::npos);
}

TEST(Progress, TheBarFitsBesideWordsInEightyColumns) {
  Capture capture;
  Progress progress("train", 0, 1200, options(capture, true));
  g_now = 5;
  progress.update(600, "loss 0.1234  accuracy 0.987");
  const std::string text = capture.text(), drawn = text.substr(1, text.find("\x1b[K") - 1);
  EXPECT_LE(drawn.size(), 79u) << drawn;
  EXPECT_NE(drawn.find("#."), std::string::npos) << drawn;  // half of it is full
  EXPECT_NE(drawn.find("accuracy 0.987"), std::string::npos) << drawn;
}

TEST(Progress, WritesPlainLinesToALog) {
  Capture capture;
  Progress progress("train", 0, 100, options(capture, false));
  for (int step = 1; step <= 100; ++step) {
    g_now += 1;
    progress.update(step);
  }
  progress.finish();
  const std::string text = capture.text();
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(count(text, "\n"), 11u) << text;  // one every ten seconds, and the last
}

TEST(Progress, TellsRateAndTimeLeftFromTheStepsOfThisRun) {
  Capture capture;
  Progress progress("train", 500, 1000, options(capture, false));  // resumed at 500
  g_now = 50;
  progress.update(600);
  EXPECT_NE(capture.text().find("train 600/1000  2.0/s  ETA 3m20s"), std::string::npos)
      << capture.text();
}

TEST(Progress, LinesStandAboveTheBar) {
  Capture capture;
  Progress progress("train", 0, 10, options(capture, true));
  progress.update(1);
  progress.line("evaluated");
  progress.finish();
  EXPECT_NE(capture.text().find("\r\x1b[Kevaluated\n\r"), std::string::npos) << capture.text();
}

TEST(Progress, DurationsReadShort) {
  EXPECT_EQ(Progress::duration(12.4), "12s");
  EXPECT_EQ(Progress::duration(185), "3m05s");
  EXPECT_EQ(Progress::duration(3720), "1h02m");
}

TEST(Progress, CountsInAUnit) {
  Capture capture;
  Progress::Options in_megabytes = options(capture, false);
  in_megabytes.unit = "MB";
  Progress progress("convert", 0, 3000, in_megabytes);
  g_now = 20;
  progress.update(10);
  EXPECT_EQ(capture.text(), "convert 10/3000 MB  0.5 MB/s  ETA 1h39m\n");
}

}  // namespace
}  // namespace quintet
