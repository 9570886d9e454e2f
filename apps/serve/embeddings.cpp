// POST /v1/embeddings: what the encoder makes of texts, a vector each or one for each token.

#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/serve/job_group.h"
#include "data/examples/base64.h"

namespace quintet::serve {
namespace {

struct EmbeddingRequest {
  std::vector<Text> inputs;
  bool base64 = false;  // little-endian float32, as OpenAI's
  bool each_token = false;
};

void check_dimensions(Fields& fields, int64_t width) {
  const int64_t most = std::numeric_limits<int32_t>::max();
  if (fields.integer("dimensions", width, 1, most) != width)
    throw ApiError(400,
                   fmt::format("dimensions: this model's vectors have {} numbers, and none can be "
                               "left out; give {} or leave the field out",
                               width, width),
                   "dimensions");
}

EmbeddingRequest read_request(Fields& fields, const Service& service) {
  const ModelSpec& spec = service.model().configured().model->spec();
  const auto is_second = [&](const char* name, const char* first, const char* second) {
    const std::string value = fields.string(name, first);
    if (value != first && value != second)
      throw ApiError(400, fmt::format("{}: {} or {}", name, first, second), name);
    return value == second;
  };
  check_model(fields, service.model().name());
  EmbeddingRequest request{
      .inputs = texts(fields, "input", service.options().limits.prompts, spec.vocab_size),
      .base64 = is_second("encoding_format", "float", "base64"),
      .each_token = is_second("pooling", "mean", "none")};
  check_dimensions(fields, spec.emb_dim());
  fields.string("user", "");
  fields.check_all_read();
  return request;
}

void write_vector(std::string& out, std::span<const float> values, bool base64) {
  if (base64) {
    const auto* bytes = reinterpret_cast<const char*>(values.data());
    fmt::format_to(std::back_inserter(out), "\"{}\"",
                   data::base64(std::string(bytes, values.size_bytes())));
    return;
  }
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    out += i > 0 ? "," : "";
    if (std::isfinite(values[i]))
      fmt::format_to(std::back_inserter(out), "{}", values[i]);
    else
      out += "null";
  }
  out += ']';
}

/// Its vectors, and each is freed when it is written.
std::string data_of(std::vector<JobResult>& results, size_t width,
                    const EmbeddingRequest& request) {
  std::string out;
  for (size_t i = 0; i < results.size(); ++i) {
    fmt::format_to(std::back_inserter(out), R"({}{{"object":"embedding","index":{},"embedding":)",
                   i > 0 ? "," : "", i);
    std::span<const float> rows = results[i].encoded;
    if (request.each_token) {
      out += '[';
      for (; !rows.empty(); rows = rows.subspan(width)) {
        out += out.back() == '[' ? "" : ",";
        write_vector(out, rows.first(width), request.base64);
      }
      out += ']';
    } else {
      write_vector(out, rows, request.base64);
    }
    out += '}';
    results[i] = {};
  }
  return out;
}

}  // namespace

void answer_embeddings(Service& service, const HttpRequest& request, const Client& client,
                       std::shared_ptr<Exchange> exchange) {
  const TextModel& model = service.model();
  if (model.decoder_only())
    throw ApiError(400, "this model has no encoder, so it has no embeddings");
  const auto group = std::make_shared<JobGroup>(service, request, std::move(exchange));
  Fields fields(request.body, group->stop_check());
  const EmbeddingRequest embeddings = read_request(fields, service);
  std::vector<serving::Job> jobs;
  int64_t tokens = 0;
  for (const Text& input : embeddings.inputs) {
    group->check_wanted();
    jobs.push_back(service.job(service.encode(input, "input"), client, 0));
    tokens += std::ssize(jobs.back().inputs);
  }
  const int64_t width = model.configured().model->spec().emb_dim();
  const int64_t vectors = embeddings.each_token ? tokens : std::ssize(jobs);
  const auto held = service.answer_memory().hold_vectors(vectors, width, "input");
  if (embeddings.each_token) group->keep_each_token();
  group->start(std::move(jobs), held,
               [&model, tokens, width, embeddings](std::vector<JobResult>& results) {
                 const std::string data = data_of(results, static_cast<size_t>(width), embeddings);
                 return HttpResponse{.body = listed(model, tokens, data)};
               });
}

}  // namespace quintet::serve
