#include "data/sources/tfds_splits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

std::string without_spaces(const std::string& text) {
  std::string out;
  std::copy_if(text.begin(), text.end(), std::back_inserter(out), [](char c) { return c != ' '; });
  return out;
}

/// "", "10", "-5%": where a slice begins or ends.
int64_t boundary(std::string_view text, int64_t size, int64_t otherwise, const std::string& whole) {
  if (text.empty()) return otherwise;
  const bool is_percent = text.ends_with('%');
  if (is_percent) text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  QT_CHECK(error == std::errc() && end == text.data() + text.size() &&
               (!is_percent || std::abs(number) <= 100),
           "split '{}': '{}' is neither a number nor a percentage", whole, text);
  if (is_percent)
    number = static_cast<int64_t>(
        std::nearbyint(static_cast<double>(number) * static_cast<double>(size) / 100.0));
  if (number < 0) number = std::max<int64_t>(0, size + number);
  return std::min(number, size);
}

}  // namespace

std::vector<TfdsSlice> parse_tfds_split(const std::string& text,
                                        const std::vector<std::pair<std::string, int64_t>>& sizes) {
  std::vector<TfdsSlice> slices;
  const std::string compact = without_spaces(text);
  for (size_t start = 0; start <= compact.size();) {
    const size_t plus = std::min(compact.find('+', start), compact.size());
    const std::string_view part = std::string_view(compact).substr(start, plus - start);
    start = plus + 1;
    const size_t bracket = std::min(part.find('['), part.size());
    const std::string name(part.substr(0, bracket));
    std::string_view range = part.substr(bracket);
    if (name == "all" && range.empty()) {
      for (const auto& [split, size] : sizes) slices.push_back({split, 0, size});
      continue;
    }
    const auto found = std::find_if(sizes.begin(), sizes.end(),
                                    [&](const auto& split) { return split.first == name; });
    if (found == sizes.end()) {
      std::string known;
      for (const auto& [split, size] : sizes) known += (known.empty() ? "" : ", ") + split;
      fail(ExitCode::kData, "split '{}': unknown split '{}'; the data set has {}", text, name,
           known);
    }
    const int64_t size = found->second;
    TfdsSlice slice{name, 0, size};
    if (!range.empty()) {
      const size_t colon = range.find(':');
      QT_CHECK(range.ends_with(']') && colon != std::string_view::npos,
               "split '{}': expected a form such as train[:90%], train[10:20] or train+validation",
               text);
      slice.begin = boundary(range.substr(1, colon - 1), size, 0, text);
      slice.end = boundary(range.substr(colon + 1, range.size() - colon - 2), size, size, text);
    }
    slice.end = std::max(slice.begin, slice.end);
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace quintet::data
