#pragma once
// Addresses of storage that gin files name (gs://t5-data/...) and the local folders that stand for them.
//
//   PathMap map = PathMap::of_environment();       // ~/.config/quintet/paths, then $QUINTET_PATH_MAP
//   map.add("gs://t5-data=/data/t5", "--path_map");
//   use_path_map(std::move(map));
//   local_path("gs://t5-data/vocabs/a.model")  ->  "/data/t5/vocabs/a.model"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace quintet {

class PathMap {
 public:
  /// Of ~/.config/quintet/paths ($XDG_CONFIG_HOME/quintet/paths; one rule a line, # comments) and of
  /// $QUINTET_PATH_MAP (rules with commas between), which wins. Throws what add throws.
  static PathMap of_environment();
  /// `rule`: "gs://t5-data=/data/t5". A later rule of the same address wins. Throws a usage error that
  /// names `where` unless it is SCHEME://ADDRESS=FOLDER.
  void add(std::string_view rule, const std::string& where);
  /// The local path: a path without scheme itself, file:// without it, another by the rule with the
  /// longest address; none if there is no such rule.
  std::optional<std::string> find(const std::string& path) const;

 private:
  std::map<std::string, std::string, std::less<>> folders_;  // by address, without '/' at its end
};

/// The map of this process; empty until set.
void use_path_map(PathMap map);
/// By that map, as PathMap::find.
std::optional<std::string> find_local_path(const std::string& path);
/// The same; throws kData with the rule to add if there is none, and `advice` behind it.
std::string local_path(const std::string& path, std::string_view advice = {});

/// Whether a path is an address such as gs://bucket/file.
bool is_address(std::string_view path);

}  // namespace quintet
