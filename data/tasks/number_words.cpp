#include "data/tasks/number_words.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "data/examples/random.h"
#include "data/metrics/t5_metrics.h"
#include "data/preprocessors/text_preprocessors.h"
#include "data/preprocessors/token_preprocessors.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr int64_t kSmallestHeldOut = 1000;
constexpr int64_t kLargestNumber = 999'999;
constexpr std::array<const char*, 20> kSmall = {
    "zero",     "one",     "two",     "three",     "four",     "five",    "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array<const char*, 10> kTens = {"",      "",      "twenty",  "thirty", "forty",
                                               "fifty", "sixty", "seventy", "eighty", "ninety"};

std::string below_hundred(int64_t n) {
  if (n < 20) return kSmall[static_cast<size_t>(n)];
  std::string words = kTens[static_cast<size_t>(n / 10)];
  if (n % 10 != 0) words += std::string("-") + kSmall[static_cast<size_t>(n % 10)];
  return words;
}

std::string below_thousand(int64_t n) {
  if (n < 100) return below_hundred(n);
  std::string words = std::string(kSmall[static_cast<size_t>(n / 100)]) + " hundred";
  if (n % 100 != 0) words += " " + below_hundred(n % 100);
  return words;
}

/// A number below a hundred that the words start with.
std::optional<int64_t> value_of(const std::string& word) {
  for (int64_t n = 0; n < 100; ++n)
    if (below_hundred(n) == word) return n;
  return std::nullopt;
}

std::vector<int64_t> held_out_numbers(const NumberWords& options) {
  std::vector<int64_t> all;
  for (int64_t n = kSmallestHeldOut; n <= options.largest; ++n)
    if (is_held_out(n)) all.push_back(n);
  const auto count = static_cast<int64_t>(all.size());
  const int64_t wanted = options.evaluation_examples;
  if (wanted <= 0 || wanted >= count) return all;
  std::vector<int64_t> some;
  for (int64_t i = 0; i < wanted; ++i) some.push_back(all[static_cast<size_t>(i * count / wanted)]);
  return some;
}

int64_t power_of_ten(int64_t exponent) {
  int64_t power = 1;
  while (exponent-- > 0) power *= 10;
  return power;
}

int64_t draw_number(Random& random, const NumberWords& options) {
  const auto most_digits = static_cast<int64_t>(std::to_string(options.largest).size());
  while (true) {
    int64_t n;
    if (random.uniform() < options.by_digits_fraction) {
      const int64_t digits = 1 + random.below(most_digits);
      const int64_t low = digits == 1 ? 0 : power_of_ten(digits - 1);
      const int64_t high = std::min(power_of_ten(digits) - 1, options.largest);
      n = low + random.below(high - low + 1);
    } else {
      n = random.below(options.largest + 1);
    }
    if (!is_held_out(n)) return n;
  }
}

void fill(int64_t n, const NumberWords& options, Example& out) {
  const std::string digits = std::to_string(n), words = number_to_words(n);
  out.set("inputs", options.prefix + (options.to_words ? digits : words));
  out.set("targets", options.to_words ? words : digits);
}

/// The held-out numbers are sought when an evaluation asks for them, not at every start.
class NumberWordsSource final : public DataSource {
 public:
  explicit NumberWordsSource(NumberWords options) : options_(std::move(options)) {}
  std::vector<std::string> splits() const override { return {"test", "train", "validation"}; }
  std::shared_ptr<const Reader> open(const std::string& split) const override {
    const auto known = splits();
    QT_CHECK_AS(ExitCode::kData, std::find(known.begin(), known.end(), split) != known.end(),
                "number words: unknown split '{}'; it has {}", split, fmt::join(known, ", "));
    FunctionDataSource::Split chosen;
    if (split == "train") {
      chosen.make = [options = options_](int64_t, Example& out) {
        Random random(take_key(out));
        fill(draw_number(random, options), options, out);
      };
    } else {
      const auto numbers = std::make_shared<const std::vector<int64_t>>(held_out_numbers(options_));
      chosen.size = static_cast<int64_t>(numbers->size());
      chosen.make = [options = options_, numbers](int64_t index, Example& out) {
        fill((*numbers)[static_cast<size_t>(index)], options, out);
      };
    }
    return FunctionDataSource("number words", {{split, chosen}}).open(split);
  }

 private:
  NumberWords options_;
};

}  // namespace

std::string number_to_words(int64_t n) {
  QT_ASSERT(n >= 0 && n <= kLargestNumber);
  if (n < 1000) return below_thousand(n);
  std::string words = below_thousand(n / 1000) + " thousand";
  if (n % 1000 != 0) words += " " + below_thousand(n % 1000);
  return words;
}

std::optional<int64_t> words_to_number(std::string_view words) {
  int64_t thousands = 0, current = 0;
  std::string rest(words);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    const std::string word = rest.substr(0, end);
    rest.erase(0, std::min(end + 1, rest.size()));
    if (word == "thousand") {
      thousands = current;
      current = 0;
    } else if (word == "hundred") {
      current *= 100;
    } else if (const auto value = value_of(word)) {
      current += *value;
    } else {
      return std::nullopt;
    }
    if (current > 999) return std::nullopt;
  }
  const int64_t n = thousands * 1000 + current;
  // One spelling a number: whatever else parses ("one one", trailing spaces) is not it.
  return n <= kLargestNumber && number_to_words(n) == words ? std::optional(n) : std::nullopt;
}

bool is_held_out(int64_t n) {
  constexpr Key kHash{0x71756e74u, 0x65740001u};  // fixed: the split must never depend on a seed
  return n >= kSmallestHeldOut && random_bits(kHash, static_cast<uint64_t>(n)) % 20 == 0;
}

DataSourcePtr number_words_source(const NumberWords& options) {
  QT_CHECK(options.largest >= 10 && options.largest <= kLargestNumber,
           "number words: largest {} must be between 10 and {}", options.largest, kLargestNumber);
  QT_CHECK(options.by_digits_fraction >= 0 && options.by_digits_fraction <= 1,
           "number words: by_digits_fraction {} must be between 0 and 1",
           options.by_digits_fraction);
  return std::make_shared<NumberWordsSource>(options);
}

ProviderPtr number_words_task(const std::string& name, const NumberWords& options) {
  const auto vocabulary = std::make_shared<ByteVocabulary>();
  return std::make_shared<Task>(Task::Config{
      .name = name,
      .source = number_words_source(options),
      .preprocessors = {std::make_shared<Tokenize>(), std::make_shared<AppendEosAfterTrim>()},
      .output_features = {{"inputs", {vocabulary}}, {"targets", {vocabulary}}},
      .metric_fns = {metrics::sequence_accuracy()},
  });
}

void register_builtin_tasks(TaskRegistry& registry) {
  struct Range {
    const char* suffix;
    int64_t largest, evaluation_examples;
  };
  // Of the 50,000 held-out numbers below a million, 1,000 judge well enough (1 % apart at 95 %).
  for (const Range& range : {Range{"", 9999, 0}, Range{"_6digits", 999'999, 1000}}) {
    std::vector<Mixture::Part> both;
    for (const bool to_words : {true, false}) {
      const NumberWords options{.largest = range.largest,
                                .evaluation_examples = range.evaluation_examples,
                                .to_words = to_words,
                                .prefix = to_words ? "words: " : "number: "};
      const auto task = number_words_task(
          std::string(to_words ? "number_to_words" : "words_to_number") + range.suffix, options);
      registry.add(task);
      both.emplace_back(task, 1.0);
    }
    registry.add(std::make_shared<Mixture>(std::string("number_words") + range.suffix, both));
  }
}

}  // namespace quintet::data
