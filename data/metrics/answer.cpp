#include "data/metrics/answer.h"

#include "data/vocabularies/utf8.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

template <typename T>
const T& get(const Answer& answer, std::string_view expected) {
  const T* value = answer.get_if<T>();
  QT_CHECK_AS(ExitCode::kData, value != nullptr, "expected {}, found {}", expected,
              to_string(answer));
  return *value;
}

std::string quoted(const Answer& answer) {
  const std::string text = to_string(answer);
  return answer.get_if<std::string>() != nullptr ? "'" + text + "'" : text;
}

std::string_view checked_text(const Answer& answer) {
  const std::string& text = answer.text();
  const size_t bad = find_bad_utf8(text);
  QT_CHECK_AS(ExitCode::kData, bad == std::string::npos, "not UTF-8: byte {} is 0x{:02x}", bad,
              static_cast<unsigned char>(text[bad]));
  return text;
}

/// `read` of each, with its place added to what is thrown.
template <typename Read>
auto read_all(std::span<const Answer> answers, std::string_view metric, std::string_view what,
              Read read) {
  std::vector<std::decay_t<decltype(read(answers[0]))>> all;
  all.reserve(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    try {
      all.push_back(read(answers[i]));
    } catch (const Error& error) {
      fail(error.code(), "{}: {} {}: {}", metric, what, i, error.what());
    }
  }
  return all;
}

}  // namespace

Answer::Answer() = default;
Answer::Answer(const Answer&) = default;
Answer::Answer(Answer&&) noexcept = default;
Answer& Answer::operator=(const Answer&) = default;
Answer& Answer::operator=(Answer&&) noexcept = default;
Answer::~Answer() = default;

const std::string& Answer::text() const { return get<std::string>(*this, "text"); }
int64_t Answer::integer() const { return get<int64_t>(*this, "an integer"); }
const Answers& Answer::items() const { return get<Answers>(*this, "a list"); }

double Answer::number() const {
  if (const int64_t* whole = get_if<int64_t>()) return static_cast<double>(*whole);
  return get<double>(*this, "a number");
}

const Answer& Answer::at(std::string_view field) const {
  const Fields& fields = get<Fields>(*this, fmt::format("fields with '{}'", field));
  const auto found = fields.find(field);
  QT_CHECK_AS(ExitCode::kData, found != fields.end(), "has no field '{}': {}", field,
              to_string(*this));
  return found->second;
}

bool Answer::operator==(const Answer& other) const {
  if (data_.index() != other.data_.index() && is_number() && other.is_number())
    return number() == other.number();
  return data_ == other.data_;
}

bool Answer::operator<(const Answer& other) const {
  if (data_.index() != other.data_.index() && is_number() && other.is_number())
    return number() < other.number();
  return data_ < other.data_;
}

std::string to_string(const Answer& answer) {
  struct {
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const Answers& items) const {
      std::vector<std::string> parts;
      for (const Answer& item : items) parts.push_back(quoted(item));
      return fmt::format("({}{})", fmt::join(parts, ", "), items.size() == 1 ? "," : "");
    }
    std::string operator()(const Fields& fields) const {
      std::vector<std::string> parts;
      for (const auto& [name, value] : fields) parts.push_back("'" + name + "': " + quoted(value));
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
    }
  } print;
  return std::visit(print, answer.data());
}

void check_counts(std::string_view metric, size_t targets, size_t predictions) {
  QT_CHECK_AS(ExitCode::kData, targets == predictions, "{}: {} targets but {} predictions", metric,
              targets, predictions);
  QT_CHECK_AS(ExitCode::kData, targets != 0, "{}: no example to evaluate", metric);
}

std::vector<std::string_view> texts(std::span<const Answer> answers, std::string_view metric,
                                    std::string_view what) {
  return read_all(answers, metric, what, checked_text);
}

std::vector<std::vector<std::string_view>> text_lists(std::span<const Answer> answers,
                                                      std::string_view metric,
                                                      std::string_view what) {
  return read_all(answers, metric, what, [](const Answer& answer) {
    std::vector<std::string_view> list;
    for (const Answer& item : answer.items()) list.push_back(checked_text(item));
    QT_CHECK_AS(ExitCode::kData, !list.empty(), "the list is empty");
    return list;
  });
}

std::vector<double> numbers(std::span<const Answer> answers, std::string_view metric,
                            std::string_view what) {
  return read_all(answers, metric, what, [](const Answer& answer) { return answer.number(); });
}

std::vector<int64_t> integers(std::span<const Answer> answers, std::string_view metric,
                              std::string_view what) {
  return read_all(answers, metric, what, [](const Answer& answer) { return answer.integer(); });
}

Answers fields(std::span<const Answer> answers, std::string_view field, std::string_view metric,
               std::string_view what) {
  return read_all(answers, metric, what, [&](const Answer& answer) { return answer.at(field); });
}

}  // namespace quintet::data
