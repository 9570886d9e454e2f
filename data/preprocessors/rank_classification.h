#pragma once
// t5's rank_classification: a model chooses among texts by their likelihood. One example becomes
// one for each choice: {idx: [example, choice], inputs, targets, is_correct}.

#include "data/examples/preprocessor.h"

namespace quintet::data {

/// What becomes of the choices: one example each; the correct ones only; or all in one example with
/// lists.
enum class RankMode { eval, train, fewshot_eval };

struct RankClassification final : Preprocessor {
  using Texts = std::function<std::vector<std::string>(const Example&)>;
  Texts inputs_fn, targets_fn;  // a text for each choice
  std::function<std::vector<bool>(const Example&)> is_correct_fn;
  std::function<double(const Example&)> weight_fn;  // may be empty
  RankMode mode = RankMode::eval;
  std::vector<std::string> passthrough_feature_keys;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// What gin files give as inputs_fn and targets_fn, is_correct_fn and weight_fn: the texts of a feature;
/// a mark for each of `classes` by the number, or list of numbers, in a feature; its number.
RankClassification::Texts texts_of(std::string key);
std::function<std::vector<bool>(const Example&)> one_hot_of(std::string key, int64_t classes);
std::function<double(const Example&)> number_of(std::string key);

/// Choices from templates such as "{premise} so {hypothesis}"; one of the two lists may be a single
/// template for all choices. label_key holds the number of the right choice, or a list of them.
struct RankClassificationFormatter final : Preprocessor {
  std::vector<std::string> inputs_formats, targets_formats;
  RankMode mode = RankMode::eval;
  std::string label_key = "label";
  std::optional<std::string> weight_key = {};
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
