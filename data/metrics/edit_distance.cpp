#include <algorithm>
#include <numeric>

#include "data/metrics/t5_metrics.h"
#include "data/metrics/text.h"

namespace quintet::data::metrics {
namespace {

/// Pieces between characters that are not of words, empty ones too: re.split("[^\\w]", text).
std::vector<int32_t> words_of(std::string_view text, Words& words) {
  const std::u32string points = code_points(text);
  std::vector<int32_t> ids;
  size_t begin = 0;
  for (size_t i = 0; i <= points.size(); ++i) {
    if (i < points.size() && is_word(points[i])) continue;
    ids.push_back(words.id(utf8(std::u32string_view(points).substr(begin, i - begin))));
    begin = i + 1;
  }
  return ids;
}

/// Insertions, deletions and replacements.
int64_t distance(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

MetricFn edit_distance(bool lower) {
  return {"edit_distance",
          [lower](const Answers& targets, const Answers& predictions) -> MetricValues {
            check_counts("edit_distance", targets.size(), predictions.size());
            const auto wanted = texts(targets, "edit_distance", "target");
            const auto found = texts(predictions, "edit_distance", "prediction");
            std::vector<double> distances;
            for (size_t i = 0; i < wanted.size(); ++i) {
              Words words;
              const auto ids = [&](std::string_view text) {
                return lower ? words_of(metrics::lower(text), words) : words_of(text, words);
              };
              distances.push_back(static_cast<double>(distance(ids(found[i]), ids(wanted[i]))));
            }
            std::sort(distances.begin(), distances.end());
            const size_t size = distances.size();
            const double sum = std::accumulate(distances.begin(), distances.end(), 0.0);
            return {{"min_edit", distances.front()},
                    {"max_edit", distances.back()},
                    {"mean_edit", sum / static_cast<double>(size)},
                    {"median_edit", (distances[(size - 1) / 2] + distances[size / 2]) / 2},
                    {"sum_edit", sum}};
          }};
}

}  // namespace quintet::data::metrics
