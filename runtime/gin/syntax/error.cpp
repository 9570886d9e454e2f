#include "runtime/gin/syntax/error.h"

namespace quintet::gin {
namespace {

constexpr size_t kMaxListed = 30;
constexpr size_t kMaxSourceLine = 200;

std::string compose(const Location& where, int column, const std::string& message,
                    const std::string& source) {
  std::string text = where.str();
  text += (text.empty() ? "" : ": ") + message;
  if (source.empty() || source.size() > kMaxSourceLine) return text;
  text += "\n    " + source;
  if (column >= 0) text += "\n    " + std::string(static_cast<size_t>(column), ' ') + "^";
  return text;
}

}  // namespace

ConfigError::ConfigError(Location where, int column, const std::string& message,
                         const std::string& source)
    : Error(ExitCode::kUsage, compose(where, column, message, source)),
      where_(std::move(where)),
      column_(column) {}

ConfigError::ConfigError(const ConfigError& inner, const std::string& added)
    : Error(inner.code(), std::string(inner.what()) + "\n  " + added),
      where_(inner.where_),
      column_(inner.column_) {}

void throw_problems(const std::vector<std::string>& problems) {
  if (problems.size() == 1) throw Error(ExitCode::kUsage, problems[0]);
  std::string text = fmt::format("{} problems in the configuration:", problems.size());
  for (size_t i = 0; i < problems.size() && i < kMaxListed; ++i) text += "\n  " + problems[i];
  if (problems.size() > kMaxListed)
    text += fmt::format("\n  and {} more", problems.size() - kMaxListed);
  throw Error(ExitCode::kUsage, text);
}

}  // namespace quintet::gin
