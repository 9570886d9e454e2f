#include "data/preprocessors/text_preprocessors.h"

#include <algorithm>
#include <charconv>

#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// Columns of a delimited line. With quotes, a column in double quotes may hold delimiters, and ""
/// in it is one quote (RFC 4180).
std::vector<std::string> split_columns(std::string_view line, char delimiter, bool use_quotes) {
  std::vector<std::string> columns(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (use_quotes && c == '"' && (quoted || columns.back().empty())) {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"')
        columns.back().push_back(line[++i]);
      else
        quoted = !quoted;
    } else if (c == delimiter && !quoted) {
      columns.emplace_back();
    } else {
      columns.back().push_back(c);
    }
  }
  QT_CHECK_AS(ExitCode::kData, !quoted, "a quoted column has no closing quote");
  return columns;
}

char single_delimiter(const std::string& delimiter, std::string_view who) {
  QT_CHECK(delimiter.size() == 1, "{}: field_delim '{}' must be one character", who, delimiter);
  return delimiter.front();
}

void check_columns(size_t found, size_t expected) {
  QT_CHECK_AS(ExitCode::kData, found == expected, "{} columns, expected {}", found, expected);
}

/// "{0}" or "{name}" replaced by columns; other text stays.
std::string fill(std::string_view format, const std::vector<std::string>& names,
                 const std::vector<std::string>& columns) {
  return fill_template(format, [&](std::string_view name, std::string& found) {
    size_t column = columns.size();
    if (names.empty()) {
      const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), column);
      if (error != std::errc() || stop != name.data() + name.size()) return false;
    } else {
      column = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    }
    if (column >= columns.size()) return false;
    found = columns[column];
    return true;
  });
}

/// Calls text(part) and field(name) for what a format is made of, in order.
template <typename OnText, typename OnField>
void read_format(std::string_view format, OnText on_text, OnField on_field) {
  for (size_t at = 0; at < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", at), format.size());
    on_text(format.substr(at, brace - at));
    if (brace == format.size()) return;
    if (format.substr(brace, 2) == "{{" || format.substr(brace, 2) == "}}") {
      on_text(format.substr(brace, 1));
      at = brace + 2;
      continue;
    }
    const size_t close = format[brace] == '{' ? format.find_first_of("{}", brace + 1) : 0;
    QT_CHECK(
        close != 0 && close != std::string_view::npos && format[close] == '}' && close > brace + 1,
        "'{}': byte {}: a brace without its other half; {{name}} is a field, {{{{ and }}}} are "
        "braces",
        format, brace + 1);
    on_field(format.substr(brace + 1, close - brace - 1));
    at = close + 1;
  }
}

std::string field_text(const Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>)
          return v;
        else if constexpr (std::is_arithmetic_v<T>)
          return fmt::format("{}", v);
        else if constexpr (requires { v.shape; })
          return fmt::format("{}", fmt::join(v.values, ", "));
        else
          return fmt::format("{}", fmt::join(v, ", "));
      },
      value);
}

std::string formatted(std::string_view format, const Example& example) {
  std::string out;
  read_format(
      format, [&](std::string_view text) { out += text; },
      [&](std::string_view name) {
        const Value* value = example.find(name);
        if (value == nullptr) {
          std::vector<std::string> names;
          for (const auto& [there, unused] : example.items()) names.push_back(there);
          fail(ExitCode::kData, "no field '{}'; there are: {}", name, fmt::join(names, ", "));
        }
        out += field_text(*value);
      });
  return out;
}

}  // namespace

std::vector<std::string> FormatPair::fields_of(std::string_view format) {
  std::vector<std::string> names;
  read_format(
      format, [](std::string_view) {}, [&](std::string_view name) { names.emplace_back(name); });
  return names;
}

StreamPtr FormatPair::apply(StreamPtr input, const PreprocessContext&) const {
  fields_of(inputs_format);  // before anything is read
  fields_of(targets_format);
  return map_stream(std::move(input), [*this](Example& example) {
    std::string inputs = formatted(inputs_format, example);
    std::string targets = formatted(targets_format, example);
    example.clear();
    example.set("inputs", std::move(inputs));
    example.set("targets", std::move(targets));
    return true;
  });
}

StreamPtr Rekey::apply(StreamPtr input, const PreprocessContext&) const {
  if (key_map.empty()) return input;
  return map_stream(std::move(input), [map = key_map](Example& example) {
    std::vector<Example::Item> items;
    items.reserve(map.size());
    for (const auto& [name, old_name] : map)
      items.emplace_back(name, old_name.empty() ? Value(std::string()) : example.at(old_name));
    example.items() = std::move(items);
    return true;
  });
}

StreamPtr Tokenize::apply(StreamPtr input, const PreprocessContext& context) const {
  return map_stream(
      std::move(input), [*this, features = context.output_features](Example& example) {
        std::vector<Example::Item> items;
        for (auto& [name, value] : example.items()) {
          const Feature* feature = find_feature(features, name);
          auto* text = std::get_if<std::string>(&value);
          if (feature == nullptr || text == nullptr) {
            items.emplace_back(std::move(name), std::move(value));
            continue;
          }
          Tokens ids = feature->vocabulary->encode(*text);
          if (with_eos && feature->add_eos) {
            const auto eos = feature->vocabulary->eos_id();
            QT_CHECK(eos.has_value(), "tokenize_and_append_eos: the vocabulary of '{}' has no EOS",
                     name);
            ids.push_back(*eos);
          }
          if (copy_pretokenized) items.emplace_back(name + "_pretokenized", std::move(value));
          items.emplace_back(std::move(name), std::move(ids));
        }
        example.items() = std::move(items);
        return true;
      });
}

StreamPtr ParseTsv::apply(StreamPtr input, const PreprocessContext&) const {
  const char delimiter = single_delimiter(field_delim, "parse_tsv");
  QT_CHECK(field_columns.empty() || field_columns.size() == field_names.size(),
           "parse_tsv: {} field_columns for {} field_names", field_columns.size(),
           field_names.size());
  return map_stream(std::move(input), [*this, delimiter](Example& example) {
    const auto columns = split_columns(example.text("text"), delimiter, false);
    if (field_columns.empty()) check_columns(columns.size(), field_names.size());
    example.clear();
    for (size_t i = 0; i < field_names.size(); ++i) {
      const size_t column = field_columns.empty() ? i : static_cast<size_t>(field_columns[i]);
      QT_CHECK_AS(ExitCode::kData, column < columns.size(),
                  "{} columns, expected at least {} for field '{}'", columns.size(), column + 1,
                  field_names[i]);
      example.set(field_names[i], columns[column]);
    }
    return true;
  });
}

StreamPtr PreprocessTsv::apply(StreamPtr input, const PreprocessContext&) const {
  const char delimiter = single_delimiter(field_delim, "preprocess_tsv");
  return map_stream(std::move(input), [*this, delimiter](Example& example) {
    const auto columns = split_columns(example.text("text"), delimiter, use_quote_delim);
    check_columns(columns.size(),
                  field_names.empty() ? static_cast<size_t>(num_fields) : field_names.size());
    example.clear();
    example.set("inputs", fill(inputs_format, field_names, columns));
    example.set("targets", fill(targets_format, field_names, columns));
    return true;
  });
}

StreamPtr AddPrefix::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [*this](Example& example) {
    example.set(feature_key, prefix + example.text(feature_key));
    return true;
  });
}

StreamPtr PrintDataset::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [most = summarize](Example& example) {
    Example shown = example;
    for (auto& [name, value] : shown.items())
      if (auto* ids = std::get_if<Tokens>(&value); ids != nullptr && most >= 0)
        ids->resize(std::min(ids->size(), static_cast<size_t>(most)));
    fmt::print(stderr, "{}: {}\n", example.where(), to_string(shown));
    return true;
  });
}

}  // namespace quintet::data
