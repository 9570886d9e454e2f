// MetricValues over 100,000 examples take seconds: nothing about them grows with the square of the set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <iostream>

#include "data/examples/random.h"
#include "data/metrics/t5_metrics.h"

namespace quintet::data {
namespace {

constexpr int kExamples = 100'000;
constexpr double kMostSeconds = 30;  // 0.5 to 2 each on one core of an Emerald Rapids Xeon

/// Sentences of 5 to 24 words of a vocabulary of 5,000, some not ASCII.
std::string sentence(Random& random) {
  std::string text;
  for (int64_t words = 5 + random.below(20); words > 0; --words)
    text += fmt::format("{}{}{}", random.below(20) == 0 ? "é" : "w", random.below(5000),
                        random.below(8) == 0 ? ", " : " ");
  return text + ".";
}

TEST(MetricsSpeed, AHundredThousandExamplesTakeSeconds) {
  Random random(key_from_seed(1));
  Answers targets, predictions, lists, numbers;
  Scores scores;
  for (int i = 0; i < kExamples; ++i) {
    const std::string target = sentence(random);
    targets.push_back(target);
    lists.push_back(Answers{target, sentence(random)});
    predictions.push_back(random.below(3) == 0 ? target : sentence(random));
    numbers.push_back(random.below(2));
    scores.push_back(random.uniform());
  }
  const auto seconds = [](const std::string& name, const auto& work) {
    const std::clock_t begin = std::clock();  // the process's own, whatever else runs
    work();
    const double taken = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::cout << fmt::format("{:24} {:6.2f} s\n", name, taken);
    EXPECT_LT(taken, kMostSeconds) << name;
  };
  for (const MetricFn& metric :
       {metrics::bleu(), metrics::rouge({}, false), metrics::rouge_mean({.use_stemmer = true}),
        metrics::sequence_accuracy(), metrics::edit_distance()})
    seconds(metric.name, [&] { metric(targets, predictions); });
  for (const MetricFn& metric : {metrics::squad(), metrics::trivia_qa(), metrics::coqa_f1()})
    seconds(metric.name, [&] { metric(lists, predictions); });
  Answers values;
  for (const double score : scores) values.push_back(score);
  for (const MetricFn& metric : {metrics::pearson_corrcoef(), metrics::spearman_corrcoef()})
    seconds(metric.name, [&] { metric(values, numbers); });
  seconds("score_auc",
          [&] { std::get<ScoreMetric>(metrics::score_auc().compute)(numbers, scores); });
}

}  // namespace
}  // namespace quintet::data
