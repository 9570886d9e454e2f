#include "apps/serve/api/completion_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "data/vocabularies/text_stream.h"

namespace quintet::serve {
namespace {

using decoding::DecodingRequest;

/// {"token id": bias}, as OpenAI has it.
void read_logit_bias(Fields& fields, int64_t vocab_size, DecodingRequest& request) {
  const auto biases = fields.get("logit_bias");
  if (!biases) return;
  const auto wrong = [](const std::string& why) {
    throw ApiError(400, "logit_bias: " + why, "logit_bias");
  };
  if (!biases->is_object() || biases->size() > 1024)
    wrong("expected an object of at most 1024 token ids");
  for (const auto& [key, value] : biases->members()) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= vocab_size)
      wrong(fmt::format("'{}' is no token id below {}", key, vocab_size));
    if (!value.is_number() || !(std::abs(value.as_double()) <= 100))
      wrong(fmt::format("the bias of token {} must be a number between -100 and 100", key));
    request.rules.sequence_bias.push_back({{token}, static_cast<float>(value.as_double())});
  }
}

void read_stream(Fields& fields, CompletionRequest& request) {
  request.stream = fields.boolean("stream", false);
  const auto options = fields.get("stream_options");
  if (!options) return;
  if (!options->is_object() || !request.stream)
    throw ApiError(400, "stream_options: an object that goes with stream", "stream_options");
  for (const auto& [name, value] : options->members()) {
    if (name != "include_usage" || !value.is_bool())
      throw ApiError(400, "stream_options: takes include_usage, true or false", "stream_options");
    request.include_usage = value.as_bool();
  }
}

/// How many sequences are generated, and how.
void read_search(Fields& fields, const ServeLimits& limits, CompletionRequest& request) {
  DecodingRequest& g = request.generation;
  request.n = fields.integer("n", 1, 1, limits.sequences);
  const int64_t best_of = fields.integer("best_of", request.n, 1, limits.sequences);
  if (best_of < request.n)
    throw ApiError(400, fmt::format("best_of: {} is less than n, {}", best_of, request.n),
                   "best_of");
  const SearchDefaults& defaults = limits.defaults;
  // Who says how to sample wants no beams by default.
  const bool samples = fields.number("temperature", 0, 0, 2) > 0 || fields.get("top_p") ||
                       fields.get("top_k") || fields.get("seed");
  const int64_t beams = defaults.beams == 1 || samples ? 1 : std::max(defaults.beams, best_of);
  g.num_beams = fields.integer("num_beams", beams, 1, limits.sequences);
  const double temperature =
      fields.number("temperature", g.num_beams > 1 ? 0 : defaults.temperature, 0, 2);
  g.length_penalty = static_cast<float>(fields.number("length_penalty", 1, -10, 10));
  if (g.num_beams > 1) {
    if (temperature > 0)
      throw ApiError(400, "temperature: beams are searched, not sampled; leave it out or say 0",
                     "temperature");
    if (best_of > g.num_beams)
      throw ApiError(400, fmt::format("n: {} answers of {} beams", best_of, g.num_beams), "n");
    g.num_return_sequences = request.n;
  } else {
    g.num_return_sequences = best_of;
  }
  if (request.stream && best_of > request.n)
    throw ApiError(400, "best_of: the best is known only at the end; not together with stream",
                   "best_of");
  const auto seed = fields.integer("seed", -1, std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max());
  g.sampling.temperature = static_cast<float>(temperature);
  g.sampling.top_p = static_cast<float>(
      fields.number("top_p", defaults.top_p, std::numeric_limits<float>::min(), 1));
  g.sampling.top_k = fields.integer("top_k", defaults.top_k, 0, 1 << 20);
  g.sampling.seed = fields.get("seed") ? static_cast<uint64_t>(seed) : std::random_device()();
  g.sampling.alternatives = request.logprobs.value_or(0);
}

void read_stops(Fields& fields, const TextModel& model, const ServeLimits& limits,
                CompletionRequest& request) {
  request.stops = fields.strings("stop", limits.stops);
  for (const std::string& stop : request.stops)
    if (stop.empty() || std::ssize(stop) > limits.stop_bytes)
      throw ApiError(400, fmt::format("stop: must have 1 to {} bytes", limits.stop_bytes), "stop");
  request.generation.stops = data::stop_check(model.targets(), request.stops);
}

}  // namespace

void check_answers(const TextModel& model) {
  if (model.configured().model->spec().encoder_only())
    throw ApiError(400, "this model is an encoder alone: use /v1/embeddings");
}

void check_model(Fields& fields, const std::string& name) {
  const std::string wanted = fields.string("model", name);
  if (wanted != name)
    throw ApiError(404, fmt::format("model '{}' is not here; '{}' is", wanted, name), "model",
                   "model_not_found");
}

void read_generation(Fields& fields, const TextModel& model, const ServeLimits& limits,
                     const std::string& max_tokens, CompletionRequest& request) {
  const int64_t vocab_size = model.configured().model->vocab_size();
  read_stream(fields, request);
  read_search(fields, limits, request);
  read_stops(fields, model, limits, request);
  decoding::LogitRules& rules = request.generation.rules;
  rules.eos_ids = model.eos_ids();
  rules.max_new_tokens = fields.integer(
      max_tokens, std::min(model.answer_length(), limits.answer_tokens), 1, limits.answer_tokens);
  rules.min_new_tokens = fields.integer("min_tokens", 0, 0, rules.max_new_tokens);
  rules.repetition_penalty = static_cast<float>(fields.number("repetition_penalty", 1, 0.01, 100));
  rules.no_repeat_ngram_size = fields.integer("no_repeat_ngram_size", 0, 0, 1024);
  read_logit_bias(fields, vocab_size, request.generation);
  request.priority = static_cast<int>(fields.integer("priority", 0, -100, 0));
  fields.string("user", "");
  fields.refuse("frequency_penalty", 0, "is not supported; repetition_penalty is");
  fields.refuse("presence_penalty", 0, "is not supported; repetition_penalty is");
}

CompletionRequest read_completion(Fields fields, const TextModel& model,
                                  const ServeLimits& limits) {
  CompletionRequest request;
  check_model(fields, model.name());
  check_answers(model);
  request.prompts = texts(fields, "prompt", limits.prompts, model.configured().model->vocab_size());
  if (fields.get("logprobs")) request.logprobs = fields.integer("logprobs", 0, 0, limits.logprobs);
  read_generation(fields, model, limits, "max_tokens", request);
  fields.refuse(
      "echo", false,
      "an encoder-decoder's prompt is not part of its answer; /v1/score says how likely a "
      "given text is");
  fields.refuse("suffix", "", "is not supported");
  fields.check_all_read();
  return request;
}

}  // namespace quintet::serve
