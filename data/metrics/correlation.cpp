#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "data/metrics/t5_metrics.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

using Numbers = std::vector<double>;

/// NaN where a side is constant or has a NaN, as scipy.stats.pearsonr.
double pearson(const Numbers& x, const Numbers& y) {
  const auto centered = [](Numbers values) {
    const double mean =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    for (double& value : values) value -= mean;
    return values;
  };
  const auto constant = [](const Numbers& values) {
    return std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
  };
  if (constant(x) || constant(y)) return std::numeric_limits<double>::quiet_NaN();
  const Numbers a = centered(x), b = centered(y);
  const auto dot = [](const Numbers& p, const Numbers& q) {
    return std::inner_product(p.begin(), p.end(), q.begin(), 0.0);
  };
  return std::clamp(dot(a, b) / (std::sqrt(dot(a, a)) * std::sqrt(dot(b, b))), -1.0, 1.0);
}

/// Ranks from 1; equal values share the mean of theirs.
Numbers ranks_of(const Numbers& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  Numbers ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = static_cast<double>(begin + end + 1) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = rank;
  }
  return ranks;
}

double spearman(const Numbers& x, const Numbers& y) {
  const auto has_nan = [](const Numbers& values) {
    return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
  };
  if (has_nan(x) || has_nan(y)) return std::numeric_limits<double>::quiet_NaN();
  return pearson(ranks_of(x), ranks_of(y));
}

MetricFn correlation(std::string name, double (*coefficient)(const Numbers&, const Numbers&)) {
  return {name, [=](const Answers& targets, const Answers& predictions) -> MetricValues {
            check_counts(name, targets.size(), predictions.size());
            QT_CHECK_AS(ExitCode::kData, targets.size() > 1, "{}: needs two examples at least",
                        name);
            return {{name, 100 * coefficient(numbers(targets, name, "target"),
                                             numbers(predictions, name, "prediction"))}};
          }};
}

}  // namespace

MetricFn pearson_corrcoef() { return correlation("pearson_corrcoef", pearson); }
MetricFn spearman_corrcoef() { return correlation("spearman_corrcoef", spearman); }

}  // namespace quintet::data::metrics
