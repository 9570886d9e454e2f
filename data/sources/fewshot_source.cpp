#include "data/sources/fewshot_source.h"

#include <algorithm>

#include "data/examples/random.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

std::vector<Example> preprocessed(Example example, const std::vector<PreprocessorPtr>& steps) {
  std::vector<Example> one;
  one.push_back(std::move(example));
  StreamPtr stream = stream_of(std::move(one));
  for (const PreprocessorPtr& step : steps) stream = step->apply(std::move(stream), {});
  return collect(*stream);
}

/// Appends a text or a number to the list of them.
void append(const Example& shot, const std::string& name, std::optional<Value>& list) {
  const Value& value = shot.at(name);
  const auto add = [&]<typename T>(const T& item) {
    if (!list) list = std::vector<T>{};
    auto* items = std::get_if<std::vector<T>>(&*list);
    QT_CHECK_AS(ExitCode::kData, items != nullptr,
                "feature '{}' of train_feature_keys has another type than in other examples", name);
    items->push_back(item);
  };
  if (const auto* text = std::get_if<std::string>(&value)) return add(*text);
  if (const auto* number = std::get_if<double>(&value)) return add(*number);
  if (const auto* number = std::get_if<int64_t>(&value)) return add(static_cast<int32_t>(*number));
  fail(ExitCode::kData, "{}: feature '{}' of train_feature_keys is {}; expected a text or a number",
       shot.where(), name, to_string(value));
}

class FewshotReader final : public Reader {
 public:
  FewshotReader(std::shared_ptr<const Reader> eval, std::shared_ptr<const Reader> train,
                const FewshotDataSource::Options& options, bool fixed)
      : eval_(std::move(eval)), train_(std::move(train)), options_(options), fixed_(fixed) {
    on_bad_example = eval_->on_bad_example;
  }
  std::optional<int64_t> size() const override { return eval_->size(); }
  void read(int64_t i, Example& out) const override {
    eval_->read(i, out);
    const auto made = preprocessed(std::move(out), options_.eval_preprocessors);
    QT_CHECK_AS(ExitCode::kData, made.size() == 1,
                "{}: FewshotDataSource: eval_preprocessors make {} examples of one, expected 1",
                where(i), made.size());
    out.clear();
    out.key = made[0].key;
    out.provenance = this;
    out.index = i;
    if (options_.num_shots > 0) add_shots(fixed_ ? 0 : i * options_.num_shots, out);
    for (const auto& [name, value] : made[0].items()) out.set("eval/" + name, value);
  }
  std::string where(int64_t i) const override { return eval_->where(i); }
  std::vector<std::string> files() const override {
    auto all = eval_->files();
    for (const std::string& file : train_ ? train_->files() : std::vector<std::string>{})
      if (std::find(all.begin(), all.end(), file) == all.end()) all.push_back(file);
    return all;
  }

 private:
  /// Training example `place` of the endless row of permutations.
  Example train_example(int64_t place) const {
    const auto size = train_->size();
    const Key key = key_from_seed(0);
    int64_t index = place;
    if (size) {
      const Key pass = split_at(key, static_cast<uint64_t>(place / *size));
      index = Permutation(pass, *size)(place % *size);
    }
    Example shot;
    shot.key = split_at(key, static_cast<uint64_t>(place));
    shot.provenance = train_.get();
    shot.index = index;
    train_->read(index, shot);
    return shot;
  }

  void add_shots(int64_t place, Example& out) const {
    constexpr int64_t kMostDropped = 1'000'000;
    std::vector<std::optional<Value>> lists(options_.train_feature_keys.size());
    int64_t dropped = 0;
    for (int64_t shots = 0; shots < options_.num_shots; ++place) {
      const auto made = preprocessed(train_example(place), options_.train_preprocessors);
      QT_CHECK_AS(ExitCode::kData, made.size() <= 1,
                  "{}: FewshotDataSource: train_preprocessors make {} examples of one, expected 1",
                  made[0].where(), made.size());
      dropped += made.empty();
      QT_CHECK_AS(ExitCode::kData,
                  dropped < std::min(kMostDropped, train_->size().value_or(kMostDropped)),
                  "FewshotDataSource: train_preprocessors drop all examples of split '{}'",
                  options_.train_split);
      if (made.empty()) continue;
      for (size_t k = 0; k < lists.size(); ++k)
        append(made[0], options_.train_feature_keys[k], lists[k]);
      ++shots;
    }
    for (size_t k = 0; k < lists.size(); ++k)
      out.set("train/" + options_.train_feature_keys[k], std::move(*lists[k]));
  }

  std::shared_ptr<const Reader> eval_, train_;
  FewshotDataSource::Options options_;
  bool fixed_;
};

/// Row i of a feature.
Value element(const Value& value, size_t i, const std::string& name) {
  const auto of = [&](const auto& items) -> Value {
    QT_CHECK_AS(ExitCode::kData, i < items.size(), "feature '{}' has {} values, fewer than inputs",
                name, items.size());
    return items[i];
  };
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) return of(*texts);
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) return of(*numbers);
  if (const auto* ids = std::get_if<Tokens>(&value)) {
    QT_CHECK_AS(ExitCode::kData, i < ids->size(), "feature '{}' has {} values, fewer than inputs",
                name, ids->size());
    return int64_t{(*ids)[i]};
  }
  const auto* rows = std::get_if<NdArray<int32_t>>(&value);
  QT_CHECK_AS(ExitCode::kData,
              rows != nullptr && rows->shape.size() == 2 && i < static_cast<size_t>(rows->shape[0]),
              "fewshot_preprocessor: feature '{}' is {}; inputs are a list, so it must be one",
              name, to_string(value));
  const auto width = static_cast<std::ptrdiff_t>(rows->shape[1]);
  const auto begin = rows->values.begin() + static_cast<std::ptrdiff_t>(i) * width;
  return Tokens(begin, begin + width);
}

std::string_view without_space_at_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\n\r\f\v") + 1);
}

}  // namespace

FewshotDataSource::FewshotDataSource(Options options) : options_(std::move(options)) {
  QT_CHECK(options_.original_source != nullptr, "FewshotDataSource: original_source is required");
  QT_CHECK(options_.num_shots >= 0, "FewshotDataSource: num_shots is {}, expected 0 or more",
           options_.num_shots);
}

std::shared_ptr<const Reader> FewshotDataSource::open(const std::string& split) const {
  const auto known = splits();
  QT_CHECK(std::find(known.begin(), known.end(), options_.train_split) != known.end(),
           "FewshotDataSource: train_split '{}' is not one of the source's splits, {}",
           options_.train_split, fmt::join(known, ", "));
  auto eval = options_.original_source->open(split);
  auto train =
      options_.num_shots == 0 ? nullptr : options_.original_source->open(options_.train_split);
  const bool fixed = options_.eval_on_fixed_exemplars && split != options_.train_split;
  return std::make_shared<FewshotReader>(std::move(eval), std::move(train), options_, fixed);
}

StreamPtr FewshotPreprocessor::apply(StreamPtr input, const PreprocessContext&) const {
  return flat_map_stream(std::move(input), [*this](Example&& in, std::vector<Example>& out) {
    std::vector<std::string> shots;
    if (in.has("train/inputs")) {
      const auto &inputs = in.texts("train/inputs"), &targets = in.texts("train/targets");
      for (size_t i = 0; i < inputs.size(); ++i)
        shots.push_back(inputs_prefix + inputs[i] + targets_prefix + targets.at(i) +
                        example_separator);
    }
    if (reverse) {
      std::reverse(shots.begin(), shots.end());
    }
    std::string before = prompt.empty() ? "" : prompt + example_separator;
    for (const std::string& shot : shots) before += shot;
    before += inputs_prefix;
    const std::string after(without_space_at_end(targets_prefix));
    const bool is_list = std::holds_alternative<std::vector<std::string>>(in.at("eval/inputs"));
    const size_t count = is_list ? in.texts("eval/inputs").size() : 1;
    for (size_t i = 0; i < count; ++i) {
      Example made;
      for (const auto& [name, value] : in.items())
        if (name.starts_with("eval/"))
          made.set(name.substr(5), is_list ? element(value, i, name) : value);
      made.set("inputs", before + made.text("inputs") + after);
      out.push_back(std::move(made));
    }
  });
}

}  // namespace quintet::data
