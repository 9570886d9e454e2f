#include <cmath>

#include "data/metrics/ngrams.h"
#include "data/metrics/sacrebleu.h"
#include "data/metrics/t5_metrics.h"
#include "data/metrics/text.h"
#include "runtime/base/check.h"

namespace quintet::data::metrics {
namespace {

constexpr size_t kMaxOrder = BleuScore::kMaxOrder;

NGrams ngrams_of(std::string_view text, const BleuOptions& options, BleuTokenizer tokenizer,
                 Words& words) {
  const std::u32string points = code_points(options.lowercase ? lower(text) : text);
  const std::string tokens = utf8(tokenizer(rstrip(points)));
  return NGrams(words.ids(split(tokens)), kMaxOrder);
}

/// The reference length nearest to the hypothesis', the shorter of two as near.
int64_t closest_length(int64_t length, const std::vector<NGrams>& references) {
  int64_t best = -1;
  for (const NGrams& reference : references) {
    const auto candidate = static_cast<int64_t>(reference.size());
    const int64_t gain = best < 0 ? 1 : std::abs(best - length) - std::abs(candidate - length);
    if (gain > 0 || (gain == 0 && candidate < best)) best = candidate;
  }
  return best;
}

/// Adds one segment's statistics.
void add(BleuScore& sum, const NGrams& hypothesis, const std::vector<NGrams>& references) {
  const auto length = static_cast<int64_t>(hypothesis.size());
  sum.sys_len += length;
  sum.ref_len += closest_length(length, references);
  for (size_t n = 1; n <= kMaxOrder; ++n) {
    NGrams::Counts known = references[0].counts(n);
    for (size_t r = 1; r < references.size(); ++r)
      known = NGrams::largest(known, references[r].counts(n));
    sum.counts[n - 1] += static_cast<double>(NGrams::matches(hypothesis.counts(n), known));
    sum.totals[n - 1] += static_cast<double>(hypothesis.total(n));
  }
}

/// Precisions and score of the summed statistics; smoothing after Chen and Cherry, 2014.
void finish(BleuScore& bleu, const BleuOptions& options) {
  const std::string& method = options.smooth_method;
  QT_CHECK(method == "exp" || method == "floor" || method == "add-k" || method == "none",
           "bleu: smooth_method '{}' is not known; it is exp, floor, add-k or none", method);
  const double value = options.smooth_value.value_or(method == "floor" ? 0.1 : 1.0);
  if (bleu.sys_len < bleu.ref_len)
    bleu.bp =
        bleu.sys_len == 0
            ? 0
            : std::exp(1 - static_cast<double>(bleu.ref_len) / static_cast<double>(bleu.sys_len));
  bleu.score = 0;
  if (std::all_of(bleu.counts.begin(), bleu.counts.end(), [](double c) { return c == 0; })) return;
  size_t order = kMaxOrder;
  double halvings = 1;
  for (size_t n = 1; n <= kMaxOrder; ++n) {
    double& count = bleu.counts[n - 1];
    double& total = bleu.totals[n - 1];
    if (method == "add-k" && n > 1) {
      count += value;
      total += value;
    }
    if (total == 0) break;
    if (options.use_effective_order) order = n;
    double matched = count;
    if (count == 0 && method == "exp") matched = 1 / (halvings *= 2);
    if (count == 0 && method == "floor") matched = value;
    bleu.precisions[n - 1] = 100 * matched / total;
  }
  double log_sum = 0;
  constexpr double kLogOfZero = -9999999999;
  for (size_t n = 0; n < order; ++n)
    log_sum += bleu.precisions[n] == 0 ? kLogOfZero : std::log(bleu.precisions[n]);
  bleu.score = bleu.bp * std::exp(log_sum / static_cast<double>(order));
}

}  // namespace

BleuScore corpus_bleu(TextList hypotheses,
                      const std::vector<std::vector<std::string_view>>& references,
                      const BleuOptions& options) {
  QT_CHECK_AS(ExitCode::kData, !references.empty(), "bleu: no references");
  for (const auto& stream : references) check_counts("bleu", stream.size(), hypotheses.size());
  const BleuTokenizer tokenizer = bleu_tokenizer(options.tokenize);
  Words words;
  BleuScore bleu;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    std::vector<NGrams> known;
    for (const auto& stream : references)
      known.push_back(ngrams_of(stream[i], options, tokenizer, words));
    add(bleu, ngrams_of(hypotheses[i], options, tokenizer, words), known);
  }
  finish(bleu, options);
  return bleu;
}

BleuScore sentence_bleu(std::string_view hypothesis, TextList references, BleuOptions options) {
  options.use_effective_order = true;
  std::vector<std::vector<std::string_view>> streams;
  for (std::string_view reference : references) streams.push_back({reference});
  return corpus_bleu({&hypothesis, 1}, streams, options);
}

MetricFn bleu(const std::string& tokenizer) {
  bleu_tokenizer(tokenizer);  // an unknown one is an error now
  return {"bleu", [tokenizer](const Answers& targets, const Answers& predictions) -> MetricValues {
            const auto hypotheses = texts(predictions, "bleu", "prediction");
            std::vector<std::vector<std::string_view>> references;
            if (!targets.empty() && targets[0].get_if<Answers>() != nullptr)
              references = text_lists(targets, "bleu", "target");
            else
              references.push_back(texts(targets, "bleu", "target"));
            return {{"bleu", corpus_bleu(hypotheses, references, {.tokenize = tokenizer}).score}};
          }};
}

}  // namespace quintet::data::metrics
