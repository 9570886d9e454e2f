#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "apps/serve/api/completion_request.h"

namespace quintet::serve {
namespace {

[[noreturn]] void wrong(size_t index, const std::string& why) {
  throw ApiError(400, fmt::format("messages[{}]{}", index, why), "messages");
}

/// A string, or a list of parts that are text.
std::string content_of(const Json& message, size_t index) {
  if (!message.has("content")) wrong(index, ".content: is missing");
  const Json content = message["content"];
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) wrong(index, ".content: expected a string, or a list of parts");
  std::string text;
  for (const Json& part : content.items()) {
    const bool is_text = part.is_object() && part.has("type") && part["type"].is_string() &&
                         part["type"].as_string() == "text" && part.has("text") &&
                         part["text"].is_string();
    if (!is_text)
      wrong(index, ".content: these models read text: {\"type\": \"text\", \"text\": ...}");
    text += part["text"].as_string();
  }
  return text;
}

ChatMessage message_of(const Json& message, size_t index) {
  constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system", "developer"};
  if (!message.is_object() || !message.has("role") || !message["role"].is_string())
    wrong(index, ": expected an object with role and content");
  const std::string role = message["role"].as_string();
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    wrong(index, fmt::format(".role: {}, not '{}'; tools cannot be called",
                             "expected user, assistant, system or developer", role));
  for (const auto& [name, value] : message.members())
    if (name != "role" && name != "content" && !value.is_null())
      wrong(index, fmt::format(".{}: is not supported", name));
  return {role == "developer" ? "system" : role, content_of(message, index)};
}

std::vector<ChatMessage> messages_of(Fields& fields) {
  const auto value = fields.get("messages");
  if (!value || !value->is_array() || value->size() == 0)
    throw ApiError(400, "messages: expected a list of objects with role and content", "messages");
  std::vector<ChatMessage> messages;
  for (const Json& message : value->items())
    messages.push_back(message_of(message, messages.size()));
  return messages;
}

std::string prompt_of(const std::vector<ChatMessage>& messages, const TextModel& model,
                      CompletionRequest& request) {
  if (model.chat()) return model.chat()->prompt(messages);
  const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const ChatMessage& m) { return m.role == "user"; });
  if (last == messages.rend()) throw ApiError(400, "messages: none of a user", "messages");
  if (messages.size() > 1)
    request.warning =
        "the prompt is the last user message alone: the model's run has no ChatTemplate";
  return last->content;
}

void read_logprobs(Fields& fields, const ServeLimits& limits, CompletionRequest& request) {
  const bool wanted = fields.boolean("logprobs", false);
  const int64_t top = fields.integer("top_logprobs", 0, 0, limits.logprobs);
  if (top > 0 && !wanted)
    throw ApiError(400, "top_logprobs: needs \"logprobs\": true", "top_logprobs");
  if (wanted) request.logprobs = top;
}

}  // namespace

CompletionRequest read_chat(Fields fields, const TextModel& model, const ServeLimits& limits) {
  CompletionRequest request;
  request.chat = true;
  check_model(fields, model.name());
  check_answers(model);
  const std::vector<ChatMessage> messages = messages_of(fields);
  request.prompts = {{.text = prompt_of(messages, model, request), .ids = {}}};
  if (request.prompts[0].text->empty())
    throw ApiError(400, "messages: their text must not be empty", "messages");
  read_logprobs(fields, limits, request);
  const bool newer = fields.get("max_completion_tokens").has_value();
  if (newer) fields.refuse("max_tokens", nullptr, "is max_completion_tokens' old name: give one");
  read_generation(fields, model, limits, newer ? "max_completion_tokens" : "max_tokens", request);
  const auto nothing = nlohmann::ordered_json::array();
  for (const char* name : {"tools", "functions"})
    fields.refuse(name, nothing, "tools cannot be called");
  fields.refuse("tool_choice", "none", "tools cannot be called");
  fields.refuse("response_format", {{"type", "text"}}, "answers are text");
  fields.refuse("modalities", {"text"}, "answers are text");
  fields.check_all_read();
  return request;
}

}  // namespace quintet::serve
