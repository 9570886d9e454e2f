#include "runtime/gin/registry/finder.h"

#include <algorithm>

#include "runtime/base/files/path_map.h"
#include "runtime/base/files/read_file.h"
#include "runtime/gin/syntax/tokenizer.h"

namespace quintet::gin {
namespace fs = std::filesystem;
namespace {

bool is_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);  // pipes too: --gin_file=<(...)
  return !error && fs::exists(status) && !fs::is_directory(status);
}

}  // namespace

Finder::Finder(std::vector<std::string> search_paths, std::vector<ConfigRoot> roots)
    : search_paths_(std::move(search_paths)), roots_(std::move(roots)) {}

void Finder::add_search_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (std::find(search_paths_.begin(), search_paths_.end(), path) == search_paths_.end())
      search_paths_.push_back(path);
}

std::optional<std::string> Finder::find(const std::string& file,
                                        const std::string& including) const {
  if (file.empty()) return std::nullopt;
  if (is_file(file)) return file;
  if (is_address(file)) {
    const std::string path = local_path(file);
    return is_file(path) ? std::optional(path) : std::nullopt;
  }
  if (fs::path(file).is_absolute()) return std::nullopt;
  for (const std::string& folder : search_paths_)
    if (const fs::path path = fs::path(local_path(folder)) / file; is_file(path))
      return path.string();
  if (!including.empty())
    if (const fs::path path = fs::path(including).parent_path() / file; is_file(path))
      return path.string();
  for (const ConfigRoot& root : roots_) {
    const std::string start = root.prefix.empty() ? "" : root.prefix + "/";
    if (!file.starts_with(start)) continue;
    if (const fs::path path = root.directory / file.substr(start.size()); is_file(path))
      return path.string();
  }
  return std::nullopt;
}

std::string Finder::searched(const std::string& including) const {
  std::string out = "the current folder";
  for (const std::string& folder : search_paths_)
    if (folder != ".") out += ", " + folder;
  if (!including.empty() && fs::path(including).has_parent_path())
    out += ", " + fs::path(including).parent_path().string();
  for (const ConfigRoot& root : roots_) out += ", " + root.directory.string();
  return out;
}

std::string read_gin_file(const std::string& path) {
  return read_file(path, ExitCode::kUsage, kMaxGinBytes);
}

}  // namespace quintet::gin
