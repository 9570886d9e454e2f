#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <regex>
#include <set>

#include "apps/flags/help_format.h"
#include "apps/manual/manual.h"

namespace quintet {
namespace {

struct Flag {
  std::string name;  // "--device", or "" of a positional argument
  bool takes_value = false;
  std::vector<std::string> choices;
  std::string about;
};

std::vector<Flag> flags_of(const Command& command) {
  std::vector<Flag> flags;
  with_flags(command, [&](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group().empty()) continue;  // --help does not show it either
      Flag flag{"", option->get_items_expected_max() > 0, {}, option->get_description()};
      const std::string kind = flag_text(*option, false).kind;
      for (size_t at = 0, end = 0; kind.find('|') != std::string::npos && end < kind.size();
           at = end + 1) {
        end = std::min(kind.find('|', at), kind.size());
        flag.choices.push_back(kind.substr(at, end - at));
      }
      if (option->get_positional()) flags.push_back(flag);
      for (const std::string& name : option->get_lnames()) {
        flag.name = "--" + name;
        flags.push_back(flag);
      }
    }
  });
  return flags;
}

/// The first arguments: of the command ("") all verbs, of a verb with parts those.
std::vector<std::string> words_after(const std::vector<Command>& commands,
                                     const std::string& first) {
  std::vector<std::string> words;
  for (const Command& command : commands) {
    const size_t space = command.name.find(' ');
    const std::string verb = command.name.substr(0, space);
    if (first.empty() && (words.empty() || words.back() != verb)) words.push_back(verb);
    if (space != std::string::npos && verb == first)
      words.push_back(command.name.substr(space + 1));
  }
  return words;
}

std::set<std::string> verbs_with_parts(const std::vector<Command>& commands) {
  std::set<std::string> verbs;
  for (const Command& command : commands)
    if (const size_t space = command.name.find(' '); space != std::string::npos)
      verbs.insert(command.name.substr(0, space));
  return verbs;
}

constexpr const char* kBash =
    R"sh(# Completion of quintet for bash, made by `quintet completion bash`.
_quintet_flags() {
  case "$1" in
@FLAGS@  esac
}
# Of a flag that takes a value, its choices; "-" if it takes anything. Nothing of a flag without a value.
_quintet_values() {
  case "$1" in
@VALUES@  esac
}
_quintet() {
  local at=$COMP_CWORD word=${COMP_WORDS[COMP_CWORD]} flag= verb=${COMP_WORDS[1]-} values
  if ((at == 1)); then
    COMPREPLY=($(compgen -W "@VERBS@ help --help --version" -- "$word"))
    return
  fi
  case "$verb" in
@PARTS@  help) ((at > 2)) || COMPREPLY=($(compgen -W "@VERBS@" -- "$word")); return ;;
  esac
  # --flag=value comes as three words.
  if [[ $word == = ]]; then
    flag=${COMP_WORDS[at - 1]} word=
  elif [[ ${COMP_WORDS[at - 1]} == = ]]; then
    flag=${COMP_WORDS[at - 2]}
  elif [[ ${COMP_WORDS[at - 1]} == --* ]]; then
    flag=${COMP_WORDS[at - 1]}
  elif [[ $word != -* ]]; then
    flag=argument
  fi
  values=$(_quintet_values "$verb $flag")
  if [[ $values == - ]]; then return; fi
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(_quintet_flags "$verb")" -- "$word"))
    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
  fi
}
complete -o default -F _quintet quintet
)sh";

constexpr const char* kZsh = R"sh(#compdef quintet
# Completion of quintet for zsh, made by `quintet completion zsh`.
_quintet_command() {
  case "$1" in
@ARGUMENTS@  esac
}
_quintet() {
  local verb=${words[2]}
  if ((CURRENT == 2)); then
    _values verb @VERBS@ help
    return
  fi
  case "$verb" in
@PARTS@  help) ((CURRENT > 3)) || _values verb @VERBS@; return ;;
  esac
  words[1]=quintet
  _quintet_command "$verb"
}
_quintet "$@"
)sh";

std::string filled(std::string text,
                   std::initializer_list<std::pair<std::string, std::string>> places) {
  for (const auto& [name, value] : places)
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
      text.replace(at, name.size(), value);
  return text;
}

/// Within single quotes of a shell, and within an optspec of zsh's _arguments.
std::string zsh_quoted(const std::string& text) {
  return std::regex_replace(std::regex_replace(text, std::regex(R"([\[\]:\\])"), "\\$&"),
                            std::regex("'"), "'\\''");
}

}  // namespace

std::string bash_completion(const std::vector<Command>& commands) {
  std::string all_flags, values, parts;
  for (const Command& command : commands) {
    std::vector<std::string> words;
    for (const Flag& flag : flags_of(command)) {
      if (!flag.name.empty()) words.push_back(flag.name + (flag.takes_value ? "=" : ""));
      if (!flag.takes_value || (flag.name.empty() && flag.choices.empty())) continue;
      values +=
          fmt::format("    \"{} {}\") echo \"{}\" ;;\n", command.name,
                      flag.name.empty() ? "argument" : flag.name,
                      flag.choices.empty() ? "-" : fmt::format("{}", fmt::join(flag.choices, " ")));
    }
    all_flags += fmt::format("    \"{}\") echo \"{}\" ;;\n", command.name, fmt::join(words, " "));
  }
  for (const std::string& verb : verbs_with_parts(commands))
    parts += fmt::format(
        "  {0})\n    if ((at == 2)); then\n      COMPREPLY=($(compgen -W \"{1} --help\" -- "
        "\"$word\"))\n      return\n    fi\n    verb+=\" ${{COMP_WORDS[2]}}\"\n    ;;\n",
        verb, fmt::join(words_after(commands, verb), " "));
  return filled(kBash, {{"@FLAGS@", all_flags},
                        {"@VALUES@", values},
                        {"@PARTS@", parts},
                        {"@VERBS@", fmt::format("{}", fmt::join(words_after(commands, ""), " "))}});
}

std::string zsh_completion(const std::vector<Command>& commands) {
  std::string all, parts;
  for (const Command& command : commands) {
    all += fmt::format("    '{}') _arguments", command.name);
    std::string argument = ":file:_files";
    for (const Flag& flag : flags_of(command)) {
      const std::string values = flag.choices.empty()
                                     ? ":value:_files"
                                     : fmt::format(":value:({})", fmt::join(flag.choices, " "));
      if (flag.name.empty())
        argument = values;
      else
        all += fmt::format(" \\\n      '*{}{}[{}]{}'", flag.name, flag.takes_value ? "=" : "",
                           zsh_quoted(flag.about), flag.takes_value ? values : "");
    }
    all += fmt::format(" \\\n      '*{}' ;;\n", argument);
  }
  for (const std::string& verb : verbs_with_parts(commands))
    parts += fmt::format(
        "  {0})\n    if ((CURRENT == 3)); then\n      _values part {1}\n      return\n    fi\n"
        "    verb+=\" ${{words[3]}}\"\n    ;;\n",
        verb, fmt::join(words_after(commands, verb), " "));
  return filled(kZsh, {{"@ARGUMENTS@", all},
                       {"@PARTS@", parts},
                       {"@VERBS@", fmt::format("{}", fmt::join(words_after(commands, ""), " "))}});
}

}  // namespace quintet
