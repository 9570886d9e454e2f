#include "data/metrics/answer.h"
#include "data/metrics/ngrams.h"
#include "data/metrics/sacrebleu.h"
#include "data/metrics/text.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

/// n-grams found in the hypothesis, in the reference, and in both.
struct Statistics {
  int64_t hypothesis = 0, reference = 0, both = 0;
};

/// Words with one punctuation mark at their end, else at their start, as a word of its own.
std::vector<std::string> words_and_punctuation(std::u32string_view text) {
  std::vector<std::string> words;
  for (std::u32string_view word : split(text)) {
    if (word.size() > 1 && is_ascii_punctuation(word.back())) {
      words.push_back(utf8(word.substr(0, word.size() - 1)));
      words.push_back(utf8(word.substr(word.size() - 1)));
    } else if (word.size() > 1 && is_ascii_punctuation(word.front())) {
      words.push_back(utf8(word.substr(0, 1)));
      words.push_back(utf8(word.substr(1)));
    } else {
      words.push_back(utf8(word));
    }
  }
  return words;
}

struct Segment {
  NGrams characters, words;
};

Segment segment_of(std::string_view text, const ChrfOptions& options, Words& words) {
  const std::u32string points = code_points(options.lowercase ? lower(text) : text);
  std::vector<int32_t> characters;
  for (const char32_t c : points)
    if (options.whitespace || !is_space(c)) characters.push_back(static_cast<int32_t>(c));
  std::vector<int32_t> ids;
  if (options.word_order > 0)
    for (const std::string& word : words_and_punctuation(points)) ids.push_back(words.id(word));
  return {NGrams(std::move(characters), options.char_order),
          NGrams(std::move(ids), options.word_order)};
}

std::vector<Statistics> compare(const Segment& hypothesis, const Segment& reference,
                                const ChrfOptions& options) {
  std::vector<Statistics> statistics;
  const auto add = [&](const NGrams& ours, const NGrams& theirs, size_t max_order) {
    for (size_t n = 1; n <= max_order; ++n)
      // An order that the reference lacks does not count against the hypothesis.
      statistics.push_back({theirs.total(n) > 0 ? ours.total(n) : 0, theirs.total(n),
                            NGrams::matches(ours.counts(n), theirs.counts(n))});
  };
  add(hypothesis.characters, reference.characters, options.char_order);
  add(hypothesis.words, reference.words, options.word_order);
  return statistics;
}

double f_score(const std::vector<Statistics>& statistics, const ChrfOptions& options) {
  constexpr double kEpsilon = 1e-16;
  const double factor = options.beta * options.beta;
  const auto f_beta = [&](double precision, double recall, double otherwise) {
    const double denominator = factor * precision + recall;
    return denominator > 0 ? (1 + factor) * precision * recall / denominator : otherwise;
  };
  double smoothed = 0, precision_sum = 0, recall_sum = 0;
  int orders = 0;
  for (const Statistics& s : statistics) {
    const auto ratio = [&](int64_t of) {
      return of > 0 ? static_cast<double>(s.both) / static_cast<double>(of) : kEpsilon;
    };
    const double precision = ratio(s.hypothesis), recall = ratio(s.reference);
    smoothed += f_beta(precision, recall, kEpsilon);
    if (s.hypothesis == 0 || s.reference == 0) continue;
    precision_sum += precision;
    recall_sum += recall;
    ++orders;
  }
  if (options.eps_smoothing) return 100 * smoothed / static_cast<double>(statistics.size());
  if (orders == 0) return 0;
  return 100 * f_beta(precision_sum / orders, recall_sum / orders, 0);
}

}  // namespace

double corpus_chrf(TextList hypotheses,
                   const std::vector<std::vector<std::string_view>>& references,
                   const ChrfOptions& options) {
  QT_CHECK_AS(ExitCode::kData, !references.empty(), "chrf: no references");
  for (const auto& stream : references) check_counts("chrf", stream.size(), hypotheses.size());
  std::vector<Statistics> sum(options.char_order + options.word_order);
  Words words;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const Segment hypothesis = segment_of(hypotheses[i], options, words);
    std::vector<Statistics> best;
    double best_score = -1;
    for (const auto& stream : references) {
      auto statistics = compare(hypothesis, segment_of(stream[i], options, words), options);
      const double score = f_score(statistics, options);
      if (score <= best_score) continue;
      best_score = score;
      best = std::move(statistics);
    }
    for (size_t n = 0; n < sum.size(); ++n) {
      sum[n].hypothesis += best[n].hypothesis;
      sum[n].reference += best[n].reference;
      sum[n].both += best[n].both;
    }
  }
  return f_score(sum, options);
}

}  // namespace quintet::data::metrics
