#include "data/show/length_statistics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

struct CountValues {
  int64_t operator()(const std::string&) const { return 1; }
  int64_t operator()(int64_t) const { return 1; }
  int64_t operator()(double) const { return 1; }
  template <typename T>
  int64_t operator()(const NdArray<T>& array) const {
    return std::ssize(array.values);
  }
  template <typename T>
  int64_t operator()(const std::vector<T>& values) const {
    return std::ssize(values);
  }
};

}  // namespace

double percentile(const std::vector<int64_t>& sorted, double p) {
  const double place = p * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(std::floor(place));
  const auto high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(static_cast<double>(sorted[low]), static_cast<double>(sorted[high]),
                   place - static_cast<double>(low));
}

void print_length_statistics(const Provider& provider, const ShowOptions& show,
                             const LengthOptions& options, std::FILE* out) {
  const Lengths lengths =
      show.lengths.empty() ? default_lengths(provider.output_features()) : show.lengths;
  const StreamPtr stream = provider.stream(
      {.split = show.split,
       .sequence_length = lengths,
       .shuffle = show.shuffle,
       .seed = show.seed,
       .epochs = provider.has_end(show.split) ? std::optional<int64_t>(1) : std::nullopt,
       .use_cached = show.use_cached,
       .cache_dirs = show.cache_dirs});
  std::vector<std::vector<int64_t>> sizes(lengths.size());
  Example example;
  for (int64_t i = 0; i < options.examples && stream->next(example); ++i)
    for (size_t k = 0; k < lengths.size(); ++k)
      if (const Value* value = example.find(lengths[k].first))
        sizes[k].push_back(std::visit(CountValues{}, *value));
  for (size_t k = 0; k < lengths.size(); ++k) {
    const std::string& name = lengths[k].first;
    QT_CHECK_AS(ExitCode::kData, !sizes[k].empty(),
                "task '{}': no example of split '{}' has a feature '{}'", provider.name(),
                show.split, name);
    std::sort(sizes[k].begin(), sizes[k].end());
    nlohmann::ordered_json object = {
        {"split", show.split}, {"feature", name}, {"examples", sizes[k].size()}};
    std::string text = fmt::format("{} {}, {} examples:", show.split, name, sizes[k].size());
    for (double p : options.percentiles) {
      const std::string label = fmt::format("p{:g}", 100 * p);
      object[label] = percentile(sizes[k], p);
      text += fmt::format(" {} {:.1f}", label, percentile(sizes[k], p));
    }
    fmt::print(out, "{}\n", show.json ? object.dump() : text);
  }
}

}  // namespace quintet::data
