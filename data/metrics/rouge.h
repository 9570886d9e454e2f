#pragma once
// ROUGE as the package rouge_score computes it (Lin 2004, ROUGE-1.5.5).
//
//   RougeScorer scorer({.score_keys = {"rouge1", "rougeL"}, .use_stemmer = true});
//   const RougeScore score = scorer.score("the cat sat", "a cat sat")[1];

#include <string>
#include <string_view>
#include <vector>

#include "data/vocabularies/vocabulary.h"

namespace quintet::data::metrics {

struct RougeOptions {
  std::vector<std::string> score_keys = {"rouge1", "rouge2",
                                         "rougeLsum"};  // rouge1 to rouge9, rougeL
  bool use_stemmer = false;
  VocabularyPtr tokenizer = {};  // its ids are the tokens; none: rouge_score's DefaultTokenizer
};

struct RougeScore {
  double precision = 0, recall = 0, fmeasure = 0;
};

class RougeScorer {
 public:
  /// Throws a usage error for a type it does not know.
  explicit RougeScorer(RougeOptions options);
  /// One score for each of score_keys. Both texts are UTF-8; lines are sentences for rougeLsum.
  std::vector<RougeScore> score(std::string_view target, std::string_view prediction) const;

 private:
  RougeOptions options_;
};

/// NLTK's variant of Porter's stemmer ("NLTK_EXTENSIONS"), of a word in lower case.
std::string porter_stem(std::string_view word);

}  // namespace quintet::data::metrics
