#include "data/metrics/plain/plain_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "data/metrics/sacrebleu.h"
#include "data/metrics/sklearn.h"
#include "data/metrics/t5_metrics.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

std::string_view stripped(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::optional<double> number_in(std::string_view text) {
  text = stripped(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

/// What is equal but for white space is the same class.
Answers stripped_texts(const Answers& answers, const char* metric, const char* what) {
  Answers out;
  for (const std::string_view text : texts(answers, metric, what))
    out.emplace_back(std::string(stripped(text)));
  return out;
}

MetricValues spearman_of_texts(const Answers& targets, const Answers& predictions) {
  constexpr const char* kName = "spearman";
  check_counts(kName, targets.size(), predictions.size());
  Answers wanted, found;
  double least = 0;
  for (const std::string_view text : texts(targets, kName, "target")) {
    const auto number = number_in(text);
    QT_CHECK_AS(ExitCode::kData, number, "{}: target {}: expected a number, found '{}'", kName,
                wanted.size(), text);
    least = std::min(least, *number);
    wanted.emplace_back(*number);
  }
  for (const std::string_view text : texts(predictions, kName, "prediction"))
    found.emplace_back(number_in(text).value_or(least - 1));
  return spearman_corrcoef()(wanted, found);
}

std::string confusion_table(const std::vector<std::string>& classes, const Answers& targets,
                            const Answers& predictions) {
  constexpr const char* kName = "confusion_matrix";
  check_counts(kName, targets.size(), predictions.size());
  const auto index = [&](std::string_view text) {
    return static_cast<size_t>(std::ranges::find(classes, stripped(text)) - classes.begin());
  };
  std::vector<std::vector<int64_t>> counts(classes.size(),
                                           std::vector<int64_t>(classes.size() + 1));
  const auto wanted = texts(targets, kName, "target");
  const auto found = texts(predictions, kName, "prediction");
  for (size_t i = 0; i < wanted.size(); ++i) {
    const size_t row = index(wanted[i]);
    QT_CHECK_AS(ExitCode::kData, row < classes.size(), "{}: target {}: '{}' is none of the classes",
                kName, i, wanted[i]);
    ++counts[row][index(found[i])];
  }
  std::string table =
      fmt::format("\n| target \\ predicted | {} | other |\n|{}", fmt::join(classes, " | "), "---|");
  for (size_t i = 0; i <= classes.size(); ++i) table += "---|";
  for (size_t i = 0; i < classes.size(); ++i)
    table += fmt::format("\n| {} | {} |", classes[i], fmt::join(counts[i], " | "));
  return table;
}

}  // namespace

MetricFn exact_match() {
  return {"exact_match", [](const Answers& targets, const Answers& predictions) -> MetricValues {
            constexpr const char* kName = "exact_match";
            const double value = accuracy()(stripped_texts(targets, kName, "target"),
                                            stripped_texts(predictions, kName, "prediction"))
                                     .at("accuracy");
            return {{kName, value}};
          }};
}

MetricFn word_f1() {
  return {"f1", [](const Answers& targets, const Answers& predictions) -> MetricValues {
            Answers lists;
            for (const Answer& target : targets) lists.emplace_back(Answers{target});
            return {{"f1", squad()(lists, predictions).at("f1")}};
          }};
}

MetricFn chrf() {
  return {"chrf", [](const Answers& targets, const Answers& predictions) -> MetricValues {
            check_counts("chrf", targets.size(), predictions.size());
            return {{"chrf", corpus_chrf(texts(predictions, "chrf", "prediction"),
                                         {texts(targets, "chrf", "target")})}};
          }};
}

MetricFn matthews() {
  return {"matthews_corrcoef",
          [](const Answers& targets, const Answers& predictions) -> MetricValues {
            constexpr const char* kName = "matthews_corrcoef";
            return sklearn_metrics_wrapper(kName, {.factor = 100})(
                stripped_texts(targets, kName, "target"),
                stripped_texts(predictions, kName, "prediction"));
          }};
}

MetricFn spearman() { return {"spearman_corrcoef", spearman_of_texts}; }

MetricFn confusion_matrix(std::vector<std::string> classes) {
  QT_CHECK(!classes.empty(), "confusion_matrix: classes: expected at least one, found none");
  return {"confusion_matrix",
          [classes = std::move(classes)](const Answers& targets,
                                         const Answers& predictions) -> MetricValues {
            return {{"confusion_matrix", Text{confusion_table(classes, targets, predictions)}}};
          }};
}

}  // namespace quintet::data::metrics
