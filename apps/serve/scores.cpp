// POST /v1/score and POST /v1/embeddings: what the model thinks of given texts.

#include <nlohmann/json.hpp>

#include <cstring>

#include "apps/serve/job_group.h"
#include "data/base64.h"
#include "models/decoding/scoring.h"

namespace quintet::serve {
namespace {

std::vector<float> mean_of(std::span<const float> encoded, size_t width) {
  std::vector<double> sum(width, 0);
  for (size_t i = 0; i < encoded.size(); ++i) sum[i % width] += static_cast<double>(encoded[i]);
  std::vector<float> mean;
  for (double s : sum)
    mean.push_back(static_cast<float>(s / static_cast<double>(encoded.size() / width)));
  return mean;
}

JsonText answer_of(const TextModel& model, int64_t prompt_tokens, JsonText data) {
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model.name()},
          {"usage", {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}}}};
}

}  // namespace

void answer_score(Service& service, const HttpRequest& request, const Client& client,
                  std::shared_ptr<Exchange> exchange) {
  const ServeLimits& limits = service.options().limits;
  const TextModel& model = service.model();
  const int64_t vocab_size = model.configured().model->vocab_size();
  Fields fields(request.body);
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
  int64_t tokens = 0;
  std::vector<serving::Job> jobs;
  for (size_t i = 0; i < targets.size(); ++i) {
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
    job.rows = 1;
    job.max_length = std::ssize(ids);
    job.search = decoding::start_scoring(std::move(ids), vocab_size, alternatives,
                                         model.decoder_only() ? job.inputs.back() : 0);
    jobs.push_back(std::move(job));
  }
  std::make_shared<JobGroup>(service, "/v1/score", std::move(exchange))
      ->start(std::move(jobs), [&model, tokens](const std::vector<JobResult>& results) {
        JsonText data = JsonText::array();
        for (const JobResult& result : results) {
          const decoding::Hypothesis& one = result.hypotheses.front();
          JsonText item = {{"index", data.size()},
                           {"score", one.score},
                           {"tokens", one.ids()},
                           {"token_logprobs", JsonText::array()}};
          for (const auto& token : one.tokens) {
            item["token_logprobs"].push_back(token.model_log_prob);
            if (token.top.empty()) continue;
            JsonText top = JsonText::array();
            for (const auto& other : token.top)
              top.push_back({{"id", other.token}, {"logprob", other.log_prob}});
            item["top_logprobs"].push_back(std::move(top));
          }
          data.push_back(std::move(item));
        }
        return HttpResponse{.body = dumped(answer_of(model, tokens, std::move(data))) + "\n"};
      });
}

void answer_embeddings(Service& service, const HttpRequest& request, const Client& client,
                       std::shared_ptr<Exchange> exchange) {
  const TextModel& model = service.model();
  if (model.decoder_only())
    throw ApiError(400, "this model has no encoder, so it has no embeddings");
  Fields fields(request.body);
  check_model(fields, model.name());
  const std::vector<Text> inputs = texts(fields, "input", service.options().limits.prompts,
                                         model.configured().model->vocab_size());
  const std::string format = fields.string("encoding_format", "float");
  if (format != "float" && format != "base64")
    throw ApiError(400, "encoding_format: float or base64", "encoding_format");
  fields.string("user", "");
  fields.check_all_read();
  std::vector<serving::Job> jobs;
  int64_t tokens = 0;
  for (const Text& input : inputs) {
    jobs.push_back(service.job(service.encode(input, "input"), client, 0));
    tokens += std::ssize(jobs.back().inputs);
  }
  std::vector<int64_t> lengths;
  for (const serving::Job& job : jobs) lengths.push_back(std::ssize(job.inputs));
  std::make_shared<JobGroup>(service, "/v1/embeddings", std::move(exchange))
      ->start(std::move(jobs), [&model, tokens, lengths,
                                format](const std::vector<JobResult>& results) {
        JsonText data = JsonText::array();
        for (const JobResult& result : results) {
          const size_t width = result.encoded.size() / static_cast<size_t>(lengths[data.size()]);
          const std::vector<float> mean = mean_of(result.encoded, width);
          std::string bytes(4 * mean.size(), '\0');
          std::memcpy(bytes.data(), mean.data(), bytes.size());
          data.push_back(
              {{"object", "embedding"},
               {"index", data.size()},
               {"embedding", format == "float" ? JsonText(mean) : JsonText(data::base64(bytes))}});
        }
        return HttpResponse{.body = dumped(answer_of(model, tokens, std::move(data))) + "\n"};
      });
}

}  // namespace quintet::serve
