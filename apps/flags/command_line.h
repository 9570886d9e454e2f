#pragma once
// What every verb's command line has in common: help, errors, and --path_map (path_map.h).
//
//   CommandLine cli("eval", "Metrics of a task over checkpoints.",
//                   "quintet eval --model_dir=/tmp/run --task=numbers_to_words");
//   cli.app().add_option("--model_dir", options.model_dir, "...")->required();
//   if (!cli.parse(args)) return 0;              // --help was asked for and printed

#include <CLI/App.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace quintet {

/// For flags whose value is a file or folder, as option->transform(mapped_path): of a storage address the
/// local path that --path_map and the other rules give it (local_path, exit 3 without a rule).
std::string mapped_path(std::string path);

/// What --help does with a verb's flags: it prints them, unless another has taken its place (apps/manual/manual.h).
std::function<void(const CLI::App&)>& show_help();

class CommandLine {
 public:
  /// `examples`: one command a line, printed by --help.
  CommandLine(const std::string& verb, const std::string& summary, const std::string& examples);
  ~CommandLine();  // there and not here: it is what all of CLI::App is compiled for
  CLI::App& app() { return *app_; }
  /// False: help was printed, nothing is left to do. Throws a usage error that names the flag, and for
  /// an unknown one the nearest known flag.
  bool parse(std::span<char* const> args);
  bool parse(const std::vector<std::string>& args);

 private:
  std::string verb_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace quintet
