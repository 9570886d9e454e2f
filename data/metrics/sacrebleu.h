#pragma once
// BLEU and chrF as sacrebleu 2.6 computes them.
//
//   const BleuScore bleu = corpus_bleu(hypotheses, {references}, {.tokenize = "intl"});
//   fmt::print("{} = {} * {}\n", bleu.score, bleu.bp, bleu.precisions);

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::data::metrics {

using TextList = std::span<const std::string_view>;

struct BleuOptions {
  std::string tokenize = "13a";
  std::string smooth_method = "exp";        // exp, floor, add-k or none
  std::optional<double> smooth_value = {};  // of floor (0.1) and add-k (1)
  bool lowercase = false;
  bool use_effective_order = false;  // only orders that the hypotheses have
};

struct BleuScore {
  static constexpr size_t kMaxOrder = 4;
  double score = 0;  // 0 to 100
  std::array<double, kMaxOrder> counts{}, totals{}, precisions{};
  double bp = 1;
  int64_t sys_len = 0, ref_len = 0;
};

/// `references`: one list of texts, as long as `hypotheses`, for each reference stream. Throws a
/// usage error for an unknown tokenizer or smoothing, kData for unequal counts.
BleuScore corpus_bleu(TextList hypotheses,
                      const std::vector<std::vector<std::string_view>>& references,
                      const BleuOptions& options = {});
/// One hypothesis against its references; sacrebleu uses the effective order here.
BleuScore sentence_bleu(std::string_view hypothesis, TextList references, BleuOptions options = {});

/// Tokens with spaces between: 13a, intl, zh, char, none.
using BleuTokenizer = std::u32string (*)(std::u32string_view line);
BleuTokenizer bleu_tokenizer(const std::string& name);

struct ChrfOptions {
  size_t char_order = 6;
  size_t word_order = 0;  // 2: chrF++
  double beta = 2;
  bool lowercase = false;
  bool whitespace = false;
  bool eps_smoothing = false;
};
/// 0 to 100.
double corpus_chrf(TextList hypotheses,
                   const std::vector<std::vector<std::string_view>>& references,
                   const ChrfOptions& options = {});

}  // namespace quintet::data::metrics
