#pragma once
// Requests answered by an engine whose steps read draft tokens, for verbs that answer lists of inputs.
//
//   DraftedAnswers answers(flags.drafts, model, type, {.batch = 8, .max_length = 128}, ranks);
//   answers.answer(ids, std::move(requests))[0].front().ids();

#include "apps/drafts/served_model.h"
#include "models/decoding/predict.h"
#include "models/serving/engine.h"

namespace quintet {

class DraftedAnswers {
 public:
  struct Limits {
    int64_t batch = 1;       // requests at a time
    int64_t max_length = 0;  // tokens of an answer
    CacheType cache_type = CacheType::native;
  };
  DraftedAnswers(const DraftFlags& flags, const TextModel& model, std::optional<WeightType> type,
                 const Limits& limits, SharedMemoryGroup* ranks);

  /// What each request gets, whose inputs are ids of the encoder or a prefix without start token. Throws what a request
  /// ended with.
  decoding::Answers answer(std::span<const std::vector<int32_t>> inputs,
                           std::vector<decoding::DecodingRequest> requests);
  /// "17 tokens in 5 steps; 12 of 13 guesses were right", of all answers so far.
  std::string text() const;

 private:
  const bool decoder_only_;
  const int64_t vocab_size_;
  serving::EngineOptions options_;
  Drafting drafting_;
  ServedModel served_;
  serving::Engine engine_;
  int64_t tokens_ = 0;  // answered
};

}  // namespace quintet
