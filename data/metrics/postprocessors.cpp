#include "data/metrics/postprocessors.h"

#include <algorithm>
#include <set>

#include "data/examples/dataset.h"
#include "data/metrics/text.h"

namespace quintet::data::postprocessors {
namespace {

struct ToAnswer {
  Answer operator()(const std::string& text) const { return text; }
  Answer operator()(int64_t number) const { return number; }
  Answer operator()(double number) const { return number; }
  template <typename T>
  Answer operator()(const std::vector<T>& values) const {
    return Answers(values.begin(), values.end());
  }
  template <typename NdArray>
  Answer operator()(const NdArray& array) const {
    return (*this)(array.values);
  }
};

Answer feature(const Example& example, std::string_view name) {
  return std::visit(ToAnswer(), example.at(name));
}

PostprocessFn of_prediction(std::function<Answer(const std::string&)> f) {
  return
      [f = std::move(f)](const Answer& decoded, const Example&, bool) { return f(decoded.text()); };
}

int64_t class_id(const std::string& label, const std::vector<std::string>& classes,
                 int64_t otherwise) {
  const auto found = std::find(classes.begin(), classes.end(), label);
  return found == classes.end() ? otherwise : found - classes.begin();
}

using Words = std::set<std::string, std::less<>>;

/// Words in lower case without determiners, split at single spaces.
std::vector<std::string> referent_words(std::string_view text) {
  static const Words determiners = {"a",     "an",    "few",  "her",   "his",   "each",  "every",
                                    "many",  "much",  "my",   "our",   "some",  "that",  "the",
                                    "their", "these", "this", "those", "which", "whose", "your"};
  const std::u32string points = metrics::code_points(text);
  const std::string clean = metrics::lower(metrics::utf8(metrics::strip(points)));
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= clean.size();) {
    const size_t end = std::min(clean.find(' ', begin), clean.size());
    std::string word = clean.substr(begin, end - begin);
    if (!determiners.contains(word)) words.push_back(std::move(word));
    begin = end + 1;
  }
  return words;
}

int64_t names_referent(const std::string& prediction, const std::string& referent) {
  const auto predicted = referent_words(prediction), wanted = referent_words(referent);
  // An empty prediction must not count as "not this one" and so be right by accident.
  if (predicted.empty() || (predicted.size() == 1 && predicted[0].empty())) return -1;
  const auto has_apostrophe = [](const std::vector<std::string>& words) {
    return std::any_of(words.begin(), words.end(), [](const std::string& word) {
      return word.find('\'') != std::string::npos;
    });
  };
  // "Bob" is not "Bob's hat".
  if (has_apostrophe(predicted) != has_apostrophe(wanted)) return 0;
  const Words a(predicted.begin(), predicted.end());
  Words b(wanted.begin(), wanted.end());
  if (b.empty()) b.insert("");  // as "".split(" ")
  return std::includes(a.begin(), a.end(), b.begin(), b.end()) ||
         std::includes(b.begin(), b.end(), a.begin(), a.end());
}

}  // namespace

PostprocessFn string_to_float(double default_value) {
  return of_prediction([=](const std::string& text) -> Answer {
    return metrics::parse_float(text).value_or(default_value);
  });
}

PostprocessFn lower_text() {
  return of_prediction([](const std::string& text) -> Answer { return metrics::lower(text); });
}

PostprocessFn string_label_to_class_id(std::vector<std::string> label_classes,
                                       int64_t default_value) {
  return of_prediction([=](const std::string& text) -> Answer {
    return class_id(text, label_classes, default_value);
  });
}

PostprocessFn multirc() {
  return [](const Answer& decoded, const Example& example, bool is_target) -> Answer {
    Fields fields = {{"value", class_id(decoded.text(), {"False", "True"}, -1)}};
    if (is_target) fields["group"] = feature(example, "idx/question");
    return fields;
  };
}

PostprocessFn record() {
  return [](const Answer& decoded, const Example& example, bool is_target) -> Answer {
    if (!is_target) return Fields{{"value", decoded}};
    return Fields{
        {"value", feature(example, "answers")},
        {"group", Answers{feature(example, "idx/passage"), feature(example, "idx/query")}}};
  };
}

PostprocessFn qa() {
  return [](const Answer& decoded, const Example& example, bool is_target) -> Answer {
    return is_target ? feature(example, "answers") : decoded;
  };
}

PostprocessFn span_qa() {
  return [](const Answer& decoded, const Example& example, bool is_target) -> Answer {
    if (!is_target) return decoded;
    return Fields{{"answers", feature(example, "answers")},
                  {"context", feature(example, "context")}};
  };
}

PostprocessFn wsc_simple() {
  return [](const Answer& decoded, const Example& example, bool is_target) -> Answer {
    if (is_target) return feature(example, "label");
    return names_referent(decoded.text(), example.text("targets_pretokenized"));
  };
}

PostprocessFn rank_classification(std::vector<std::string> passthrough_feature_keys) {
  return [=](const Answer& score, const Example& example, bool is_target) -> Answer {
    if (!is_target) return score;
    const Answer weight = example.has("weight") ? feature(example, "weight") : Answer(1.0);
    Answers parts = {feature(example, "idx"), feature(example, "is_correct"), weight,
                     static_cast<int64_t>(example.tokens("targets").size())};
    for (const std::string& key : passthrough_feature_keys) parts.push_back(feature(example, key));
    return parts;
  };
}

PostprocessFn chain(std::vector<PostprocessFn> postprocessors) {
  return [=](const Answer& decoded, const Example& example, bool is_target) {
    Answer answer = decoded;
    for (const PostprocessFn& postprocess : postprocessors)
      answer = postprocess(answer, example, is_target);
    return answer;
  };
}

}  // namespace quintet::data::postprocessors
