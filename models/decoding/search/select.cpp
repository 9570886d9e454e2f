#include "models/decoding/search/select.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/decoding/search/token_model.h"

namespace quintet::decoding {
namespace {

/// One part of the vocabulary, one row.
RowSelection select_part(std::span<const float> part, int64_t row, const SelectOptions& options,
                         std::vector<float>& scratch) {
  RowSelection out;
  if (options.log_sums) {
    out.summary = summarize(part);
  } else {
    out.summary.argmax = argmax(part);
    out.summary.max = part[static_cast<size_t>(out.summary.argmax)];
  }
  if (options.count == 0) return out;
  const float least = kth_largest(part, options.count, scratch);
  const float offset = options.offsets.empty() ? 0 : options.offsets[static_cast<size_t>(row)];
  indices_at_least(part, least - tie_margin(offset, out.summary.max, least), out.candidates);
  return out;
}

/// `next` continues `row` from column `begin` on.
void merge(RowSelection& row, const RowSelection& next, int64_t begin) {
  RowSummary& a = row.summary;
  const RowSummary& b = next.summary;
  const float max = std::max(a.max, b.max);
  a.log_sum = std::log(std::exp(a.max - max + a.log_sum) + std::exp(b.max - max + b.log_sum));
  if (b.max > a.max) a.argmax = begin + b.argmax;
  a.max = max;
  for (int32_t i : next.candidates) row.candidates.push_back(static_cast<int32_t>(begin) + i);
}

}  // namespace

float tie_margin(float offset, float max, float least) {
  // A log probability is (x - max) - log_sum + offset; log_sum is at most the logarithm of the
  // vocabulary.
  constexpr float kLogVocabulary = 32;
  const float largest = std::abs(offset) + std::abs(max) + std::abs(least);
  return 4 * std::numeric_limits<float>::epsilon() * (largest + kLogVocabulary);
}

std::vector<RowSelection> TokenModel::select_last(const SelectOptions& options) {
  const std::span<const float> all = last_logits();
  const auto vocab = static_cast<size_t>(vocab_size());
  std::vector<RowSelection> rows =
      select(all, static_cast<int64_t>(all.size() / vocab), vocab_size(), options);
  for (size_t r = 0; r < rows.size(); ++r)
    for (int32_t i : rows[r].candidates)
      rows[r].values.push_back(all[r * vocab + static_cast<size_t>(i)]);
  return rows;
}

std::vector<RowSummary> TokenModel::step_greedily(const StepInput& input, bool log_sums) {
  std::vector<RowSummary> rows;
  for (const RowSelection& row : select(step(input), static_cast<int64_t>(input.rows.size()),
                                        vocab_size(), {.log_sums = log_sums}))
    rows.push_back(row.summary);
  return rows;
}

std::vector<RowSelection> select(std::span<const float> logits, int64_t rows, int64_t vocab,
                                 const SelectOptions& options) {
  // Parts too short to be worth a thread change nothing but the order of sums.
  constexpr int64_t kLeastPart = 1024;
  const int64_t parts =
      std::clamp<int64_t>(vocab / kLeastPart, 1, std::max(1, omp_get_max_threads()));
  std::vector<RowSelection> partial(static_cast<size_t>(parts * rows));
#pragma omp parallel num_threads(static_cast <int>(parts)) if (parts > 1)
  {
    std::vector<float> scratch;
#pragma omp for schedule(static, 1)
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = vocab * part / parts, end = vocab * (part + 1) / parts;
      for (int64_t r = 0; r < rows; ++r)
        partial[static_cast<size_t>(part * rows + r)] =
            select_part(logits.subspan(static_cast<size_t>(r * vocab + begin),
                                       static_cast<size_t>(end - begin)),
                        r, options, scratch);
    }
  }
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t r = 0; r < rows; ++r)
      merge(partial[static_cast<size_t>(r)], partial[static_cast<size_t>(part * rows + r)],
            vocab * part / parts);
  partial.resize(static_cast<size_t>(rows));
  return partial;
}

}  // namespace quintet::decoding
