#include <algorithm>

#include "data/metrics/t5_metrics.h"
#include "data/metrics/text.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

using Tokens = std::vector<std::string_view>;

/// Drops the words a, an and the; single spaces between the rest.
std::string without_articles(std::u32string_view text) {
  std::u32string kept;
  for (size_t i = 0; i < text.size();) {
    if (!is_word(text[i])) {
      kept += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::u32string_view word = text.substr(i, end - i);
    kept += word == U"a" || word == U"an" || word == U"the" ? U" " : word;
    i = end;
  }
  const std::string bytes = utf8(kept);
  return fmt::format("{}", fmt::join(split(bytes), " "));
}

std::string normalize(std::string_view answer, std::u32string_view more_punctuation,
                      std::u32string_view replacement) {
  std::u32string kept;
  for (const char32_t c : code_points(lower(answer)))
    if (is_ascii_punctuation(c) || more_punctuation.find(c) != std::u32string_view::npos)
      kept += replacement;
    else
      kept += c;
  return without_articles(kept);
}

/// F1 of two bags of words, 0 where nothing is common.
double token_f1(Tokens target, Tokens prediction) {
  std::sort(target.begin(), target.end());
  std::sort(prediction.begin(), prediction.end());
  Tokens common;
  std::set_intersection(target.begin(), target.end(), prediction.begin(), prediction.end(),
                        std::back_inserter(common));
  if (common.empty()) return 0;
  const auto same = static_cast<double>(common.size());
  const double precision = same / static_cast<double>(prediction.size());
  const double recall = same / static_cast<double>(target.size());
  return 2 * precision * recall / (precision + recall);
}

/// em and f1, 0 to 100, of texts that are normalised.
MetricValues qa_metrics(const std::string& name, const Answers& targets, const Answers& predictions,
                        std::string (*normal)(std::string_view)) {
  check_counts(name, targets.size(), predictions.size());
  const auto wanted = text_lists(targets, name, "target");
  const auto found = texts(predictions, name, "prediction");
  double em = 0, f1 = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string prediction = normal(found[i]);
    const Tokens prediction_tokens = split(prediction);
    double best_f1 = 0;
    bool matches = false;
    for (std::string_view text : wanted[i]) {
      const std::string target = normal(text);
      matches |= target == prediction;
      best_f1 = std::max(best_f1, token_f1(split(target), prediction_tokens));
    }
    em += matches;
    f1 += best_f1;
  }
  const double scale = 100.0 / static_cast<double>(found.size());
  return {{"em", em * scale}, {"f1", f1 * scale}};
}

/// Runs of word characters.
std::vector<std::u32string_view> words_of(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > i) words.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return words;
}

/// The words of context that "start: 2 end: 3" means; nothing where it is not of that form, as
/// models write early in training.
std::string span_text(std::string_view context, std::string_view prediction) {
  const std::u32string span = code_points(prediction), points = code_points(context);
  const auto parts = words_of(span);
  if (parts.size() < 4) return "";
  const auto first = parse_index(parts[1]), last = parse_index(parts[3]);
  if (!first || !last) return "";
  const auto words = words_of(points);
  std::string text;
  for (int64_t i = *first; i <= *last && i < static_cast<int64_t>(words.size()); ++i)
    text += (text.empty() ? "" : " ") + utf8(words[static_cast<size_t>(i)]);
  return text;
}

MetricValues compute_span_squad(const Answers& targets, const Answers& predictions) {
  check_counts("span_squad", targets.size(), predictions.size());
  const Answers contexts = fields(targets, "context", "span_squad", "target");
  const auto context_texts = texts(contexts, "span_squad", "target");
  const auto spans = texts(predictions, "span_squad", "prediction");
  Answers found;
  for (size_t i = 0; i < spans.size(); ++i) found.push_back(span_text(context_texts[i], spans[i]));
  return qa_metrics("span_squad", fields(targets, "answers", "span_squad", "target"), found,
                    normalize_squad);
}

MetricValues compute_coqa_f1(const Answers& targets, const Answers& predictions) {
  check_counts("coqa_f1", targets.size(), predictions.size());
  const auto wanted = text_lists(targets, "coqa_f1", "target");
  const auto found = texts(predictions, "coqa_f1", "prediction");
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string prediction = normalize_squad(found[i]);
    double best = 0;
    for (std::string_view text : wanted[i]) {
      const std::string target = normalize_squad(text);
      // Two empty answers agree here, which squad's f1 counts as 0.
      best = std::max(best, target.empty() && prediction.empty()
                                ? 1.0
                                : token_f1(split(target), split(prediction)));
    }
    sum += best;
  }
  return {{"f1", 100 * sum / static_cast<double>(found.size())}};
}

}  // namespace

std::string normalize_squad(std::string_view answer) { return normalize(answer, U"", U""); }
std::string normalize_trivia_qa(std::string_view answer) {
  return normalize(answer, U"\u2018\u2019\u00B4", U" ");
}

ShardedSquad ShardedSquad::of(const Answers& targets, const Answers& predictions) {
  const MetricValues metrics = qa_metrics("ShardedSquad", targets, predictions, normalize_squad);
  return {metrics.at("em"), metrics.at("f1"), static_cast<int64_t>(targets.size())};
}

ShardedSquad ShardedSquad::merge(const ShardedSquad& other) const {
  const int64_t sum = count + other.count;
  if (sum == 0) return {};
  const auto mean = [&](double a, double b) {
    return (a * static_cast<double>(count) + b * static_cast<double>(other.count)) /
           static_cast<double>(sum);
  };
  return {mean(em, other.em), mean(f1, other.f1), sum};
}

MetricFn squad() {
  return {"squad", [](const Answers& targets, const Answers& predictions) {
            return qa_metrics("squad", targets, predictions, normalize_squad);
          }};
}

MetricFn trivia_qa() {
  return {"trivia_qa", [](const Answers& targets, const Answers& predictions) {
            return qa_metrics("trivia_qa", targets, predictions, normalize_trivia_qa);
          }};
}

MetricFn sharded_squad() {
  return {"ShardedSquad", [](const Answers& targets, const Answers& predictions) {
            return ShardedSquad::of(targets, predictions).compute();
          }};
}

MetricFn span_squad() { return {"span_squad", compute_span_squad}; }
MetricFn coqa_f1() { return {"coqa_f1", compute_coqa_f1}; }

}  // namespace quintet::data::metrics
