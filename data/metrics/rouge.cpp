#include "data/metrics/rouge.h"

#include <algorithm>
#include <cmath>

#include "data/examples/random.h"
#include "data/metrics/ngrams.h"
#include "data/metrics/t5_metrics.h"
#include "data/metrics/text.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

using Ids = std::vector<int32_t>;

bool is_ngram_type(const std::string& key) {
  return key.size() == 6 && key.starts_with("rouge") && key[5] >= '1' && key[5] <= '9';
}

RougeScore score_of(double matched, double target_size, double prediction_size) {
  RougeScore score;
  score.precision = matched / std::max(prediction_size, 1.0);
  score.recall = matched / std::max(target_size, 1.0);
  const double sum = score.precision + score.recall;
  if (sum > 0) score.fmeasure = 2 * score.precision * score.recall / sum;
  return score;
}

/// Runs of a-z and 0-9 in lower-case text; stemmed where longer than three.
Ids default_tokens(std::string_view text, bool use_stemmer, Words& words) {
  const std::string lowered = lower(text);
  const auto is_token = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  Ids ids;
  for (size_t i = 0; i < lowered.size();) {
    size_t end = i;
    while (end < lowered.size() && is_token(lowered[end])) ++end;
    const std::string_view token = std::string_view(lowered).substr(i, end - i);
    if (!token.empty())
      ids.push_back(words.id(use_stemmer && token.size() > 3 ? porter_stem(token) : token));
    i = end + 1;
  }
  return ids;
}

Ids tokenize(std::string_view text, const RougeOptions& options, Words& words) {
  return options.tokenizer ? options.tokenizer->encode(text)
                           : default_tokens(text, options.use_stemmer, words);
}

/// lengths[i][j]: longest common subsequence of the first i and j tokens.
class LcsTable {
 public:
  LcsTable(const Ids& a, const Ids& b) : columns_(b.size() + 1), cells_((a.size() + 1) * columns_) {
    for (size_t i = 1; i <= a.size(); ++i)
      for (size_t j = 1; j <= b.size(); ++j)
        cell(i, j) = a[i - 1] == b[j - 1] ? cell(i - 1, j - 1) + 1
                                          : std::max(cell(i - 1, j), cell(i, j - 1));
  }
  int32_t& cell(size_t i, size_t j) { return cells_[i * columns_ + j]; }
  int32_t length() const { return cells_.back(); }

 private:
  size_t columns_;
  std::vector<int32_t> cells_;
};

/// Marks the tokens of `target` that are part of its longest common subsequence with `prediction`.
void mark_lcs(const Ids& target, const Ids& prediction, std::vector<bool>& marked) {
  LcsTable table(target, prediction);
  size_t i = target.size(), j = prediction.size();
  while (i > 0 && j > 0) {
    if (target[i - 1] == prediction[j - 1]) {
      marked[--i] = true;
      --j;
    } else if (table.cell(i, j - 1) > table.cell(i - 1, j)) {
      --j;
    } else {
      --i;
    }
  }
}

std::vector<Ids> sentences(std::string_view text, const RougeOptions& options, Words& words) {
  std::vector<Ids> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) all.push_back(tokenize(text.substr(begin, end - begin), options, words));
    begin = end + 1;
  }
  return all;
}

/// Section 3.2 of Lin's paper; a token counts as often as it stands in both texts, no more.
RougeScore summary_lcs(const std::vector<Ids>& target, const std::vector<Ids>& prediction) {
  std::map<int32_t, int64_t> target_left, prediction_left;
  size_t target_size = 0, prediction_size = 0, hits = 0;
  for (const Ids& sentence : target) {
    target_size += sentence.size();
    for (const int32_t token : sentence) ++target_left[token];
  }
  for (const Ids& sentence : prediction) {
    prediction_size += sentence.size();
    for (const int32_t token : sentence) ++prediction_left[token];
  }
  for (const Ids& sentence : target) {
    std::vector<bool> marked(sentence.size());
    for (const Ids& other : prediction) mark_lcs(sentence, other, marked);
    for (size_t i = 0; i < sentence.size(); ++i) {
      int64_t& here = target_left[sentence[i]];
      int64_t& there = prediction_left[sentence[i]];
      if (!marked[i] || here == 0 || there == 0) continue;
      ++hits;
      --here;
      --there;
    }
  }
  return score_of(static_cast<double>(hits), static_cast<double>(target_size),
                  static_cast<double>(prediction_size));
}

/// " . " ends a line, so that rougeLsum sees sentences.
std::string split_sentences(std::string_view text) {
  std::string out(text);
  for (size_t at = 0; (at = out.find(" . ", at)) != std::string::npos; at += 3) out[at + 2] = '\n';
  return out;
}

/// F-measures, one row a score key.
std::vector<std::vector<double>> fmeasures(const RougeOptions& options, const Answers& targets,
                                           const Answers& predictions) {
  check_counts("rouge", targets.size(), predictions.size());
  const auto wanted = texts(targets, "rouge", "target");
  const auto found = texts(predictions, "rouge", "prediction");
  const RougeScorer scorer(options);
  std::vector<std::vector<double>> rows(options.score_keys.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto scores = scorer.score(split_sentences(wanted[i]), split_sentences(found[i]));
    for (size_t k = 0; k < rows.size(); ++k) rows[k].push_back(scores[k].fmeasure);
  }
  return rows;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Means over resamples drawn with replacement, sorted: one row a score key. The draws depend on
/// nothing but the number of examples.
std::vector<std::vector<double>> bootstrap_means(const std::vector<std::vector<double>>& rows) {
  constexpr int kResamples = 1000;
  const size_t size = rows[0].size();
  std::vector<std::vector<double>> means(rows.size());
  for (int sample = 0; sample < kResamples; ++sample) {
    // Threefry gives each resample its seed; the many draws come from a quicker generator.
    uint64_t state = Random(split_at(key_from_seed(0), static_cast<uint64_t>(sample))).bits();
    std::vector<double> sums(rows.size());
    for (size_t draw = 0; draw < size; ++draw) {
      state += 0x9E3779B97F4A7C15u;  // splitmix64
      uint64_t bits = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
      bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
      bits ^= bits >> 31;
      const auto pick = static_cast<size_t>((static_cast<unsigned __int128>(bits) * size) >> 64);
      for (size_t k = 0; k < rows.size(); ++k) sums[k] += rows[k][pick];
    }
    for (size_t k = 0; k < rows.size(); ++k)
      means[k].push_back(sums[k] / static_cast<double>(size));
  }
  for (auto& row : means) std::sort(row.begin(), row.end());
  return means;
}

/// numpy.percentile of sorted values, q from 0 to 1.
double percentile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - std::floor(at));
}

}  // namespace

RougeScorer::RougeScorer(RougeOptions options) : options_(std::move(options)) {
  QT_CHECK(!options_.score_keys.empty(), "rouge: score_keys is empty");
  for (const std::string& key : options_.score_keys)
    QT_CHECK(is_ngram_type(key) || key == "rougeL" || key == "rougeLsum",
             "rouge: type '{}' is not known; it is rouge1 to rouge9, rougeL or rougeLsum", key);
}

std::vector<RougeScore> RougeScorer::score(std::string_view target,
                                           std::string_view prediction) const {
  size_t max_order = 0;
  for (const std::string& key : options_.score_keys)
    if (is_ngram_type(key)) max_order = std::max(max_order, static_cast<size_t>(key[5] - '0'));
  Words words;
  const Ids wanted = tokenize(target, options_, words);
  const Ids found = tokenize(prediction, options_, words);
  const NGrams wanted_ngrams(wanted, max_order), found_ngrams(found, max_order);
  std::vector<RougeScore> scores;
  for (const std::string& key : options_.score_keys) {
    if (key == "rougeL") {
      scores.push_back(score_of(LcsTable(wanted, found).length(),
                                static_cast<double>(wanted.size()),
                                static_cast<double>(found.size())));
    } else if (key == "rougeLsum") {
      scores.push_back(
          summary_lcs(sentences(target, options_, words), sentences(prediction, options_, words)));
    } else {
      const auto n = static_cast<size_t>(key[5] - '0');
      const int64_t matched = NGrams::matches(wanted_ngrams.counts(n), found_ngrams.counts(n));
      scores.push_back(score_of(static_cast<double>(matched),
                                static_cast<double>(wanted_ngrams.total(n)),
                                static_cast<double>(found_ngrams.total(n))));
    }
  }
  return scores;
}

MetricFn rouge(RougeOptions options, bool verbose) {
  RougeScorer{options};  // an unknown type is an error now
  return {"rouge", [options, verbose](const Answers& targets, const Answers& predictions) {
            const auto means = bootstrap_means(fmeasures(options, targets, predictions));
            MetricValues metrics;
            for (size_t k = 0; k < means.size(); ++k) {
              metrics[options.score_keys[k]] = 100 * percentile(means[k], 0.5);
              if (verbose)
                fmt::print(stderr, "{} = {:.2f}, 95% confidence [{:.2f}, {:.2f}]\n",
                           options.score_keys[k], 100 * percentile(means[k], 0.5),
                           100 * percentile(means[k], 0.025), 100 * percentile(means[k], 0.975));
            }
            return metrics;
          }};
}

MetricFn rouge_mean(RougeOptions options) {
  RougeScorer{options};
  return {"rouge_mean", [options](const Answers& targets, const Answers& predictions) {
            const auto rows = fmeasures(options, targets, predictions);
            MetricValues metrics;
            for (size_t k = 0; k < rows.size(); ++k)
              metrics[options.score_keys[k]] = 100 * mean(rows[k]);
            return metrics;
          }};
}

}  // namespace quintet::data::metrics
