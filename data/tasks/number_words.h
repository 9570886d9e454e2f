#pragma once
// The built-in task: whole numbers to English words, and back.
//
//   42 -> "forty-two",  1203 -> "one thousand two hundred three"
//
// Training draws never show a held-out number; the splits "validation" and "test" are all of these.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/examples/data_source.h"
#include "data/tasks/task.h"

namespace quintet::data {

/// English words of n, 0 <= n < 1,000,000; throws Bug outside.
std::string number_to_words(int64_t n);
/// The inverse; nullopt if the text is not exactly the words of a number.
std::optional<int64_t> words_to_number(std::string_view words);

/// Whether training must not see n: 5 % of the numbers from 1,000 up, by a hash of n.
bool is_held_out(int64_t n);

struct NumberWords {
  int64_t largest = 9999;  // at most 999,999
  double by_digits_fraction =
      0.3;  // of training draws: first the number of digits, then the number
  /// How many held-out numbers an evaluation takes, evenly spread over the range; 0: all.
  int64_t evaluation_examples = 0;
  bool to_words = true;     // else back
  std::string prefix = {};  // before the input
};
/// Splits train (without end, a function of (seed, index)), validation and test (the held-out
/// numbers). Examples {inputs, targets} of text. Throws a usage error for a range
/// outside 10..999,999.
DataSourcePtr number_words_source(const NumberWords& options);
/// A task over it with a byte vocabulary, tokenized with EOS, judged by sequence_accuracy.
ProviderPtr number_words_task(const std::string& name, const NumberWords& options);

}  // namespace quintet::data
