#pragma once
// What metrics compare: a target or a prediction after the task's postprocessor. Text, a number, a
// list, or named fields, as the postprocessors of T5 make them.
//
//   Answer answer = Fields{{"group", 3}, {"value", Answers{"Paris", "paris, France"}}};
//   answer.at("value").items()[0].text();      // "Paris"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quintet::data {

class Answer;
using Answers = std::vector<Answer>;
using Fields = std::map<std::string, Answer, std::less<>>;

class Answer {
 public:
  using Data = std::variant<std::string, int64_t, double, Answers, Fields>;

  // Out of line: g++ 12 takes inlined moves of the variant for uses of uninitialised memory.
  Answer();
  Answer(const Answer&);
  Answer(Answer&&) noexcept;
  Answer& operator=(const Answer&);
  Answer& operator=(Answer&&) noexcept;
  ~Answer();
  Answer(const char* text) : data_(std::string(text)) {}  // NOLINT: literals convert
  Answer(std::string text) : data_(std::move(text)) {}    // NOLINT
  Answer(int number) : data_(int64_t{number}) {}          // NOLINT
  Answer(int64_t number) : data_(number) {}               // NOLINT
  Answer(double number) : data_(number) {}                // NOLINT
  Answer(Answers items) : data_(std::move(items)) {}      // NOLINT
  Answer(Fields fields) : data_(std::move(fields)) {}     // NOLINT

  const Data& data() const { return data_; }
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  bool is_number() const { return data_.index() == 1 || data_.index() == 2; }
  /// The answer as that type; throws kData saying what it is instead.
  const std::string& text() const;
  int64_t integer() const;
  double number() const;
  const Answers& items() const;
  const Answer& at(std::string_view field) const;

  /// As in Python: 1 equals 1.0.
  bool operator==(const Answer& other) const;
  bool operator<(const Answer& other) const;

 private:
  Data data_;
};

/// As Python's str() prints it; lists as tuples: (3, 'a').
std::string to_string(const Answer& answer);

/// Checks that there are as many targets as predictions, and one at least; throws kData naming the
/// metric.
void check_counts(std::string_view metric, size_t targets, size_t predictions);

/// All answers as texts in valid UTF-8, as numbers, and so on. Throws kData naming the metric and
/// the first one that is not: "bleu: prediction 3: expected text, found 5". `what`: "target" or
/// "prediction".
std::vector<std::string_view> texts(std::span<const Answer> answers, std::string_view metric,
                                    std::string_view what);
std::vector<std::vector<std::string_view>> text_lists(std::span<const Answer> answers,
                                                      std::string_view metric,
                                                      std::string_view what);
std::vector<double> numbers(std::span<const Answer> answers, std::string_view metric,
                            std::string_view what);
std::vector<int64_t> integers(std::span<const Answer> answers, std::string_view metric,
                              std::string_view what);
/// The named field of each.
Answers fields(std::span<const Answer> answers, std::string_view field, std::string_view metric,
               std::string_view what);

}  // namespace quintet::data
