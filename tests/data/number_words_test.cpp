#include "data/tasks/number_words.h"

#include <set>

#include "data/batches/batches.h"
#include "tests/data/files.h"

namespace quintet::data {
namespace {

TEST(NumberWords, KnownSpellings) {
  EXPECT_EQ(number_to_words(0), "zero");
  EXPECT_EQ(number_to_words(13), "thirteen");
  EXPECT_EQ(number_to_words(42), "forty-two");
  EXPECT_EQ(number_to_words(700), "seven hundred");
  EXPECT_EQ(number_to_words(1203), "one thousand two hundred three");
  EXPECT_EQ(number_to_words(9999), "nine thousand nine hundred ninety-nine");
  EXPECT_EQ(number_to_words(600'014), "six hundred thousand fourteen");
}

TEST(NumberWords, EveryNumberComesBack) {
  for (int64_t n = 0; n < 1'000'000; n += n < 11'000 ? 1 : 37)
    ASSERT_EQ(words_to_number(number_to_words(n)), n) << number_to_words(n);
  for (const char* text : {"", "one one", "zero thousand", "two hundred ", "hundred", "ten-one"})
    EXPECT_EQ(words_to_number(text), std::nullopt) << text;
}

TEST(NumberWords, AboutFivePercentAreHeldOut) {
  int64_t held_out = 0;
  for (int64_t n = 0; n < 10'000; ++n) {
    held_out += is_held_out(n);
    EXPECT_FALSE(n < 1000 && is_held_out(n));
  }
  EXPECT_NEAR(static_cast<double>(held_out), 450, 60);
}

TEST(NumberWords, TrainingNeverShowsWhatEvaluationAsks) {
  const auto source = number_words_source({});
  std::set<std::string> asked;
  const auto evaluation = source->open("validation");
  for (int64_t i = 0; i < *evaluation->size(); ++i) {
    Example example;
    evaluation->read(i, example);
    asked.insert(example.text("inputs"));
  }
  EXPECT_EQ(static_cast<int64_t>(asked.size()), *evaluation->size());
  StreamPtr training = read_stream(source->open("train"), {.seed = 5});
  std::map<size_t, int> by_digits;
  Example example;
  constexpr int kDraws = 40'000;
  for (int i = 0; i < kDraws; ++i) {
    ASSERT_TRUE(training->next(example));
    const std::string& digits = example.text("inputs");
    ASSERT_FALSE(asked.count(digits)) << digits;
    ASSERT_EQ(example.text("targets"), number_to_words(std::stoll(digits)));
    ++by_digits[digits.size()];
  }
  // 30 % by number of digits: a quarter of them each; of the uniform rest 10 in 10,000 have one.
  // The held-out numbers are drawn again, which moves these shares by less than the limits.
  EXPECT_NEAR(by_digits[1] / double{kDraws}, 0.3 / 4 + 0.7 * 0.001, 0.01);
  EXPECT_NEAR(by_digits[2] / double{kDraws}, 0.3 / 4 + 0.7 * 0.009, 0.01);
  EXPECT_NEAR(by_digits[3] / double{kDraws}, 0.3 / 4 + 0.7 * 0.09, 0.015);
}

TEST(NumberWords, BuiltInTasksGoBothWays) {
  TaskRegistry registry;
  register_builtin_tasks(registry);
  const DatasetConfig config{.mixture_or_task_name = "number_words",
                             .task_feature_lengths = {{"inputs", 64}, {"targets", 64}},
                             .split = "validation",
                             .batch_size = 8};
  const auto provider = registry.get("number_words");
  ASSERT_EQ(provider->tasks().size(), 2u);
  const auto examples = evaluation_examples(*provider, config);
  size_t each = 0;
  for (const Task* task : provider->tasks()) {
    each = evaluation_examples(*task, config).size();
    EXPECT_NEAR(static_cast<double>(each), 450, 60) << task->name();
  }
  EXPECT_GT(examples.size(), each);  // the mixture ends with the first task that does
  EXPECT_LE(examples.size(), 2 * each);
  for (const Example& example : examples) {
    const std::string &inputs = example.text("inputs_pretokenized"),
                      &targets = example.text("targets_pretokenized");
    if (inputs.starts_with("words: "))
      EXPECT_EQ(targets, number_to_words(std::stoll(inputs.substr(7))));
    else
      EXPECT_EQ(words_to_number(inputs.substr(8)), std::stoll(targets)) << inputs;
    EXPECT_EQ(example.tokens("targets").back(), 1);
  }
}

TEST(NumberWords, WrongRangesAreErrors) {
  testing::message_of(ExitCode::kUsage, [] { number_words_source({.largest = 5}); });
  testing::message_of(ExitCode::kUsage, [] { number_words_source({.largest = 1'000'000}); });
  testing::message_of(ExitCode::kUsage, [] { number_words_source({.by_digits_fraction = 2}); });
}

}  // namespace
}  // namespace quintet::data
