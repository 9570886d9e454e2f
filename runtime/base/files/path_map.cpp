#include "runtime/base/files/path_map.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "runtime/base/check.h"
#include "runtime/base/files/read_file.h"

namespace quintet {
namespace {

constexpr std::string_view kScheme = "://";

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Without '/' at the end, but for that of "gs://".
std::string_view without_slash(std::string_view address) {
  while (address.ends_with('/') && !address.ends_with(kScheme)) address.remove_suffix(1);
  return address;
}

std::filesystem::path rules_file() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != '\0')
    return std::filesystem::path(config) / "quintet" / "paths";
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0'
             ? std::filesystem::path()
             : std::filesystem::path(home) / ".config" / "quintet" / "paths";
}

/// Adds the rules of `text`, `separator` between them; `where(i)` names the i-th, from 1.
template <typename Where>
void add_rules(PathMap& map, std::string_view text, char separator, const Where& where) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find(separator), text.size());
    const std::string_view line = text.substr(0, end);
    const bool is_comment = trimmed(line).starts_with('#');
    const std::string_view rule = trimmed(line.substr(0, line.find(" #")));
    if (!rule.empty() && !is_comment) map.add(rule, where(number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// What is known of vocabularies that many gin files name, so that a copy can be checked.
std::string_view known_file(std::string_view path) {
  struct Known {
    std::string_view path, facts;
  };
  constexpr Known kFiles[] = {
      {"gs://t5-data/vocabs/cc_all.32000/sentencepiece.model",
       "spiece.model of t5-small, t5-v1_1 and flan-t5 at Hugging Face: 791,656 bytes, SHA-256 "
       "d60acb128cf7b7f2536e8f38a5b18a05535c9e14c7a355904270e15b0945ea86"},
      {"gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model",
       "the vocabulary of spiece.model of t5-small, t5-v1_1 and flan-t5 at Hugging Face (791,656 "
       "bytes, SHA-256 d60acb128cf7b7f2536e8f38a5b18a05535c9e14c7a355904270e15b0945ea86) with "
       "seqio.SentencePieceVocabulary.extra_ids = 100"},
      {"gs://t5-data/vocabs/mc4.250000.100extra/sentencepiece.model",
       "spiece.model of google/mt5-small at Hugging Face: 4,309,802 bytes, SHA-256 "
       "ef78f86560d809067d12bac6c09f19a462cb3af3f54d2b8acbba26e1433125d6"},
      {"gs://t5-data/vocabs/umt5.256000/sentencepiece.model",
       "the vocabulary of spiece.model of google/umt5-xxl at Hugging Face (4,548,313 bytes, "
       "SHA-256 "
       "e3909a67b780650b35cf529ac782ad2b6b26e6d1f849d3fbb6a872905f452458)"}};
  for (const Known& file : kFiles)
    if (file.path == path) return file.facts;
  return {};
}

struct Current {
  std::mutex mutex;
  PathMap map;
};
Current& current() {
  static Current all;
  return all;
}

}  // namespace

bool is_address(std::string_view path) {
  const size_t scheme = path.find(kScheme);
  if (scheme == std::string_view::npos || scheme == 0) return false;
  return std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(scheme),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '-'; });
}

PathMap PathMap::of_environment() {
  PathMap map;
  const std::filesystem::path file = rules_file();
  std::error_code ignored;
  if (!file.empty() && std::filesystem::exists(file, ignored))
    add_rules(map, read_file(file, ExitCode::kUsage, 1 << 20), '\n',
              [&](int64_t line) { return fmt::format("{}:{}", file.string(), line); });
  if (const char* rules = std::getenv("QUINTET_PATH_MAP"))
    add_rules(map, rules, ',', [](int64_t) { return std::string("QUINTET_PATH_MAP"); });
  return map;
}

void PathMap::add(std::string_view rule, const std::string& where) {
  const size_t equals = rule.find('=');
  const std::string_view address = trimmed(rule.substr(0, equals));
  const std::string_view folder =
      equals < rule.size() ? trimmed(rule.substr(equals + 1)) : std::string_view();
  QT_CHECK(!folder.empty() && is_address(address),
           "{}: expected SCHEME://ADDRESS=FOLDER such as gs://t5-data=/data/t5, found '{}'", where,
           rule);
  const char* home = std::getenv("HOME");  // a shell leaves '~' as it is in these places
  const bool is_below_home = home != nullptr && (folder == "~" || folder.starts_with("~/"));
  folders_[std::string(without_slash(address))] =
      is_below_home ? home + std::string(folder.substr(1)) : std::string(folder);
}

std::optional<std::string> PathMap::find(const std::string& path) const {
  constexpr std::string_view kFile = "file://";
  if (!is_address(path)) return path;
  const size_t scheme = path.find(kScheme) + kScheme.size();
  for (std::string_view address = without_slash(path);;) {
    if (const auto rule = folders_.find(address); rule != folders_.end()) {
      const std::string rest = path.substr(address.size());
      return rule->second + (rest.empty() || rest.starts_with('/') ? "" : "/") + rest;
    }
    if (address.size() <= scheme) break;
    address = address.substr(0, std::max(address.rfind('/'), scheme));
  }
  if (path.starts_with(kFile)) return path.substr(kFile.size());
  return std::nullopt;
}

void use_path_map(PathMap map) {
  const std::lock_guard lock(current().mutex);
  current().map = std::move(map);
}

std::optional<std::string> find_local_path(const std::string& path) {
  if (!is_address(path)) return path;
  const std::lock_guard lock(current().mutex);
  return current().map.find(path);
}

std::string local_path(const std::string& path, std::string_view advice) {
  const std::string_view facts = known_file(path);
  if (auto found = find_local_path(path)) {
    std::error_code ignored;
    QT_CHECK_AS(ExitCode::kData, facts.empty() || std::filesystem::exists(*found, ignored),
                "{}: is not there, where {} is read; copy it there: it is {}", *found, path, facts);
    return *std::move(found);
  }
  const size_t bucket = path.find('/', path.find(kScheme) + kScheme.size());
  fail(ExitCode::kData,
       "{}: is not on this machine, and nothing says which folder stands for it; copy it and add "
       "--path_map={}=FOLDER, or that rule to QUINTET_PATH_MAP or ~/.config/quintet/paths{}{}{}",
       path, path.substr(0, bucket), facts.empty() ? "" : "; it is ", facts, advice);
}

}  // namespace quintet
