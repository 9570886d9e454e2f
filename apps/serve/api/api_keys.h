#pragma once
// Who may use the server: a file with a key a line, "KEY", "KEY NAME" or "KEY NAME PRIORITY"; empty
// lines and lines that begin with # say nothing. Without a file everyone may.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quintet::serve {

struct Client {
  std::string name;  // whose share of the machine it is: the key's name, or the address
  int priority = 0;
};

class ApiKeys {
 public:
  ApiKeys() = default;
  /// Throws kData naming the line, and for a file without a key.
  explicit ApiKeys(const std::filesystem::path& file);

  bool needed() const { return !keys_.empty(); }
  /// The client behind an Authorization header; nothing if it holds no key of ours. Takes the same
  /// time whatever is wrong.
  std::optional<Client> client(const std::string& authorization) const;

 private:
  struct Key {
    std::string key;
    Client client;
  };
  std::vector<Key> keys_;
};

}  // namespace quintet::serve
