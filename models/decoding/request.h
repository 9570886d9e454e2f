#pragma once
// One request's generation, step by step, as transformers' generate does it: greedy search,
// sampling and beam search with its rules. A request knows nothing of others that are computed at
// the same time; who runs it (generate() below, a server's engine) gathers the rows of many for
// each step.
//
//   auto decoder = start_decoding({.rules = {.max_new_tokens = 64}, .num_beams = 4}, vocab);
//   while (!decoder->rows().empty())
//     decoder->advance(logits_after(decoder->rows()));              // [rows, vocab]
//   use(decoder->results().front());                                // best first
//
// Rows number a request's sequences from 0; a row keeps its cache from step to step, or goes on
// from another row's (`source`). A search that writes one sequence may be told draft tokens, which the next step
// reads, too: as the same row at the positions behind (speculative decoding, arXiv:2211.17192). It takes those that it
// would have chosen, and its answer is what it is without them.

#include <functional>
#include <memory>

#include "models/decoding/search/logit_rules.h"
#include "models/decoding/search/token_model.h"
#include "models/decoding/search/top_k_result.h"

namespace quintet::decoding {

enum class EarlyStopping { no, yes, never };  // transformers' False, True and "never"

struct DecodingRequest {
  TokenList prompt{0};    // read before the first token is chosen; begins with the start token
  int64_t prefilled = 0;  // how many of them the model's cache holds already, in row 0
  TokenList context =
      {};  // before the prompt, in the cache and counted by no position: rules see them
  TokenList inputs = {};  // of the encoder, for the rules that look at them
  LogitRules rules = {};  // max_new_tokens must be positive; eos_ids end a sequence
  SamplingParameters sampling = {};
  int64_t num_return_sequences = 1;  // samples, or the best of the beams
  int64_t num_beams = 1;
  float length_penalty = 1;  // beams are scored by log probability / generated length ^ this
  EarlyStopping early_stopping = EarlyStopping::no;
  bool renormalize_logits = false;  // beams: make probabilities of what the rules leave
  /// A given answer: nothing is searched, its tokens are read one by one and scored.
  TokenList targets = {};
  /// Told a sequence's tokens one by one, says whether it ends there, as with an end token (stop
  /// strings); empty: it does not. Each sequence has a copy, which must go on by itself.
  std::function<bool(int32_t token)> stops = {};

  /// What rules see before the first token is chosen.
  TokenList history() const {
    TokenList tokens = context;
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    return tokens;
  }
  /// Of history().
  int64_t prompt_length() const { return std::ssize(context) + std::ssize(prompt); }
  /// Throws a usage error naming a value out of its range.
  void check(int64_t vocab_size) const;
};

enum class FinishReason { eos, stop, length };

struct Hypothesis {
  std::vector<TokenChoice> tokens = {};  // generated, the end token included
  float score = 0;                       // sum of log_prob; beams: with the length penalty
  FinishReason finish = FinishReason::length;

  TokenList ids() const;
};

struct RowStep {
  int32_t row = 0;
  int32_t token = 0;
  int32_t position = 0;  // in the decoder's sequence
  int32_t source = 0;    // whose history it continues
};

/// A sequence that draft tokens may continue.
struct DraftedSequence {
  std::span<const int32_t> tokens;  // of the prompt and the answer; the next step reads the last
  int64_t room = 0;  // most draft tokens that may follow; 0 while a prompt is read, and at the end
};

class RequestDecoder {
 public:
  virtual ~RequestDecoder() = default;
  /// What the next step reads, by increasing row; empty once the request is answered.
  virtual std::span<const RowStep> rows() const = 0;
  /// Logits [rows().size(), vocab] of the token after each; they are changed.
  virtual void advance(std::span<float> logits) = 0;
  /// Nothing, throughout, for searches that take no drafts.
  virtual std::optional<DraftedSequence> drafted() const { return std::nullopt; }
  /// Draft tokens of the next step, at most drafted()->room, in place of those that were given before.
  virtual void give_drafts(std::span<const int32_t>) {}
  /// What the next step may answer instead of logits; null: only they will do. The same throughout.
  virtual const SamplingRequest* sampling_request() const { return nullptr; }
  virtual void advance(const TopKResult&) { throw Bug("whole rows are needed"); }
  /// num_return_sequences hypotheses, beams best first, samples in their order; before the end,
  /// what is there so far.
  virtual std::vector<Hypothesis> results() const = 0;
  /// The same without a copy, once it is over: the search is left without them.
  virtual std::vector<Hypothesis> take_results() { return results(); }
  /// The i-th of the results, without a copy; null where what it begins with may still change.
  virtual const Hypothesis* settled(size_t) const { return nullptr; }
};

/// Rows that a request needs at most.
int64_t rows_of(const DecodingRequest& request);

/// Throws as DecodingRequest::check.
std::unique_ptr<RequestDecoder> start_decoding(DecodingRequest request, int64_t vocab_size);

/// Advances all, one an item of the model, until each is answered; the model has begun with
/// num_decodes = `rows_per_item`.
void run(TokenModel& model, std::span<const std::unique_ptr<RequestDecoder>> running,
         int64_t rows_per_item);

/// Answers all requests, one an item of the model, which has begun with num_decodes =
/// `rows_per_item`.
std::vector<std::vector<Hypothesis>> generate(TokenModel& model,
                                              std::span<const DecodingRequest> requests,
                                              int64_t rows_per_item);

}  // namespace quintet::decoding
