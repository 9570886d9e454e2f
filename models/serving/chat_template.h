#pragma once
// A conversation as the one text that a model of the T5 family reads.

#include <optional>
#include <span>
#include <string>

#include "runtime/gin/config.h"

namespace quintet {

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

/// How a run was trained to see conversations; in gin `quintet.serving.ChatTemplate`, with {content}
/// for a message's text:
///
///   from quintet import serving
///   serving.ChatTemplate.user = 'User: {content}\n'
///   serving.ChatTemplate.assistant = 'Assistant: {content}\n'
///   serving.ChatTemplate.answer = 'Assistant:'
struct ChatTemplate {
  std::string system = "{content}\n", user = "{content}\n", assistant = "{content}\n";
  std::string answer;  // after the last message

  std::string prompt(std::span<const ChatMessage> messages) const;
};

/// The run's template, or none if it binds no part of one. Throws a usage error for a part that does
/// not have {content} once.
std::optional<ChatTemplate> chat_template(const gin::Config& config);

void register_chat(gin::Registry& registry);

}  // namespace quintet
