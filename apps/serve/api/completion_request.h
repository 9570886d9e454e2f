#pragma once
// POST /v1/completions and /v1/chat/completions as OpenAI's clients send them, and a little more:
// num_beams, length_penalty, top_k, repetition_penalty, no_repeat_ngram_size, min_tokens.

#include "apps/model/text_model.h"
#include "apps/serve/api/fields.h"
#include "models/decoding/request.h"

namespace quintet::serve {

/// Of requests that do not say.
struct SearchDefaults {
  int64_t beams = 1, top_k = 0;
  double temperature = 1, top_p = 1;
};

struct ServeLimits {
  int64_t prompts = 64;          // of one request
  int64_t prompt_tokens = 2048;  // of each
  int64_t answer_tokens = 1024;
  int64_t sequences = 16;  // n, best_of, num_beams
  int64_t stops = 4, stop_bytes = 256;
  int64_t logprobs = 20;
  double request_seconds = 300;
  SearchDefaults defaults;
};

struct CompletionRequest {
  std::vector<Text> prompts;
  decoding::DecodingRequest generation;  // of the first prompt; the others' seeds follow
  std::vector<std::string> stops;
  int64_t n = 1;  // answers to each prompt, the best of those that are generated
  std::optional<int64_t> logprobs;
  bool stream = false, include_usage = false;
  int priority = 0;
  bool chat = false;    // the answer is a message
  std::string warning;  // part of the answer
};

/// These two throw ApiError 400 naming the field.
CompletionRequest read_completion(Fields fields, const TextModel& model, const ServeLimits& limits);
/// The prompt is the conversation in the run's template, or without one the last user message.
CompletionRequest read_chat(Fields fields, const TextModel& model, const ServeLimits& limits);

/// Throws ApiError 404 for another model's name. Without a name ours is meant.
void check_model(Fields& fields, const std::string& name);
/// Throws ApiError 400 for an encoder alone.
void check_answers(const TextModel& model);
/// What both kinds of requests say of their answers; `max_tokens`: the field with their length.
void read_generation(Fields& fields, const TextModel& model, const ServeLimits& limits,
                     const std::string& max_tokens, CompletionRequest& request);

}  // namespace quintet::serve
