#include <CLI/App.hpp>
#include <algorithm>
#include <array>

#include "apps/flags/command_line.h"
#include "apps/flags/help_format.h"
#include "apps/manual/manual.h"
#include "apps/process/version.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// Text of a page: no hyphen may become another sign, no line a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string in_capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string header(const std::string& name, const std::string& summary) {
  return fmt::format(".TH {} 1 \"\" \"quintet {}\" \"Quintet\"\n.SH NAME\n{} \\- {}\n",
                     roff(in_capitals(name)), kVersion, roff(name), roff(summary));
}

/// The groups in the order of --help.
std::vector<std::string> groups_of(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options())
    if (const std::string& group = option->get_group();
        !group.empty() && std::ranges::find(groups, group) == groups.end())
      groups.push_back(group);
  return groups;
}

std::string options_of(const CLI::App& app, const std::string& group) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() != group) continue;
    for (const bool positional : {true, false}) {  // a model may be given either way
      if (!(positional ? option->get_positional() : option->nonpositional())) continue;
      const FlagText flag = flag_text(*option, positional);
      const std::string facts = flag.facts.empty() ? "" : " (" + flag.facts + ")";
      text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(flag.names),
                          flag.kind.empty() ? "" : " \\fI" + roff(flag.kind) + "\\fR",
                          roff(option->get_description() + facts));
    }
  }
  return text;
}

}  // namespace

void with_flags(const Command& command, const std::function<void(const CLI::App&)>& use) {
  const auto before = std::exchange(show_help(), use);
  std::string help = "--help";
  const std::array<char*, 1> args = {help.data()};
  command.run(args);
  show_help() = before;
}

std::string page_name(const std::string& command) {
  std::string name = command.empty() ? "quintet" : "quintet-" + command;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string man_page(const Command& command, const CLI::App& app) {
  std::string page = header(page_name(command.name), command.summary);
  page += fmt::format(".SH SYNOPSIS\n\\fBquintet {}\\fR", roff(command.name));
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional())
      page += option->get_required() ? " " + roff(option->get_name(true))
                                     : " [" + roff(option->get_name(true)) + "]";
  page += " [flags]\n.SH DESCRIPTION\n" + roff(app.get_description()) + "\n";
  for (const std::string& group : groups_of(app))
    page += fmt::format(".SH {}\n{}", roff(in_capitals(group)), options_of(app, group));
  std::string examples = app.get_footer();
  examples.erase(0, examples.find("\n  ") + 1);
  page += ".SH EXAMPLES\n.nf\n" + roff(examples) + ".fi\n";
  return page + ".SH SEE ALSO\n.BR quintet (1)\n";
}

std::string man_overview(const std::vector<Command>& commands) {
  std::string page = header("quintet", "trains, fine-tunes, evaluates and runs T5-family models");
  page += ".SH SYNOPSIS\n\\fBquintet\\fR \\fIVERB\\fR [flags]\n.SH VERBS\n";
  for (const Command& command : commands)
    page += fmt::format(".TP\n\\fB{}\\fR\n{} (\\fB{}\\fR(1))\n", roff(command.name),
                        roff(command.summary), roff(page_name(command.name)));
  return page;
}

}  // namespace quintet
