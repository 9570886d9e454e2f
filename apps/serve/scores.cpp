// POST /v1/score: what the model thinks of given answers.

#include <iterator>
#include <nlohmann/json.hpp>

#include "apps/serve/answer_text.h"
#include "apps/serve/job_group.h"
#include "models/decoding/scoring.h"

namespace quintet::serve {
namespace {

void write_score(std::string& out, size_t index, const decoding::Hypothesis& one) {
  fmt::format_to(std::back_inserter(out), R"({{"index":{},"score":)", index);
  write_number(out, static_cast<double>(one.score));
  fmt::format_to(std::back_inserter(out), R"(,"tokens":[{}],"token_logprobs":[)",
                 fmt::join(one.ids(), ","));
  bool has_top = false;
  for (size_t t = 0; t < one.tokens.size(); ++t) {
    out += t > 0 ? "," : "";
    write_number(out, static_cast<double>(one.tokens[t].model_log_prob));
    has_top = has_top || !one.tokens[t].top.empty();
  }
  out += ']';
  if (has_top) {
    out += R"(,"top_logprobs":[)";
    for (size_t t = 0; t < one.tokens.size(); ++t) {
      out += t > 0 ? "," : "";
      write_top(out, one.tokens[t].top);
    }
    out += ']';
  }
  out += '}';
}

}  // namespace

void answer_score(Service& service, const HttpRequest& request, const Client& client,
                  std::shared_ptr<Exchange> exchange) {
  const ServeLimits& limits = service.options().limits;
  const TextModel& model = service.model();
  check_answers(model);
  const int64_t vocab_size = model.configured().model->vocab_size();
  const auto group = std::make_shared<JobGroup>(service, request, std::move(exchange));
  Fields fields(request.body, group->stop_check());
  check_model(fields, model.name());
  const std::vector<Text> prompts = texts(fields, "prompt", limits.prompts, vocab_size);
  const std::vector<Text> targets = texts(fields, "target", limits.prompts, vocab_size);
  const bool add_eos = fields.boolean("add_eos", true);
  const int64_t alternatives = fields.integer("logprobs", 0, 0, limits.logprobs);
  fields.check_all_read();
  if (prompts.size() != targets.size() && prompts.size() != 1)
    throw ApiError(400,
                   fmt::format("target: {} of them for {} prompts; give one prompt, or as many",
                               targets.size(), prompts.size()),
                   "target");
  int64_t tokens = 0, longest = 0;
  std::vector<serving::Job> jobs;
  for (size_t i = 0; i < targets.size(); ++i) {
    group->check_wanted();
    serving::Job job =
        service.job(service.encode(prompts[prompts.size() == 1 ? 0 : i], "prompt"), client, 0);
    std::vector<int32_t> ids =
        targets[i].text ? model.targets()->encode(*targets[i].text) : targets[i].ids;
    if (add_eos) ids.push_back(model.eos_id());
    if (ids.empty() || std::ssize(ids) > limits.answer_tokens)
      throw ApiError(
          400,
          fmt::format("target: {} tokens; 1 to {} are allowed", ids.size(), limits.answer_tokens),
          "target", "context_length_exceeded");
    tokens += std::ssize(job.inputs) + std::ssize(ids);
    longest = std::max(longest, std::ssize(ids));
    job.rows = 1;
    job.max_length = std::ssize(ids);
    job.search = decoding::start_scoring(std::move(ids), vocab_size, alternatives,
                                         {.token = model.decoder_only() ? job.inputs.back() : 0});
    jobs.push_back(std::move(job));
  }
  const auto held = service.answer_memory().hold(
      {.prompts = std::ssize(jobs), .tokens = longest, .logprobs = alternatives},
      {.prompts = "target", .tokens = "target"});
  group->start(std::move(jobs), held, [&model, tokens](std::vector<JobResult>& results) {
    std::string data;
    for (size_t i = 0; i < results.size(); ++i) {
      data += i > 0 ? "," : "";
      write_score(data, i, results[i].hypotheses.front());
      results[i] = {};
    }
    return HttpResponse{.body = listed(model, tokens, data)};
  });
}

}  // namespace quintet::serve
