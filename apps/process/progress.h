#pragma once
// How a long job shows that it lives: a bar on a terminal, redrawn at most ten times a second, and
// plain lines in a log, one every ten seconds. Always on stderr.
//
//   Progress progress("train", first_step, total_steps, {.terminal = isatty(2)});
//   progress.update(step, "loss 0.412");
//   progress.line("step 500: evaluation loss 0.31");    // a line of its own, above the bar

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace quintet {

class Progress {
 public:
  struct Options {
    bool terminal = false;        // draw a bar
    std::FILE* out = stderr;      // not owned
    double seconds = -1;          // between drawings; below 0: 0.1 for a bar, 10 for lines
    double (*clock)() = nullptr;  // seconds that never go back; null: the steady clock
    std::string unit = {};        // of what is counted: "MB"; none: steps, lines
  };
  /// For the terminal of stderr, as the environment says (QUINTET_PROGRESS=bar, lines or none).
  static Options from_environment();

  /// total 0: not known, and no bar.
  Progress(std::string label, int64_t first, int64_t total, Options options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What the total turns out to be.
  void expect(int64_t total) { total_ = total; }
  /// `done` of `total` are done. Cheap when nothing is drawn: `detail` is made by the caller, so ask due().
  void update(int64_t done, const std::string& detail = "");
  bool due() const;
  void line(const std::string& text);
  /// Draws the last state and ends the bar.
  void finish();
  /// "1h02m", "3m05s", "12s".
  static std::string duration(double seconds);

 private:
  void draw();
  std::string text() const;

  std::string label_, detail_;
  int64_t first_, done_, total_;
  Options options_;
  double started_, drawn_at_ = -1;
  bool bar_shown_ = false, finished_ = false, stale_ = false;
};

/// A bar for each part of a job, one after the other, as the environment says.
class PartsProgress {
 public:
  /// `done` of `total` units ("examples") of a part; one that was not named before begins.
  void update(const std::string& part, int64_t done, int64_t total, const std::string& unit);
  void line(const std::string& text);
  /// Ends the bar of the last part.
  void finish();

 private:
  std::string part_;
  std::optional<Progress> bar_;
};

}  // namespace quintet
