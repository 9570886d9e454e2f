#include "data/huggingface/added_tokens.h"

#include <algorithm>

namespace quintet::data {

AddedToken AddedToken::read(const Json& json, bool special) {
  if (json.is_string())
    return {.content = json.as_string(), .special = special, .normalized = !special};
  const auto flag = [&](const char* name, bool otherwise) {
    return json.has(name) ? json[name].as_bool() : otherwise;
  };
  AddedToken token;
  token.content = json["content"].as_string();
  token.special = special || flag("special", false);
  token.normalized = flag("normalized", !token.special);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.single_word = flag("single_word", false);
  return token;
}

void TokenFinder::add(std::string text, const AddedToken& token, int32_t id) {
  if (text.empty()) return;
  auto& same_start = entries_[text[0]];
  const auto at = std::find_if(same_start.begin(), same_start.end(),
                               [&](const Entry& other) { return other.text.size() < text.size(); });
  same_start.insert(at, {std::move(text), token, id});
}

const TokenFinder::Entry* TokenFinder::longest_at(std::string_view text) const {
  const auto same_start = entries_.find(text[0]);
  if (same_start == entries_.end()) return nullptr;
  for (const Entry& entry : same_start->second)
    if (text.starts_with(entry.text)) return &entry;
  return nullptr;
}

std::vector<TokenOrText> TokenFinder::split(std::string_view text) const {
  std::vector<TokenOrText> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Entry* entry = longest_at(text.substr(at));
    if (entry == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + entry->text.size();
    at = end;
    if (entry->token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
      continue;
    if (entry->token.lstrip)
      begin = std::max(begin - spaces_at_end(text.substr(0, begin), spaces_), done);
    if (entry->token.rstrip) end += spaces_at_start(text.substr(end), spaces_);
    if (done < begin) parts.push_back({std::nullopt, text.substr(done, begin - done)});
    parts.push_back({entry->id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) parts.push_back({std::nullopt, text.substr(done)});
  return parts;
}

void AddedTokens::add(AddedToken token, std::optional<int32_t> model_id) {
  if (token.content.empty()) return;
  const auto known = ids_.find(token.content);
  const int32_t next = std::max(model_size_, by_id_.empty() ? 0 : by_id_.rbegin()->first + 1);
  const int32_t id = known != ids_.end() ? known->second : model_id.value_or(next);
  ids_[token.content] = id;
  by_id_[id] = std::move(token);
}

std::optional<int32_t> AddedTokens::find(const std::string& content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace quintet::data
