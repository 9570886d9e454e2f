#pragma once
// Where gin files are found: as given, below the search paths in order, beside the file that
// includes them, and last among the files we ship.
//
//   Finder finder({"configs"}, {{"", "/usr/share/quintet/configs"}});
//   auto path = finder.find("t5x/examples/t5/t5_1_1/base.gin", "run.gin");

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quintet::gin {

/// A folder of gin files that are part of the program: names that start with "prefix/" (all, if it
/// is empty) are looked up below `directory`.
struct ConfigRoot {
  std::string prefix;
  std::filesystem::path directory;
};

class Finder {
 public:
  Finder(std::vector<std::string> search_paths, std::vector<ConfigRoot> roots);
  void add_search_paths(const std::vector<std::string>& paths);

  /// `including`: path of the file that names this one, or empty.
  std::optional<std::string> find(const std::string& file, const std::string& including = {}) const;
  /// For "cannot find" messages.
  std::string searched(const std::string& including = {}) const;

 private:
  std::vector<std::string> search_paths_;
  std::vector<ConfigRoot> roots_;
};

/// The file's text; throws (exit code 2) with the reason if it cannot be read.
std::string read_gin_file(const std::string& path);

}  // namespace quintet::gin
