// POST /v1/completions.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>
#include <numeric>

#include "apps/serve/job_group.h"
#include "data/text_stream.h"

namespace quintet::serve {
namespace {

using decoding::FinishReason;
using decoding::Hypothesis;
using decoding::TokenChoice;

const char* reason_text(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

/// Log probabilities of tokens [begin, ...) as OpenAI lists them.
JsonText logprobs_of(const data::Vocabulary& vocabulary, std::span<const TokenChoice> tokens,
                     size_t begin) {
  const auto piece = [&](int32_t token) {
    const std::string text = vocabulary.decode(std::span(&token, 1));
    return text.empty() ? fmt::format("token_id:{}", token) : text;
  };
  JsonText out = {{"tokens", JsonText::array()},
                  {"token_logprobs", JsonText::array()},
                  {"top_logprobs", JsonText::array()},
                  {"text_offset", JsonText::array()}};
  std::vector<int32_t> ids;
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (t >= begin) {
      JsonText top = JsonText::object();
      for (const auto& other : tokens[t].top) top.emplace(piece(other.token), other.log_prob);
      out["tokens"].push_back(piece(tokens[t].token));
      out["token_logprobs"].push_back(tokens[t].model_log_prob);
      out["top_logprobs"].push_back(std::move(top));
      out["text_offset"].push_back(vocabulary.decode(ids).size());
    }
    ids.push_back(tokens[t].token);
  }
  return out;
}

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(Service& service, CompletionRequest request, std::shared_ptr<Exchange> exchange)
      : service_(service),
        request_(std::move(request)),
        group_(std::make_shared<JobGroup>(service, "/v1/completions", std::move(exchange))) {
    static std::atomic<uint64_t> count{0};
    id_ = fmt::format("cmpl-{:x}-{}", created_, ++count);
  }

  void start(const Client& client) {
    std::vector<serving::Job> jobs;
    for (size_t i = 0; i < request_.prompts.size(); ++i) {
      std::vector<int32_t> ids = service_.encode(request_.prompts[i], "prompt");
      prompt_tokens_ += std::ssize(ids);
      serving::Job job = service_.job(std::move(ids), client, request_.priority);
      decoding::GenerationRequest generation = request_.generation;
      if (service_.model().decoder_only()) generation.prompt = {job.inputs.back()};
      generation.inputs = job.inputs;
      generation.sampling.seed += i;
      job.rows = decoding::rows_of(generation);
      job.max_length = generation.rules.max_new_tokens;
      job.search = start_generation(std::move(generation), vocabulary_size());
      jobs.push_back(std::move(job));
    }
    const auto self = shared_from_this();
    if (request_.stream) begin_stream(jobs.size());
    group_->start(std::move(jobs), [self](const auto& results) { return self->finish(results); });
  }

 private:
  struct Part {  // of a stream
    data::TextStream text;
    size_t tokens = 0;
    bool ended = false;
  };

  int64_t vocabulary_size() const { return service_.model().configured().model->vocab_size(); }

  /// The best n of those generated: OpenAI ranks by log probability a token.
  std::vector<const Hypothesis*> best(const std::vector<Hypothesis>& all) const {
    std::vector<const Hypothesis*> order;
    for (const Hypothesis& one : all) order.push_back(&one);
    const auto score = [](const Hypothesis* h) {
      double sum = 0;
      for (const TokenChoice& token : h->tokens) sum += static_cast<double>(token.model_log_prob);
      return sum / static_cast<double>(std::max<size_t>(1, h->tokens.size()));
    };
    if (request_.generation.num_beams == 1 && std::ssize(order) > request_.n)
      std::stable_sort(order.begin(), order.end(),
                       [&](auto* a, auto* b) { return score(a) > score(b); });
    order.resize(std::min(order.size(), static_cast<size_t>(request_.n)));
    return order;
  }

  JsonText head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", service_.model().name()}};
  }
  static JsonText choice(size_t index, const std::string& text, JsonText logprobs,
                         JsonText reason) {
    return {{"index", index},
            {"text", text},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(reason)}};
  }
  JsonText usage(const std::vector<JobResult>& results) const {
    int64_t tokens = 0;
    for (const JobResult& result : results)
      for (const Hypothesis& one : result.hypotheses) tokens += std::ssize(one.tokens);
    return {{"prompt_tokens", prompt_tokens_},
            {"completion_tokens", tokens},
            {"total_tokens", prompt_tokens_ + tokens}};
  }

  std::string text_of(const Hypothesis& one) const {
    const std::string text = service_.model().targets()->decode(one.ids());
    return text.substr(0, data::find_stop(text, request_.stops));
  }

  HttpResponse finish(const std::vector<JobResult>& results) {
    if (request_.stream) return end_stream(results);
    JsonText body = head();
    body["choices"] = JsonText::array();
    for (const JobResult& result : results)
      for (const Hypothesis* one : best(result.hypotheses)) {
        JsonText logprobs;
        if (request_.logprobs) logprobs = logprobs_of(*service_.model().targets(), one->tokens, 0);
        body["choices"].push_back(choice(body["choices"].size(), text_of(*one), std::move(logprobs),
                                         reason_text(one->finish)));
        if (request_.generation.num_beams > 1) body["choices"].back()["score"] = one->score;
      }
    body["usage"] = usage(results);
    return {.status = 200, .body = dumped(body) + "\n"};
  }

  void begin_stream(size_t prompts) {
    for (int64_t i = 0; i < static_cast<int64_t>(prompts) * request_.n; ++i)
      parts_.push_back({.text = data::TextStream(service_.model().targets(), request_.stops)});
    group_->stream([self = shared_from_this()](size_t job, const decoding::Generation& search) {
      // Which beam is the best is known only at the end.
      if (self->request_.generation.num_beams == 1) self->show(job, search.results(), false);
    });
  }

  /// Sends what is new in a job's answers.
  void show(size_t job, const std::vector<Hypothesis>& answers, bool last) {
    const auto n = static_cast<size_t>(request_.n);
    for (size_t i = 0; i < std::min(n, answers.size()); ++i) {
      Part& part = parts_[job * n + i];
      if (part.ended) continue;
      const Hypothesis& one = answers[i];
      std::string text;
      for (size_t t = part.tokens; t < one.tokens.size(); ++t)
        text += part.text.push(one.tokens[t].token);
      if (last) text += part.text.finish();
      part.ended = last;
      if (text.empty() && !last && !request_.logprobs) continue;
      JsonText logprobs;
      if (request_.logprobs)
        logprobs = logprobs_of(*service_.model().targets(), one.tokens, part.tokens);
      part.tokens = one.tokens.size();
      send(choice(job * n + i, text, std::move(logprobs),
                  last ? JsonText(reason_text(one.finish)) : JsonText()));
    }
  }

  void send(JsonText one_choice) {
    JsonText body = head();
    body["choices"] = JsonText::array({std::move(one_choice)});
    group_->send(dumped(body));
  }

  HttpResponse end_stream(const std::vector<JobResult>& results) {
    for (size_t job = 0; job < results.size(); ++job) show(job, results[job].hypotheses, true);
    if (request_.include_usage) {
      JsonText body = head();
      body["choices"] = JsonText::array();
      body["usage"] = usage(results);
      group_->send(dumped(body));
    }
    group_->send("[DONE]");
    return {};
  }

  Service& service_;
  const CompletionRequest request_;
  const std::shared_ptr<JobGroup> group_;
  const int64_t created_ = std::time(nullptr);
  std::string id_;
  int64_t prompt_tokens_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

void answer_completion(Service& service, const HttpRequest& request, const Client& client,
                       std::shared_ptr<Exchange> exchange) {
  CompletionRequest completion =
      read_completion(Fields(request.body), service.model(), service.options().limits);
  std::make_shared<Completion>(service, std::move(completion), std::move(exchange))->start(client);
}

}  // namespace quintet::serve
