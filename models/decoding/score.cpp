#include "models/decoding/score.h"

namespace quintet::decoding {

std::vector<std::vector<float>> score_tokens(TokenModel& model,
                                             std::span<const std::vector<int32_t>> targets,
                                             int32_t start) {
  const int64_t vocab = model.vocab_size();
  std::vector<std::vector<float>> log_probs(targets.size());
  for (size_t t = 0;; ++t) {
    std::vector<int32_t> rows, tokens;
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i].size() <= t) continue;
      rows.push_back(static_cast<int32_t>(i));
      tokens.push_back(t == 0 ? start : targets[i][t - 1]);
    }
    if (rows.empty()) return log_probs;
    const std::vector<int32_t> positions(rows.size(), static_cast<int32_t>(t));
    const std::span<float> logits =
        model.step({.rows = rows, .tokens = tokens, .positions = positions, .sources = {}});
    const auto summaries = select(logits, std::ssize(rows), vocab, {});
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto item = static_cast<size_t>(rows[r]);
      const int32_t token = targets[item][t];
      QT_CHECK_AS(ExitCode::kData, token >= 0 && token < vocab,
                  "scoring: token {} lies outside the vocabulary of {}", token, vocab);
      const RowSummary& s = summaries[r].summary;
      log_probs[item].push_back(
          (logits[r * static_cast<size_t>(vocab) + static_cast<size_t>(token)] - s.max) -
          s.log_sum);
    }
  }
}

}  // namespace quintet::decoding
