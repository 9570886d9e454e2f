#pragma once
// seqio.experimental.FewshotDataSource: examples of a split, each with examples of the training split
// to learn from.
//
//   {question: ..} -> {train/inputs: ["1 + 1", "2 + 2"], train/targets: ["2", "4"],
//                      eval/inputs: "3 + 3", eval/targets: "6"}

#include "data/examples/data_source.h"
#include "data/examples/preprocessor.h"

namespace quintet::data {

class FewshotDataSource final : public DataSource {
 public:
  struct Options {
    DataSourcePtr original_source;
    int64_t num_shots = 0;  // 0: no train/ features
    /// They may drop training examples, but make one example of one otherwise.
    std::vector<PreprocessorPtr> train_preprocessors = {}, eval_preprocessors = {};
    std::string train_split = "train";
    std::vector<std::string> train_feature_keys = {"inputs", "targets"};
    bool eval_on_fixed_exemplars = false;  // in other splits than train_split
  };
  /// Throws a usage error for fewer than 0 shots.
  explicit FewshotDataSource(Options options);
  std::vector<std::string> splits() const override { return options_.original_source->splits(); }
  /// Training examples are in a random order that no seed changes, so that evaluations compare.
  std::shared_ptr<const Reader> open(const std::string& split) const override;

 private:
  Options options_;
};

/// fewshot_preprocessor: one text of the shots and the example, whose targets are to follow.
struct FewshotPreprocessor final : Preprocessor {
  std::string inputs_prefix, targets_prefix, example_separator = "\n\n", prompt;
  bool reverse = false;  // the shots
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
