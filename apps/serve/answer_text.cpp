#include "apps/serve/answer_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace quintet::serve {
namespace {

bool is_plain(char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; }

void comma(std::string& list) {
  if (!list.empty()) list += ',';
}

}  // namespace

void write_string(std::string& out, std::string_view text) {
  if (!std::all_of(text.begin(), text.end(), is_plain)) {
    using Json = nlohmann::json;
    out += Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

void write_number(std::string& out, double value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), "{}", value);
  else
    out += "null";
}

std::string piece_text(const data::Vocabulary& vocabulary, int32_t token) {
  data::DecodeState state;
  std::string text;
  vocabulary.decode_next(token, state, text);
  text += vocabulary.decode_open(state);
  return text.empty() ? fmt::format("token_id:{}", token) : text;
}

namespace {

/// {"token", "logprob", "bytes", without its last brace.
void write_choice_of(std::string& out, const data::Vocabulary& vocabulary, int32_t token,
                     float log_prob) {
  const std::string piece = piece_text(vocabulary, token);
  out += R"({"token":)";
  write_string(out, piece);
  out += R"(,"logprob":)";
  write_number(out, static_cast<double>(log_prob));
  out += R"(,"bytes":[)";
  for (const unsigned char byte : piece)
    fmt::format_to(std::back_inserter(out), "{}{}", out.back() == '[' ? "" : ",", byte);
  out += ']';
}

}  // namespace

void LogprobsText::add(const decoding::TokenChoice& token, size_t offset) {
  if (chat_) return add_to_chat(token);
  for (std::string* list : {&tokens_, &log_probs_, &top_, &offsets_}) comma(*list);
  write_string(tokens_, piece_text(vocabulary_, token.token));
  write_number(log_probs_, static_cast<double>(token.model_log_prob));
  fmt::format_to(std::back_inserter(offsets_), "{}", offset);
  top_ += '{';
  std::vector<std::string> named;  // two tokens may be one text: the likelier has it
  for (const auto& other : token.top) {
    std::string piece = piece_text(vocabulary_, other.token);
    if (std::find(named.begin(), named.end(), piece) != named.end()) continue;
    if (!named.empty()) top_ += ',';
    write_string(top_, piece);
    top_ += ':';
    write_number(top_, static_cast<double>(other.log_prob));
    named.push_back(std::move(piece));
  }
  top_ += '}';
}

void LogprobsText::add_to_chat(const decoding::TokenChoice& token) {
  comma(tokens_);
  write_choice_of(tokens_, vocabulary_, token.token, token.model_log_prob);
  tokens_ += R"(,"top_logprobs":[)";
  for (const auto& other : token.top) {
    if (tokens_.back() != '[') tokens_ += ',';
    write_choice_of(tokens_, vocabulary_, other.token, other.log_prob);
    tokens_ += '}';
  }
  tokens_ += "]}";
}

void LogprobsText::write(std::string& out) const {
  if (chat_) {
    out += R"({"content":[)" + tokens_ + R"(],"refusal":null})";
    return;
  }
  fmt::format_to(
      std::back_inserter(out),
      R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", tokens_,
      log_probs_, top_, offsets_);
}

void write_top(std::string& out, const std::vector<decoding::TokenLogProb>& top) {
  out += '[';
  for (size_t i = 0; i < top.size(); ++i) {
    fmt::format_to(std::back_inserter(out), R"({}{{"id":{},"logprob":)", i > 0 ? "," : "",
                   top[i].token);
    write_number(out, static_cast<double>(top[i].log_prob));
    out += '}';
  }
  out += ']';
}

}  // namespace quintet::serve
