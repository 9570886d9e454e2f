#include "apps/serve/api/api_keys.h"

#include <strings.h>

#include <sstream>

#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet::serve {
namespace {

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return different == 0;
}

}  // namespace

ApiKeys::ApiKeys(const std::filesystem::path& file) {
  std::istringstream lines(read_file(file));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    Key key;
    std::string rest;
    if (!(words >> key.key) || key.key.starts_with('#')) continue;
    key.client.name = fmt::format("key {}", keys_.size() + 1);
    words >> key.client.name;
    const bool has_priority = !(words >> std::ws).eof();
    QT_CHECK_AS(
        ExitCode::kData,
        key.key.size() >= 16 && (!has_priority || words >> key.client.priority) && !(words >> rest),
        "{}:{}: expected KEY [NAME [PRIORITY]] with a key of at least 16 characters", file.string(),
        number);
    keys_.push_back(std::move(key));
  }
  QT_CHECK_AS(ExitCode::kData, !keys_.empty(), "{}: no key in it", file.string());
}

std::optional<Client> ApiKeys::client(const std::string& authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = authorization.size() >= kScheme.size() &&
                      strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) == 0;
  const size_t begin =
      bearer ? authorization.find_first_not_of(' ', kScheme.size()) : std::string::npos;
  const std::string given = begin == std::string::npos ? "" : authorization.substr(begin);
  const Key* found = nullptr;
  for (const Key& key : keys_)
    if (equal_in_constant_time(key.key, given)) found = &key;
  if (found == nullptr) return std::nullopt;
  return found->client;
}

}  // namespace quintet::serve
