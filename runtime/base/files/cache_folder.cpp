#include "runtime/base/files/cache_folder.h"

#include <cstdlib>

namespace quintet {
namespace {

std::filesystem::path variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::filesystem::path cache_folder() {
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "quintet";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache/quintet";
  return {};
}

}  // namespace quintet
