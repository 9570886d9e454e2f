#pragma once
// seqio.JSONLogger: the metrics of each step and, for each example, what went in and came out.
//
//   JsonLogger(model_dir / "inference_eval").write(1000, outputs);
//
//   <task>-metrics.jsonl        {"step": 1000, "bleu": 27.3}, one line a step
//   <task>-001000.jsonl         {"input": {...}, "target": .., "output": .., "prediction": ..}, one
//                               line an example; "score" and "aux_<name>" where metrics wanted them
//
// Arrays of more than 32 numbers are summarised, bytes that are no text are base64, numbers that
// JSON has no word for are "NaN", "Infinity" and "-Infinity".

#include <filesystem>

#include "data/evaluation/evaluator.h"

namespace quintet::data {

class JsonLogger {
 public:
  /// `write_n_results`: the first so many examples of a task; none: all; 0: no file for them.
  explicit JsonLogger(std::filesystem::path log_dir, std::optional<int64_t> write_n_results = {})
      : log_dir_(std::move(log_dir)), write_n_results_(write_n_results) {}
  /// Records of this step and later ones, which a run that was stopped left, are replaced. Throws
  /// kDisk, kData if a file that is there is not of this form.
  void write(int64_t step, const TaskOutputs& outputs) const;

 private:
  std::filesystem::path log_dir_;
  std::optional<int64_t> write_n_results_;
};

}  // namespace quintet::data
