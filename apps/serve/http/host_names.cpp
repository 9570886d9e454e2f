#include "apps/serve/http/host_names.h"

#include <arpa/inet.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace quintet::serve {
namespace {

bool is_address(const std::string& name) {
  in6_addr bytes{};
  const std::string without_zone = name.substr(0, name.find('%'));
  return inet_pton(AF_INET, name.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, without_zone.c_str(), &bytes) == 1;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool in_name(char c) {
  return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '.' || c == '-' || c == '_';
}

bool is_port(std::string_view text) {
  constexpr size_t kDigits = 5;
  return text.size() <= kDigits && std::all_of(text.begin(), text.end(), is_digit);
}

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

}  // namespace

RequestTarget split_target(std::string_view target) {
  const auto path_of = [](std::string_view rest) {
    return std::string(rest.substr(0, rest.find('?')));
  };
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (lowered(target.substr(0, scheme.size())) != scheme) continue;
    const std::string_view rest = target.substr(scheme.size());
    const size_t end = std::min(rest.find_first_of("/?"), rest.size());
    std::string path = path_of(rest.substr(end));
    if (path.empty()) path = "/";
    return {std::move(path), std::string(rest.substr(0, end))};
  }
  return {path_of(target), std::nullopt};
}

std::optional<std::string> host_name(std::string_view host) {
  std::string name;
  std::string_view rest;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    name = lowered(host.substr(1, end - 1));
    if (name.find(':') == std::string::npos || !is_address(name)) return std::nullopt;
    rest = host.substr(end + 1);
  } else {
    const size_t end = std::min(host.find(':'), host.size());
    name = lowered(host.substr(0, end));
    rest = host.substr(end);
    if (name.ends_with('.')) name.pop_back();
    if (name.empty() || !std::all_of(name.begin(), name.end(), in_name)) return std::nullopt;
  }
  if (!rest.empty() && (rest[0] != ':' || !is_port(rest.substr(1)))) return std::nullopt;
  return name;
}

HostNames::HostNames(const std::vector<std::string>& names) {
  for (const std::string& given : names) {
    const std::string name = lowered(given);
    const std::string_view plain = std::string_view(name).substr(name.starts_with("*.") ? 2 : 0);
    const bool good = !plain.empty() && std::all_of(plain.begin(), plain.end(), in_name);
    QT_CHECK(
        good || name == "*",
        "--allowed_hosts: '{}' is not a name: expected 'name', '*.name' or '*', without scheme "
        "and port",
        given);
    names_.push_back(name.ends_with('.') ? name.substr(0, name.size() - 1) : name);
  }
}

bool HostNames::allow(std::string_view host) const {
  const std::optional<std::string> name = host_name(host);
  if (!name) return false;
  if (is_address(*name) || *name == "localhost" || name->ends_with(".localhost")) return true;
  return std::any_of(names_.begin(), names_.end(), [&](const std::string& ours) {
    return ours == "*" || ours == *name ||
           (ours.starts_with("*.") && name->ends_with(std::string_view(ours).substr(1)));
  });
}

}  // namespace quintet::serve
