#include "apps/flags/flag_files.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr const char* kFlagFile = "--flagfile";

/// The value of `flag` at args[i], which may be in the next argument; i is then that one's.
std::optional<std::string> value_at(const std::vector<std::string>& args, size_t& i,
                                    const std::string& flag) {
  if (args[i].starts_with(flag + "=")) return args[i].substr(flag.size() + 1);
  if (args[i] != flag) return std::nullopt;
  QT_CHECK(i + 1 < args.size(), "{}: expected a value", flag);
  return args[++i];
}

/// --model-dir=a-b as --model_dir=a-b.
std::string underscored(std::string argument) {
  if (!argument.starts_with("--") || argument.starts_with("--gin.")) return argument;
  const auto end =
      argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
  std::replace(argument.begin() + 2, end, '-', '_');
  return argument;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  QT_CHECK(file, "{}={}: cannot be read; expected a file with one flag a line", kFlagFile, path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    if (first == std::string::npos) continue;
    line = line.substr(first, last - first + 1);
    if (!line.starts_with("#") && !line.starts_with("//")) lines.push_back(line);
  }
  QT_CHECK(!file.bad(), "{}={}: cannot be read", kFlagFile, path);
  return lines;
}

void expand(const std::vector<std::string>& args, std::vector<std::string>& open,
            std::vector<std::string>& all) {
  for (size_t i = 0; i < args.size(); ++i) {
    const auto path = value_at(args, i, kFlagFile);
    if (!path) {
      const bool texts_follow = std::ranges::find(all, "--") != all.end();
      all.push_back(texts_follow ? args[i] : underscored(args[i]));
      continue;
    }
    QT_CHECK(std::find(open.begin(), open.end(), *path) == open.end(), "{}={}: names itself",
             kFlagFile, *path);
    open.push_back(*path);
    expand(lines_of(*path), open, all);
    open.pop_back();
  }
}

}  // namespace

std::vector<std::string> with_flag_files(const std::vector<std::string>& args) {
  std::vector<std::string> open, all;
  expand(args, open, all);
  return all;
}

std::vector<std::string> take_jax_flags(std::vector<std::string>& args) {
  const auto others = std::ranges::stable_partition(args, [](const std::string& arg) {
    return !arg.starts_with("--jax_") && !arg.starts_with("--nojax_");
  });
  std::vector<std::string> taken(others.begin(), others.end());
  args.erase(others.begin(), others.end());
  return taken;
}

std::vector<std::string> without_undefined(const std::vector<std::string>& args,
                                           const std::set<std::string>& known) {
  std::set<std::string> ignored;
  for (size_t i = 0; i < args.size(); ++i)
    if (const auto names = value_at(args, i, kUndefokFlag))
      for (size_t begin = 0; begin <= names->size();) {
        const size_t end = std::min(names->find(',', begin), names->size());
        const std::string name = names->substr(begin, end - begin);
        for (const std::string& flag : {"--" + name, "--no" + name})
          if (!known.contains(flag)) ignored.insert(flag);
        begin = end + 1;
      }
  std::vector<std::string> left;
  for (const std::string& arg : args)
    if (!ignored.contains(arg.substr(0, arg.find('=')))) left.push_back(arg);
  return left;
}

}  // namespace quintet
