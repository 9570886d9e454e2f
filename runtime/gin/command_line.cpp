#include "runtime/gin/command_line.h"

#include "runtime/base/check.h"
#include "runtime/gin/syntax/parser.h"

namespace quintet::gin {

std::string rewrite_gin_argument(const std::string& argument) {
  const std::string prefix = "--gin.";
  if (!argument.starts_with(prefix)) return argument;
  const size_t equals = argument.find('=');
  QT_CHECK(equals != std::string::npos,
           "Gin bindings must be of the form '--gin.<param>=<value>', got: {}", argument);
  return "--gin_bindings=" + argument.substr(prefix.size(), equals - prefix.size()) + " = " +
         argument.substr(equals + 1);
}

CommandLine extract_command_line(std::vector<std::string>& args) {
  CommandLine line;
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--") {
      rest.insert(rest.end(), args.begin() + static_cast<std::ptrdiff_t>(i), args.end());
      break;
    }
    if (args[i] == "--skip_unknown" || args[i] == "--allow_commands") {
      (args[i] == "--skip_unknown" ? line.skip_unknown : line.allow_commands) = true;
      continue;
    }
    const std::string argument = rewrite_gin_argument(args[i]);
    const std::string flag = argument.substr(0, argument.find('='));
    const bool is_ours =
        flag == "--gin_file" || flag == "--gin_bindings" || flag == "--gin_search_paths";
    if (!is_ours) {
      rest.push_back(args[i]);
      continue;
    }
    std::string value;
    if (flag.size() < argument.size()) {
      value = argument.substr(flag.size() + 1);
    } else {
      QT_CHECK(i + 1 < args.size(), "{}: expected a value behind it", flag);
      value = args[++i];
    }
    if (flag == "--gin_file") {
      line.files.push_back(std::move(value));
    } else if (flag == "--gin_bindings") {
      line.bindings.push_back(std::move(value));
    } else {
      line.search_paths = split(value, ',');
    }
  }
  args = std::move(rest);
  return line;
}

}  // namespace quintet::gin
