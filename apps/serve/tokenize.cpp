// POST /tokenize and /detokenize: the vocabulary alone, with vLLM's fields.

#include <nlohmann/json.hpp>

#include "apps/serve/job_group.h"

namespace quintet::serve {

void answer_tokenize(Service& service, const HttpRequest& request, const Client&,
                     std::shared_ptr<Exchange> exchange) {
  Fields fields(request.body);
  check_model(fields, service.model().name());
  const auto prompt = fields.get("prompt");
  if (!prompt || !prompt->is_string()) throw ApiError(400, "prompt: expected a string", "prompt");
  const bool add_special_tokens = fields.boolean("add_special_tokens", true);
  fields.check_all_read();
  const std::string text = prompt->as_string();
  const std::vector<int32_t> ids =
      add_special_tokens ? service.model().encode(text) : service.model().encode_text(text);
  service.answer(request, *exchange,
                 {.body = dumped({{"count", ids.size()},
                                  {"max_model_len", service.options().limits.prompt_tokens},
                                  {"tokens", ids}}) +
                          "\n"});
}

void answer_detokenize(Service& service, const HttpRequest& request, const Client&,
                       std::shared_ptr<Exchange> exchange) {
  Fields fields(request.body);
  check_model(fields, service.model().name());
  const auto vocab_size = service.model().configured().model->vocab_size();
  const std::vector<Text> tokens = texts(fields, "tokens", 1, vocab_size);
  fields.check_all_read();
  if (tokens[0].text) throw ApiError(400, "tokens: expected a list of token ids", "tokens");
  service.answer(
      request, *exchange,
      {.body = dumped({{"prompt", service.model().targets()->decode(tokens[0].ids)}}) + "\n"});
}

}  // namespace quintet::serve
