#include "apps/serve/service.h"

#include <strings.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/process/version.h"
#include "apps/serve/api/fields.h"
#include "apps/serve/http/log.h"
#include "apps/serve/insist.h"
#include "apps/serve/job_group.h"
#include "apps/serve/page.h"
#include "runtime/base/clock.h"

namespace quintet::serve {
namespace {

bool from_this_page(const HttpRequest& request) {
  const size_t scheme = request.origin.find("://");
  return scheme != std::string::npos &&
         strcasecmp(request.origin.c_str() + scheme + 3, request.host.c_str()) == 0;
}

const std::map<std::string, Answer*> kPosts = {{"/v1/completions", answer_completion},
                                               {"/v1/chat/completions", answer_chat},
                                               {"/v1/score", answer_score},
                                               {"/v1/embeddings", answer_embeddings},
                                               {"/v1/batch", answer_batch},
                                               {"/tokenize", answer_tokenize},
                                               {"/detokenize", answer_detokenize}};

[[noreturn]] void not_found() {
  throw ApiError(404, "there is nothing at this address; /openapi.json lists what there is");
}

/// What a client wrote, for a line of the log.
std::string shown(std::string text) {
  constexpr size_t kMost = 200;
  if (text.size() > kMost) text.replace(kMost, std::string::npos, "...");
  for (char& c : text)
    if (c <= ' ' || c > '~') c = '?';
  return text;
}

/// Asked once a second by programs.
bool is_probe(const std::string& target) {
  return target == "/health" || target == "/ready" || target == "/metrics";
}

HttpResponse page() {
  return {.body = std::string(kPage),
          .content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; script-src "
                       "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri "
                       "'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"}}};
}

}  // namespace

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = error.body()};
  if (error.status() == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Service::Service(const TextModel& model, std::unique_ptr<serving::ServedNetwork> network,
                 ServiceOptions options, std::unique_ptr<serving::Drafter> drafter)
    : model_(model),
      options_(std::move(options)),
      engine_(std::move(network), options_.engine, std::move(drafter)),
      answer_memory_(options_.answer_bytes, *model.targets(),
                     model.configured().model->vocab_size()) {}

void Service::add(Service& other) {
  other.metrics_ = metrics_;
  others_.push_back(&other);
}

void Service::run() {
  std::vector<serving::Engine*> engines{&engine_};
  for (Service* other : others_) engines.push_back(&other->engine_);
  serving::run_engines(engines);
}

void Service::drain() {
  draining_ = true;
  engine_.close();
  for (Service* other : others_) other->drain();
}

void Service::abort() {
  engine_.abort();
  for (Service* other : others_) other->abort();
}

bool Service::broken() const {
  return engine_.broken() ||
         std::ranges::any_of(others_, [](const Service* other) { return other->broken(); });
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
  if (draining_ || broken())
    return error_response(ApiError(503, broken() ? "the device has failed" : "shutting down"));
  return {.body = "{\"status\": \"ready\"}\n"};
}

nlohmann::ordered_json Service::model_json() const {
  return {{"id", model_.name()},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "quintet"},
          {"step", model_.trained().step},
          {"max_prompt_tokens", options_.limits.prompt_tokens},
          {"max_tokens", options_.limits.answer_tokens}};
}

HttpResponse Service::models(const std::string& target) const {
  using Json = nlohmann::ordered_json;
  Json all = Json::array({model_json()});
  for (const Service* other : others_) {
    all.push_back(other->model_json());
    all.back()["parent"] = model_.name();  // of an adapter, as vLLM has it
  }
  if (target == "/v1/models")
    return {.body = dumped(Json{{"object", "list"}, {"data", all}}) + "\n"};
  for (const Json& one : all)
    if (target == "/v1/models/" + one["id"].get<std::string>()) return {.body = dumped(one) + "\n"};
  throw ApiError(404, "no such model", "model", "model_not_found");
}

Service& Service::named_in(const HttpRequest& request) {
  if (others_.empty() || request.target == "/v1/batch") return *this;  // whose lines name models
  const std::string wanted = Fields(request.body).string("model", model_.name());
  if (wanted == model_.name()) return *this;
  std::string names = "'" + model_.name() + "'";
  for (Service* other : others_) {
    if (wanted == other->model().name()) return *other;
    names += ", '" + other->model().name() + "'";
  }
  throw ApiError(404, fmt::format("model '{}' is not here; there are {}", wanted, names), "model",
                 "model_not_found");
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  Asked asked(request);
  const auto now = [&](const ApiError& error) {
    exchange->respond(error_response(error));
    answered(asked, error.status());
  };
  try {
    check_host(request);
    Client client{.name = request.client};
    const bool open =
        request.target == "/" || request.target == "/health" || request.target == "/ready";
    if (options_.keys.needed() && !open) {
      const auto known = options_.keys.client(request.authorization);
      if (!known)
        throw ApiError(401, "an API key is needed: Authorization: Bearer KEY", "",
                       "invalid_api_key");
      client = *known;
      asked.client = request.client = client.name;
    }
    route(std::move(request), client, exchange);
  } catch (const ApiError& error) {
    now(error);
  } catch (...) {
    now(as_api_error(std::current_exception()));
  }
}

void Service::check_host(const HttpRequest& request) const {
  const bool from_page = !request.origin.empty();
  if (!from_page && (!request.to_loopback || request.host.empty())) return;
  if (options_.hosts.allow(request.host)) return;
  if (request.host.empty())
    throw ApiError(403, "Host: is missing; a request with an Origin needs it", "",
                   "host_not_allowed");
  const std::string name = host_name(request.host).value_or("");
  throw ApiError(
      403,
      fmt::format("Host: this server was not told that it is '{0}'; start it with "
                  "--allowed_hosts={0} if it is, or use its address in numbers with dots or colons",
                  name),
      "", "host_not_allowed");
}

void Service::answer(const HttpRequest& request, Exchange& exchange, HttpResponse response) {
  const int status = response.status;
  exchange.respond(std::move(response));
  answered(Asked(request), status);
}

void Service::answered(const Asked& asked, int status, size_t prompts) {
  const double seconds = seconds_since(asked.arrived);
  if (status == kClientLeft)
    metrics_->cancelled();
  else
    metrics_->answered(asked.target, status, seconds);
  if (!options_.log_requests) return;
  // Nothing of what was asked or answered: error messages quote it.
  log_request("{} {} {} {} {:.0f} ms{}\n", shown(asked.client), shown(asked.method),
              shown(asked.target), status, 1000 * seconds,
              prompts > 0 ? fmt::format(", {} prompts", prompts) : "");
}

void Service::dispatch(HttpRequest request, const Client& client,
                       std::shared_ptr<Exchange> exchange) {
  const auto post = kPosts.find(request.target);
  if (post == kPosts.end()) not_found();
  if (draining_) throw ApiError(503, "shutting down", "", "shutting_down");
  reader_.post([this, request = std::move(request), client, exchange, answer = post->second] {
    try {
      answer(named_in(request), request, client, exchange);
    } catch (...) {
      insist([&, thrown = std::current_exception()] {
        const ApiError error = as_api_error(thrown);
        answered(Asked(request), exchange->gone() ? kClientLeft : error.status());
        exchange->respond(error_response(error));
      });
    }
    if (options_.log_prompts) log_line("{} {}\n", request.target, request.body);
  });
}

serving::EngineState Service::state() const {
  serving::EngineState sum = engine_.state();
  for (const Service* other : others_) {
    const serving::EngineState state = other->state();
    for (int64_t serving::EngineState::*count :
         {&serving::EngineState::waiting, &serving::EngineState::running,
          &serving::EngineState::rows, &serving::EngineState::memory_limit,
          &serving::EngineState::memory_reserved, &serving::EngineState::memory_used,
          &serving::EngineState::draft_memory, &serving::EngineState::steps,
          &serving::EngineState::row_steps, &serving::EngineState::encoder_tokens,
          &serving::EngineState::whole_rows, &serving::EngineState::shared_inputs,
          &serving::EngineState::draft_tokens, &serving::EngineState::accepted_drafts})
      sum.*count += state.*count;
    sum.seconds_computing += state.seconds_computing;
  }
  return sum;
}

std::optional<HttpResponse> Service::get(const std::string& target) const {
  if (target == "/") return page();
  if (target == "/health") return HttpResponse{.body = "{\"status\": \"ok\"}\n"};
  if (target == "/ready") return ready();
  if (target == "/version")
    return HttpResponse{.body = fmt::format("{{\"version\": \"{}\"}}\n", kVersion)};
  if (target == "/openapi.json") return HttpResponse{.body = std::string(kOpenApi)};
  if (target == "/metrics")
    return HttpResponse{.body = metrics_->text(state(), connections_()),
                        .content_type = "text/plain; version=0.0.4"};
  if (target == "/v1/models" || target.starts_with("/v1/models/")) return models(target);
  return std::nullopt;
}

void Service::route(HttpRequest request, const Client& client, std::shared_ptr<Exchange> exchange) {
  const auto wrong_method = [](const char* allowed) {
    throw ApiError(405, fmt::format("this address takes {}", allowed));
  };
  if (kPosts.contains(request.target)) {
    if (request.method != "POST") wrong_method("POST");
    // A page of another site must not use a server that only this machine can reach.
    if (!request.origin.empty() && !from_this_page(request))
      throw ApiError(403, "requests of another site's page are not answered");
    return dispatch(std::move(request), client, std::move(exchange));
  }
  auto response = get(request.target);
  if (!response) not_found();
  if (request.method != "GET") wrong_method("GET");
  if (is_probe(request.target)) return exchange->respond(std::move(*response));
  answer(request, *exchange, std::move(*response));
}

}  // namespace quintet::serve
