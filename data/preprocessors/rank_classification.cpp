#include "data/preprocessors/rank_classification.h"

#include <algorithm>

#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// The choices of one example as one example with lists.
Example gather(const Example& in, std::vector<Example> choices) {
  Example all;
  NdArray<int32_t> idx{{static_cast<int64_t>(choices.size()), 2}, {}};
  std::vector<std::string> inputs, targets;
  Tokens is_correct;
  std::vector<double> weights;
  for (const Example& choice : choices) {
    const Tokens& place = choice.tokens("idx");
    idx.values.insert(idx.values.end(), place.begin(), place.end());
    inputs.push_back(choice.text("inputs"));
    targets.push_back(choice.text("targets"));
    is_correct.push_back(static_cast<int32_t>(choice.integer("is_correct")));
    if (const Value* weight = choice.find("weight")) weights.push_back(std::get<double>(*weight));
  }
  all.set("idx", std::move(idx));
  all.set("inputs", std::move(inputs));
  all.set("targets", std::move(targets));
  all.set("is_correct", std::move(is_correct));
  if (!weights.empty()) all.set("weight", std::move(weights));
  for (const auto& [name, value] : choices.front().items())
    if (!all.has(name)) all.set(name, in.at(name));
  return all;
}

}  // namespace

StreamPtr RankClassification::apply(StreamPtr input, const PreprocessContext&) const {
  QT_CHECK(inputs_fn && targets_fn && is_correct_fn,
           "rank_classification: inputs_fn, targets_fn and is_correct_fn are required");
  return flat_map_stream(std::move(input), [*this](Example&& in, std::vector<Example>& out) {
    const auto inputs = inputs_fn(in), targets = targets_fn(in);
    const auto is_correct = is_correct_fn(in);
    QT_CHECK_AS(
        ExitCode::kData,
        inputs.size() == targets.size() && inputs.size() == is_correct.size() && !inputs.empty(),
        "rank_classification: {} inputs, {} targets and {} marks; expected equally many",
        inputs.size(), targets.size(), is_correct.size());
    std::vector<Example> choices(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      Example& choice = choices[i];
      choice.set("idx", Tokens{static_cast<int32_t>(in.index), static_cast<int32_t>(i)});
      choice.set("inputs", inputs[i]);
      choice.set("targets", targets[i]);
      choice.set("is_correct", int64_t{is_correct[i]});
      if (weight_fn) choice.set("weight", weight_fn(in));
      for (const std::string& name : passthrough_feature_keys) {
        QT_CHECK(!choice.has(name),
                 "rank_classification: passthrough_feature_keys: '{}' is made here; rename it",
                 name);
        choice.set(name, in.at(name));
      }
    }
    if (mode == RankMode::fewshot_eval) {
      out.push_back(gather(in, std::move(choices)));
      return;
    }
    for (size_t i = 0; i < choices.size(); ++i)
      if (mode == RankMode::eval || is_correct[i]) out.push_back(std::move(choices[i]));
  });
}

RankClassification::Texts texts_of(std::string key) {
  return [key = std::move(key)](const Example& example) {
    const auto* text = std::get_if<std::string>(&example.at(key));
    return text != nullptr ? std::vector{*text} : example.texts(key);
  };
}

std::function<std::vector<bool>(const Example&)> one_hot_of(std::string key, int64_t classes) {
  QT_CHECK(classes > 0, "one_hot: num_classes is {}, expected at least 1", classes);
  return [key = std::move(key), classes](const Example& example) {
    std::vector<bool> correct(static_cast<size_t>(classes));
    const auto* labels = std::get_if<Tokens>(&example.at(key));
    // A label outside of the choices marks none.
    const auto mark = [&](int64_t label) {
      if (label >= 0 && label < classes) correct[static_cast<size_t>(label)] = true;
    };
    if (labels == nullptr)
      mark(example.integer(key));
    else
      std::for_each(labels->begin(), labels->end(), mark);
    return correct;
  };
}

std::function<double(const Example&)> number_of(std::string key) {
  return [key = std::move(key)](const Example& example) {
    const auto* number = std::get_if<double>(&example.at(key));
    return number != nullptr ? *number : static_cast<double>(example.integer(key));
  };
}

StreamPtr RankClassificationFormatter::apply(StreamPtr input,
                                             const PreprocessContext& context) const {
  const size_t classes = std::max(inputs_formats.size(), targets_formats.size());
  for (size_t size : {inputs_formats.size(), targets_formats.size()})
    QT_CHECK(size == classes || size == 1,
             "rank_classification_formatter: {} inputs_formats and {} targets_formats; expected "
             "equally many, or one for all",
             inputs_formats.size(), targets_formats.size());
  const auto filled = [classes](const std::vector<std::string>& formats) {
    return [formats, classes](const Example& example) {
      std::vector<std::string> texts;
      for (size_t i = 0; i < classes; ++i)
        texts.push_back(fill_template(formats[formats.size() == 1 ? 0 : i],
                                      [&](std::string_view name, std::string& found) {
                                        found = example.text(name);
                                        return true;
                                      }));
      return texts;
    };
  };
  RankClassification rank;
  rank.mode = mode;
  rank.inputs_fn = filled(inputs_formats);
  rank.targets_fn = filled(targets_formats);
  rank.is_correct_fn = one_hot_of(label_key, static_cast<int64_t>(classes));
  if (weight_key) rank.weight_fn = number_of(*weight_key);
  return rank.apply(std::move(input), context);
}

}  // namespace quintet::data
