#pragma once
// metrics.jsonl: one JSON object a line, {"step": 100, "loss": 2.5, ...}, for scripts and for
// comparing runs byte for byte. A run that resumes cuts off what the run before wrote beyond its
// checkpoint.
//
//   MetricsLog log(model_dir / "metrics.jsonl", MetricsLog::bytes_before_step(path, first_step));
//   log.write(step, {{"train/loss", 2.5}});
//   log.flush();

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace quintet {

class MetricsLog {
 public:
  /// Opens or creates the file and cuts it to `keep_bytes`, or to its length if that is shorter,
  /// and then to its last whole line. Throws kDisk.
  MetricsLog(std::filesystem::path file, int64_t keep_bytes);
  ~MetricsLog();  // closes; an error there is lost
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// Appends a line: "step", then "run" if it is not empty, then the numbers in the order of their
  /// names. Numbers are written so that they read back equal; NaN and infinities as the strings
  /// "NaN", "Infinity", "-Infinity".
  void write(std::string_view run, int64_t step, const std::map<std::string, double>& scalars);
  /// Hands everything to the system. Throws kDisk.
  void flush();
  /// Flushes and closes; some file systems report an error only then. Nothing is written
  /// afterwards.
  void close();
  /// Length of the file, with what is not flushed yet.
  int64_t bytes() const { return written_ + static_cast<int64_t>(pending_.size()); }

  /// Length of the lines before the first one of a step >= `step` (or that is not valid), so that a
  /// run resumed at that step writes each line once. 0 if there is no file.
  static int64_t bytes_before_step(const std::filesystem::path& file, int64_t step);

  /// The finite values of "<run>/<name>" by step, the last of a step, of whole lines: the file may be growing.
  /// Empty if there is no file.
  static std::map<int64_t, double> values(const std::filesystem::path& file,
                                          std::string_view metric);
  /// "<run>/<name>" of everything in it.
  static std::set<std::string> metrics(const std::filesystem::path& file);
  /// By run, the finite numbers of its last line, "step" among them.
  static std::map<std::string, std::map<std::string, double>> last_lines(
      const std::filesystem::path& file);

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
  std::string pending_;
  int64_t written_ = 0;
};

}  // namespace quintet
