#pragma once
// The names a server answers for. A page of another site can have its own name point at this
// machine (DNS rebinding): the browser then takes the server for a part of that site. It cannot
// change the Host that the browser sends, which is that name; addresses written as numbers need no
// name server, so nobody can redirect them.
//
//   const HostNames ours({"models.example.org"});
//   ours.allow("models.example.org:8000");   // true, as are "localhost" and "[::1]:80"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::serve {

/// A request's target in its parts: "/v1/models?x" has no authority, "http://a:80/v1/models" has.
struct RequestTarget {
  std::string path;  // without the query
  std::optional<std::string> authority;
};
RequestTarget split_target(std::string_view target);

/// The name in a Host header, "Name.:80" -> "name": in lower case, without port and the last dot;
/// an IPv6 address without its brackets. Nothing if it has another form or is empty.
std::optional<std::string> host_name(std::string_view host);

class HostNames {
 public:
  /// Besides localhost, names below it, and addresses in numbers: "name", "*.name" for all below
  /// it, "*" for any. Throws kUsage naming --allowed_hosts for what is no such name.
  explicit HostNames(const std::vector<std::string>& names = {});

  bool allow(std::string_view host) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace quintet::serve
