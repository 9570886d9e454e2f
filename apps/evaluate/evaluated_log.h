#pragma once
// Which checkpoints have been evaluated: t5x/eval.py's eval.<task>.ckpt, a path a line by step.
//
//   EvaluatedLog log(output_dir, "number_words");
//   if (!log.has(folder)) { evaluate(folder); log.add(folder); }

#include <filesystem>
#include <string>
#include <vector>

namespace quintet {

class EvaluatedLog {
 public:
  /// Empty output_dir: nothing is kept.
  EvaluatedLog(const std::filesystem::path& output_dir, std::string task);
  bool has(const std::filesystem::path& checkpoint) const;
  /// Writes the log with one more.
  void add(const std::filesystem::path& checkpoint);

 private:
  std::filesystem::path file_;
  std::vector<std::string> done_;
};

}  // namespace quintet
