#include "data/examples/dataset.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr std::string_view kTypeNames[] = {"token ids",          "text",
                                           "an integer",         "a number",
                                           "a list of numbers",  "a list of texts",
                                           "an array of ids",    "an array of numbers",
                                           "a list of integers", "an array of integers"};
static_assert(std::size(kTypeNames) == std::variant_size_v<Value>);

[[noreturn]] void wrong_type(const Example& example, std::string_view name, const Value& value,
                             std::string_view expected) {
  fail(ExitCode::kData, "{}: feature '{}' is {}, expected {}", example.where(), name,
       kTypeNames[value.index()], expected);
}

template <typename T>
const T& get(const Example& example, std::string_view name, std::string_view expected) {
  const Value& value = example.at(name);
  if (const T* found = std::get_if<T>(&value)) return *found;
  wrong_type(example, name, value, expected);
}

/// [[1, 2], [3, 4]]
template <typename T>
std::string ndarray_text(const NdArray<T>& array, size_t axis, size_t& at) {
  if (axis == array.shape.size()) return fmt::format("{}", array.values[at++]);
  std::string text = "[";
  for (int64_t i = 0; i < array.shape[axis]; ++i)
    text += (i > 0 ? ", " : "") + ndarray_text(array, axis + 1, at);
  return text + "]";
}

struct Rank {
  size_t operator()(const std::string&) const { return 0; }
  size_t operator()(int64_t) const { return 0; }
  size_t operator()(double) const { return 0; }
  template <typename T>
  size_t operator()(const std::vector<T>&) const {
    return 1;
  }
  template <typename T>
  size_t operator()(const NdArray<T>& v) const {
    return v.shape.size();
  }
};

struct Print {
  std::string operator()(const Tokens& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const std::vector<int64_t>& v) const {
    return fmt::format("[{}]", fmt::join(v, ", "));
  }
  std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v); }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::vector<double>& v) const {
    return fmt::format("[{}]", fmt::join(v, ", "));
  }
  std::string operator()(const std::vector<std::string>& v) const {
    return v.empty() ? "[]" : fmt::format("[\"{}\"]", fmt::join(v, "\", \""));
  }
  template <typename T>
  std::string operator()(const NdArray<T>& v) const {
    size_t at = 0;
    return ndarray_text(v, 0, at);
  }
};

std::string join_features(const std::vector<Example::Item>& items) {
  std::string names;
  for (const auto& [name, value] : items) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "no features" : names;
}

class VectorStream final : public Stream {
 public:
  explicit VectorStream(std::vector<Example> examples) : examples_(std::move(examples)) {}
  bool next(Example& out) override {
    if (at_ == examples_.size()) return false;
    out = examples_[at_++];
    return true;
  }
  void save(Position& position) const override { position.push_back(static_cast<int64_t>(at_)); }
  void restore(PositionReader& position) override {
    const int64_t at = position.take();
    QT_CHECK_AS(ExitCode::kData, at >= 0 && at <= static_cast<int64_t>(examples_.size()),
                "data position {} is outside the {} examples", at, examples_.size());
    at_ = static_cast<size_t>(at);
  }

 private:
  std::vector<Example> examples_;
  size_t at_ = 0;
};

}  // namespace

const Value* Example::find(std::string_view name) const {
  for (const auto& item : items_)
    if (item.first == name) return &item.second;
  return nullptr;
}

Value* Example::find(std::string_view name) {
  return const_cast<Value*>(std::as_const(*this).find(name));
}

void Example::set(std::string_view name, Value value) {
  if (Value* old = find(name))
    *old = std::move(value);
  else
    items_.emplace_back(std::string(name), std::move(value));
}

void Example::erase(std::string_view name) {
  std::erase_if(items_, [&](const Item& item) { return item.first == name; });
}

const Value& Example::at(std::string_view name) const {
  const Value* value = find(name);
  QT_CHECK_AS(ExitCode::kData, value != nullptr, "{}: feature '{}' is missing; the example has {}",
              where(), name, join_features(items_));
  return *value;
}

const Tokens& Example::tokens(std::string_view name) const {
  return get<Tokens>(*this, name, "token ids");
}

Tokens& Example::tokens(std::string_view name) {
  return const_cast<Tokens&>(std::as_const(*this).tokens(name));
}

const std::string& Example::text(std::string_view name) const {
  return get<std::string>(*this, name, "text");
}

const std::vector<std::string>& Example::texts(std::string_view name) const {
  // An empty list says nothing of its type.
  static const std::vector<std::string> none;
  const auto* ids = std::get_if<Tokens>(&at(name));
  return ids != nullptr && ids->empty()
             ? none
             : get<std::vector<std::string>>(*this, name, "a list of texts");
}

int64_t Example::integer(std::string_view name) const {
  return get<int64_t>(*this, name, "an integer");
}

std::string Example::where() const {
  return provenance != nullptr && index >= 0 ? provenance->where(index)
                                             : fmt::format("example {}", index);
}

size_t rank_of(const Value& value) { return std::visit(Rank{}, value); }

std::string to_string(const Value& value) { return std::visit(Print{}, value); }

std::string to_string(const Example& example) {
  std::string text;
  for (const auto& [name, value] : example.items())
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", name, to_string(value));
  return "{" + text + "}";
}

int64_t PositionReader::take() {
  QT_CHECK_AS(ExitCode::kData, at_ < position_.size(),
              "data position has {} numbers, expected more: it belongs to another data set",
              position_.size());
  return position_[at_++];
}

StreamPtr stream_of(std::vector<Example> examples) {
  return std::make_unique<VectorStream>(std::move(examples));
}

std::vector<Example> collect(Stream& stream) {
  std::vector<Example> all;
  Example example;
  while (stream.next(example)) all.push_back(std::move(example));
  return all;
}

}  // namespace quintet::data
