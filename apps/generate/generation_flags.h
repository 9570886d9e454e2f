#pragma once
// What `quintet generate` may be told about each answer beside the decode function: rules, stop
// strings, log probabilities. Given any of them, or sampling, the inputs are answered as requests
// (models/decoding/request.h), as transformers' generate would.

#include <optional>

#include "apps/drafts/draft_flags.h"
#include "apps/flags/decode_flags.h"
#include "apps/huggingface/generation_config.h"
#include "apps/model/predictor.h"
#include "data/vocabularies/vocabulary.h"

namespace CLI {
class App;
}

namespace quintet {

struct GenerationFlags {
  DecodeFlags decode;
  DraftFlags drafts;
  std::optional<int64_t> num_decodes;
  int64_t seed = 0;
  std::vector<std::string> stops, bad_words;
  std::string prefix;
  int64_t min_length = 0, no_repeat_ngram_size = 0;
  std::optional<int64_t> logprobs;  // alternatives a token
  double repetition_penalty = 1;
  std::optional<double> length_penalty;
  std::string early_stopping = "no";
  bool renormalize_logits = false;
  decoding::LogitRules rules;  // of a Hugging Face directory; what flags say is added

  void add_to(CLI::App& app);
  /// What a Hugging Face directory says, where flags say nothing.
  void take(const GenerationDefaults& defaults);
  /// Throws a usage error for flags that exclude one another.
  void check();
  /// Whether inputs are answered as requests.
  bool makes_requests() const;
  /// The request for input number `index`, whose samples have a seed of their own: batches change
  /// no answer.
  decoding::DecodingRequest request(const data::VocabularyPtr& targets,
                                    const std::vector<int32_t>& eos_ids, int64_t max_length,
                                    int64_t index) const;
};

}  // namespace quintet
