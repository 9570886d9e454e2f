#include "apps/serve/service.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/serve/job_group.h"
#include "apps/serve/log.h"
#include "apps/serve/page.h"

namespace quintet::serve {
namespace {

bool from_this_page(const HttpRequest& request) {
  const size_t scheme = request.origin.find("://");
  return scheme != std::string::npos && request.origin.substr(scheme + 3) == request.host;
}

}  // namespace

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = error.body()};
  if (error.status() == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Service::Service(const TextModel& model, std::unique_ptr<serving::ServedNetwork> network,
                 ServiceOptions options)
    : model_(model), options_(std::move(options)), engine_(std::move(network), options_.engine) {}

void Service::drain() {
  draining_ = true;
  engine_.close();
}

std::vector<int32_t> Service::encode(const Text& prompt, const std::string& field) const {
  const int64_t most = options_.limits.prompt_tokens;
  std::vector<int32_t> ids = prompt.text ? model_.encode(*prompt.text) : prompt.ids;
  if (std::ssize(ids) > most)
    throw ApiError(400,
                   fmt::format("{}: {} tokens; at most {} are allowed", field, ids.size(), most),
                   field, "context_length_exceeded");
  return ids;
}

serving::Job Service::job(std::vector<int32_t> ids, const Client& client, int priority) const {
  if (model_.decoder_only()) ids.insert(ids.begin(), 0);
  serving::Job job;
  job.inputs = std::move(ids);
  job.client = client.name;
  job.priority = client.priority + priority;
  return job;
}

HttpResponse Service::ready() const {
  if (draining_ || engine_.broken())
    return error_response(
        ApiError(503, engine_.broken() ? "the device has failed" : "shutting down"));
  return {.body = "{\"status\": \"ready\"}\n"};
}

HttpResponse Service::models(const std::string& target) const {
  using Json = nlohmann::ordered_json;
  const Json ours = {{"id", model_.name()},
                     {"object", "model"},
                     {"created", 0},
                     {"owned_by", "quintet"},
                     {"step", model_.trained().step},
                     {"max_prompt_tokens", options_.limits.prompt_tokens},
                     {"max_tokens", options_.limits.answer_tokens}};
  if (target == "/v1/models")
    return {.body = dumped(Json{{"object", "list"}, {"data", Json::array({ours})}}) + "\n"};
  if (target == "/v1/models/" + model_.name()) return {.body = dumped(ours) + "\n"};
  throw ApiError(404, "no such model", "model", "model_not_found");
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const auto now = [&](const ApiError& error) {
    metrics_.answered(request.target.starts_with("/v1/") ? request.target : "other", error.status(),
                      0);
    exchange->respond(error_response(error));
  };
  try {
    Client client{.name = request.client};
    const bool open =
        request.target == "/" || request.target == "/health" || request.target == "/ready";
    if (options_.keys.needed() && !open) {
      const auto known = options_.keys.client(request.authorization);
      if (!known)
        throw ApiError(401, "an API key is needed: Authorization: Bearer KEY", "",
                       "invalid_api_key");
      client = *known;
    }
    route(request, client, exchange);
  } catch (const ApiError& error) {
    now(error);
  } catch (...) {
    now(as_api_error(std::current_exception()));
  }
}

void Service::route(const HttpRequest& request, const Client& client,
                    std::shared_ptr<Exchange> exchange) {
  using Answer = void (*)(Service&, const HttpRequest&, const Client&, std::shared_ptr<Exchange>);
  static const std::map<std::string, Answer> kPosts = {{"/v1/completions", answer_completion},
                                                       {"/v1/score", answer_score},
                                                       {"/v1/embeddings", answer_embeddings}};
  const auto post = kPosts.find(request.target);
  const bool get = request.method == "GET";
  const auto wrong_method = [](const char* allowed) {
    throw ApiError(405, fmt::format("this address takes {}", allowed));
  };
  if (post != kPosts.end()) {
    if (request.method != "POST") wrong_method("POST");
    // A page of another site must not use a server that only this machine can reach.
    if (!request.origin.empty() && !from_this_page(request))
      throw ApiError(403, "requests of another site's page are not answered");
    if (draining_) throw ApiError(503, "shutting down", "", "shutting_down");
    worker_.post([this, request, client, exchange, answer = post->second] {
      try {
        answer(*this, request, client, exchange);
      } catch (...) {
        const ApiError error = as_api_error(std::current_exception());
        metrics_.answered(request.target, error.status(), 0);
        exchange->respond(error_response(error));
      }
      if (options_.log_prompts) log_line("{} {}\n", request.target, request.body);
    });
    return;
  }
  const bool model = request.target == "/v1/models" || request.target.starts_with("/v1/models/");
  if (!model && request.target != "/" && request.target != "/health" &&
      request.target != "/ready" && request.target != "/metrics")
    throw ApiError(404, "there is nothing at this address");
  if (!get) wrong_method("GET");
  if (model)
    exchange->respond(models(request.target));
  else if (request.target == "/")
    exchange->respond({.body = std::string(kPage),
                       .content_type = "text/html; charset=utf-8",
                       .headers = {{"Content-Security-Policy",
                                    "default-src 'none'; style-src 'unsafe-inline'; script-src "
                                    "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri "
                                    "'none'; form-action 'none'; frame-ancestors 'none'"},
                                   {"X-Content-Type-Options", "nosniff"}}});
  else if (request.target == "/health")
    exchange->respond({.body = "{\"status\": \"ok\"}\n"});
  else if (request.target == "/ready")
    exchange->respond(ready());
  else
    exchange->respond({.body = metrics_.text(engine_.state(), connections_()),
                       .content_type = "text/plain; version=0.0.4"});
}

}  // namespace quintet::serve
