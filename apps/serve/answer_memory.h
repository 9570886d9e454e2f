#pragma once
// Memory for answers: what a request's may take at most is counted before its work begins and held
// until its answer is written, so that neither one request nor many together take more than
// --answers_mib.
//
//   const AnswerSize size{.prompts = 64, .rows = 16, .answers = 16, .tokens = 1024, .logprobs = 5};
//   const auto held = memory.hold(size, AnswerFields{.rows = "n"});   // released with its last copy

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "data/vocabularies/vocabulary.h"

namespace quintet::serve {

/// How much is asked for.
struct AnswerSize {
  int64_t prompts = 1;
  int64_t rows = 1;     // sequences searched for each prompt
  int64_t answers = 1;  // of them, at most, those that are answered; 0: streamed, so never gathered
  int64_t tokens = 1;   // of each
  int64_t logprobs = -1;  // alternatives a token; -1: no log probabilities
  bool beams = false;
};

/// What the request calls them.
struct AnswerFields {
  std::string prompts = "prompt", rows = "n", tokens = "max_tokens";
};

class AnswerMemory {
 public:
  using Held = std::shared_ptr<const int64_t>;  // bytes

  /// `ids`: those that the model can generate. One request may hold half of `limit` bytes.
  AnswerMemory(int64_t limit, const data::Vocabulary& vocabulary, int64_t ids);

  /// An upper bound of the bytes of results: what the search notes of each token, its text, and
  /// the answer's JSON.
  int64_t bytes(const AnswerSize& size) const;
  /// Throws ApiError 400 naming the field to make smaller if that exceeds what one request may
  /// hold, 503 if it exceeds what others have left.
  Held hold(const AnswerSize& size, const AnswerFields& fields);
  /// The same for vectors of `width` numbers; `field` names what there are too many of.
  Held hold_vectors(int64_t count, int64_t width, const std::string& field);

 private:
  Held hold_bytes(int64_t most);
  void check(const AnswerSize& size, const AnswerFields& fields) const;

  const int64_t limit_;
  int64_t piece_bytes_ = 0;  // the longest of a token's text in JSON
  const std::shared_ptr<std::atomic<int64_t>> held_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace quintet::serve
