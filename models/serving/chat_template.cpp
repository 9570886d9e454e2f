#include "models/serving/chat_template.h"

#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr const char* kName = "quintet.serving.ChatTemplate";
constexpr std::string_view kContent = "{content}";

void append(std::string& text, const std::string& part, const std::string& content) {
  const size_t at = part.find(kContent);
  text.append(part, 0, at).append(content).append(part, at + kContent.size());
}

void check_part(const std::string& part, const std::string& field) {
  const size_t at = part.find(kContent);
  QT_CHECK(at != std::string::npos && part.find(kContent, at + 1) == std::string::npos,
           "{}.{} = '{}': a part of a conversation has {} once, where the message's text goes",
           kName, field, part, kContent);
}

}  // namespace

std::string ChatTemplate::prompt(std::span<const ChatMessage> messages) const {
  std::string text;
  for (const ChatMessage& message : messages)
    append(text,
           message.role == "user"     ? user
           : message.role == "system" ? system
                                      : assistant,
           message.content);
  return text + answer;
}

std::optional<ChatTemplate> chat_template(const gin::Config& config) {
  bool bound = false;
  for (const char* field : {"system", "user", "assistant", "answer"})
    bound = bound || config.query(fmt::format("{}.{}", kName, field)) != nullptr;
  if (!bound) return std::nullopt;
  const auto chat = config.call_as<ChatTemplate>(kName);
  check_part(chat.system, "system");
  check_part(chat.user, "user");
  check_part(chat.assistant, "assistant");
  return chat;
}

void register_chat(gin::Registry& registry) {
  registry.add_struct<ChatTemplate>(kName)
      .arg("system", &ChatTemplate::system)
      .arg("user", &ChatTemplate::user)
      .arg("assistant", &ChatTemplate::assistant)
      .arg("answer", &ChatTemplate::answer);
}

}  // namespace quintet
