#include "apps/flags/command_line.h"

#include <fmt/ranges.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <regex>

#include "apps/flags/flag_files.h"
#include "apps/flags/help_format.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/nearest.h"

namespace quintet {
namespace {

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

/// Before flags are read, since theirs are paths to map.
void use_path_rules(const std::vector<std::string>& args) {
  constexpr std::string_view kFlag = "--path_map";
  PathMap paths = PathMap::of_environment();
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].starts_with(std::string(kFlag) + "="))
      paths.add(args[i].substr(kFlag.size() + 1), std::string(kFlag));
    else if (args[i] == kFlag && i + 1 < args.size())
      paths.add(args[++i], std::string(kFlag));
  }
  use_path_map(std::move(paths));
}

}  // namespace

std::string mapped_path(std::string path) { return local_path(path); }

std::function<void(const CLI::App&)>& show_help() {
  static std::function<void(const CLI::App&)> show = [](const CLI::App& app) {
    fmt::print("{}", app.help());
  };
  return show;
}

CommandLine::CommandLine(const std::string& verb, const std::string& summary,
                         const std::string& examples)
    : verb_(verb), app_(std::make_unique<CLI::App>(summary, "quintet " + verb)) {
  std::string footer = "\nExamples:";
  size_t begin = 0;
  while (begin < examples.size()) {
    const size_t end = std::min(examples.find('\n', begin), examples.size());
    footer += "\n  " + examples.substr(begin, end - begin);
    begin = end + 1;
  }
  app_->footer(footer + "\n");
  app_->formatter(help_format(help_width()));
  app_->option_defaults()->always_capture_default();
}

CommandLine::~CommandLine() = default;

bool CommandLine::parse(std::span<char* const> args) {
  return parse(std::vector<std::string>(args.begin(), args.end()));
}

bool CommandLine::parse(const std::vector<std::string>& args) {
  std::vector<std::string> rules;  // read before the other flags
  app_->add_option(
          "--path_map", rules,
          "the local folder of a storage address, as in gs://t5-data=/data/t5; may be repeated")
      ->allow_extra_args(false);
  const std::vector<std::string> known = flags_of(*app_);
  const auto is_known = [&](const std::string& flag) {
    return std::find(known.begin(), known.end(), flag) != known.end();
  };
  std::vector<std::string> left = args;
  if (is_known(kUndefokFlag)) {  // of a verb that takes absl's flags
    left = without_undefined(args, {known.begin(), known.end()});
    if (const auto jax = take_jax_flags(left); !jax.empty())
      fmt::print(stderr, "{}: without effect; jax is not run\n", fmt::join(jax, ", "));
  }
  const auto asks_help = [](const std::string& arg) {
    return arg == "-h" || arg == "--help" || arg == "--helpfull" || arg == "--helpshort";
  };
  if (std::none_of(args.begin(), args.end(), asks_help)) use_path_rules(args);
  const std::vector<std::string> given = left;
  std::reverse(left.begin(), left.end());
  try {
    app_->parse(left);
  } catch (const CLI::CallForHelp&) {
    show_help()(*app_);
    return false;
  } catch (const CLI::ParseError& error) {
    std::string hint;
    const auto options = app_->get_options();
    const bool takes_files =
        std::ranges::any_of(options, [](const auto* option) { return option->get_positional(); });
    for (const std::string& text : given) {
      if (text.ends_with(".gin") && !text.starts_with("-") && !takes_files)
        hint += " (a gin file is named with --gin_file=" + text + ")";
      const std::string flag = text.substr(0, text.find('='));
      const bool has_one_dash = flag.starts_with("-") && !flag.starts_with("--") && flag.size() > 2;
      if ((has_one_dash || flag.starts_with("--")) && !is_known(flag))
        hint += " (" + flag + " is unknown" +
                did_you_mean(has_one_dash ? "-" + flag : flag, known) + ")";
    }
    fail(ExitCode::kUsage, "quintet {}: {}{}; 'quintet {} --help' lists the flags", verb_,
         std::regex_replace(error.what(), std::regex(R"((\d)\.0{6}\b)"), "$1"), hint, verb_);
  }
  return true;
}

}  // namespace quintet
