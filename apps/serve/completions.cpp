// POST /v1/completions and /v1/chat/completions.

#include <algorithm>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>

#include "apps/serve/answer_text.h"
#include "apps/serve/job_group.h"
#include "data/vocabularies/text_stream.h"

namespace quintet::serve {
namespace {

using decoding::FinishReason;
using decoding::Hypothesis;
using decoding::TokenChoice;

const char* reason_text(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(Service& service, CompletionRequest request, std::shared_ptr<JobGroup> group)
      : service_(service), request_(std::move(request)), group_(std::move(group)) {
    static std::atomic<uint64_t> count{0};
    id_ = fmt::format("{}cmpl-{:x}-{}", request_.chat ? "chat" : "", created_, ++count);
    opened_ = opened();
  }

  void start(const Client& client) {
    const AnswerMemory::Held held = hold();
    std::vector<serving::Job> jobs;
    for (size_t i = 0; i < request_.prompts.size(); ++i) {
      group_->check_wanted();
      std::vector<int32_t> ids = service_.encode(request_.prompts[i], "prompt");
      prompt_tokens_ += std::ssize(ids);
      serving::Job job = service_.job(std::move(ids), client, request_.priority);
      decoding::DecodingRequest generation = request_.generation;
      generation.sampling.seed += i;
      set_search(job, std::move(generation), vocabulary_size(), service_.model().decoder_only());
      jobs.push_back(std::move(job));
    }
    const auto self = shared_from_this();
    if (request_.stream) begin_stream(jobs.size());
    group_->start(std::move(jobs), held, [self](auto& results) { return self->finish(results); });
  }

 private:
  struct Part {  // of a stream
    data::TextStream text;
    size_t tokens = 0;
    bool begun = false, ended = false;
  };

  AnswerMemory::Held hold() const {
    const decoding::DecodingRequest& generation = request_.generation;
    const bool beams = generation.num_beams > 1;
    const int64_t rows = decoding::rows_of(generation);
    return service_.answer_memory().hold({.prompts = std::ssize(request_.prompts),
                                          .rows = rows,
                                          .answers = request_.stream ? 0 : request_.n,
                                          .tokens = generation.rules.max_new_tokens,
                                          .logprobs = request_.logprobs.value_or(-1),
                                          .beams = beams},
                                         {.rows = beams               ? "num_beams"
                                                  : rows > request_.n ? "best_of"
                                                                      : "n"});
  }

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

  /// The beginning of an answer or event, up to the first of its choices.
  std::string opened() const {
    JsonText head = {{"id", id_},
                     {"object", !request_.chat    ? "text_completion"
                                : request_.stream ? "chat.completion.chunk"
                                                  : "chat.completion"},
                     {"created", created_},
                     {"model", service_.model().name()}};
    if (!request_.warning.empty()) head["warning"] = request_.warning;
    std::string out = dumped(head);
    out.back() = ',';
    return out + "\"choices\":[";
  }
  /// A choice, but for its last brace. `begins`: nothing of it was sent before. `logprobs`: null
  /// without.
  void write_choice(std::string& out, size_t index, std::string_view text, bool begins,
                    const LogprobsText* logprobs, const char* reason) const {
    fmt::format_to(std::back_inserter(out), R"({{"index":{},)", index);
    if (!request_.chat) {
      out += R"("text":)";
      write_string(out, text);
    } else {
      out += request_.stream ? R"("delta":{)" : R"("message":{)";
      if (begins) out += R"("role":"assistant",)";
      out += R"("content":)";
      write_string(out, text);
      out += request_.stream ? "}" : R"(,"refusal":null})";
    }
    out += R"(,"logprobs":)";
    logprobs != nullptr ? logprobs->write(out) : void(out += "null");
    out += R"(,"finish_reason":)";
    reason != nullptr ? write_string(out, reason) : void(out += "null");
  }
  JsonText usage(const std::vector<JobResult>& results) const {
    int64_t tokens = 0;
    for (const JobResult& result : results)
      for (const Hypothesis& one : result.hypotheses) tokens += std::ssize(one.tokens);
    return {{"prompt_tokens", prompt_tokens_},
            {"completion_tokens", tokens},
            {"total_tokens", prompt_tokens_ + tokens}};
  }

  void write_answer(std::string& out, size_t index, const Hypothesis& one) const {
    const data::VocabularyPtr& vocabulary = service_.model().targets();
    const char* reason = reason_text(one.finish);
    if (!request_.logprobs) {
      write_choice(out, index, data::decode_until(vocabulary, one.ids(), request_.stops), true,
                   nullptr, reason);
    } else {
      LogprobsText logprobs(*vocabulary, request_.chat);
      data::TextStream text(vocabulary, request_.stops);
      for (const TokenChoice& token : one.tokens) {
        logprobs.add(token, text.text().size());
        text.push(token.token);
      }
      text.finish();
      write_choice(out, index, text.text(), true, &logprobs, reason);
    }
    if (request_.generation.num_beams > 1) {
      out += R"(,"score":)";
      write_number(out, static_cast<double>(one.score));
    }
    out += '}';
  }

  HttpResponse finish(std::vector<JobResult>& results) {
    if (request_.stream) return end_stream(results);
    const std::string counted = dumped(usage(results));
    std::string out = opened_;
    size_t index = 0;
    for (JobResult& result : results) {
      for (const Hypothesis* one : best(result.hypotheses)) {
        if (index > 0) out += ',';
        write_answer(out, index++, *one);
      }
      result = {};  // its text is there now
    }
    out += R"(],"usage":)" + counted + "}\n";
    return {.status = 200, .body = std::move(out)};
  }

  void begin_stream(size_t prompts) {
    for (int64_t i = 0; i < static_cast<int64_t>(prompts) * request_.n; ++i)
      parts_.push_back({.text = data::TextStream(service_.model().targets(), request_.stops)});
    group_->stream([self = shared_from_this()](size_t job, const decoding::RequestDecoder& search) {
      for (size_t i = 0; i < static_cast<size_t>(self->request_.n); ++i)
        // Which beam is the best is known only at the end.
        if (const Hypothesis* one = search.settled(i)) self->show(job, i, *one, false);
    });
  }

  /// Sends what is new in the i-th of a job's answers.
  void show(size_t job, size_t i, const Hypothesis& one, bool last) {
    const size_t index = job * static_cast<size_t>(request_.n) + i;
    Part& part = parts_[index];
    if (part.ended) return;
    LogprobsText logprobs(*service_.model().targets(), request_.chat);
    std::string text;
    const bool is_new = part.tokens < one.tokens.size();
    for (; part.tokens < one.tokens.size(); ++part.tokens) {
      const TokenChoice& token = one.tokens[part.tokens];
      if (request_.logprobs) logprobs.add(token, part.text.text().size());
      text += part.text.push(token.token);
    }
    if (last) text += part.text.finish();
    part.ended = last;
    if (text.empty() && !last && !(request_.logprobs && is_new)) return;
    std::string body = opened_;
    write_choice(body, index, text, !std::exchange(part.begun, true),
                 request_.logprobs ? &logprobs : nullptr, last ? reason_text(one.finish) : nullptr);
    group_->send(body + "}]}");
  }

  HttpResponse end_stream(const std::vector<JobResult>& results) {
    for (size_t job = 0; job < results.size(); ++job) {
      const std::vector<Hypothesis>& all = results[job].hypotheses;
      for (size_t i = 0; i < std::min(all.size(), static_cast<size_t>(request_.n)); ++i)
        show(job, i, all[i], true);
    }
    if (request_.include_usage)
      group_->send(opened_ + R"(],"usage":)" + dumped(usage(results)) + "}");
    group_->send("[DONE]");
    return {};
  }

  Service& service_;
  const CompletionRequest request_;
  const std::shared_ptr<JobGroup> group_;
  const int64_t created_ = std::time(nullptr);
  std::string id_, opened_;
  int64_t prompt_tokens_ = 0;
  std::vector<Part> parts_;
};

using ReadRequest = CompletionRequest (*)(Fields, const TextModel&, const ServeLimits&);

void answer_with(ReadRequest read, Service& service, const HttpRequest& request,
                 const Client& client, std::shared_ptr<Exchange> exchange) {
  auto group = std::make_shared<JobGroup>(service, request, std::move(exchange));
  CompletionRequest completion =
      read(Fields(request.body, group->stop_check()), service.model(), service.options().limits);
  std::make_shared<Completion>(service, std::move(completion), std::move(group))->start(client);
}

}  // namespace

void answer_completion(Service& service, const HttpRequest& request, const Client& client,
                       std::shared_ptr<Exchange> exchange) {
  answer_with(read_completion, service, request, client, std::move(exchange));
}

void answer_chat(Service& service, const HttpRequest& request, const Client& client,
                 std::shared_ptr<Exchange> exchange) {
  answer_with(read_chat, service, request, client, std::move(exchange));
}

}  // namespace quintet::serve
