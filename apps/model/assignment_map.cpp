#include "apps/model/assignment_map.h"

#include <fmt/ranges.h>

#include <optional>
#include <regex>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/nearest.h"
#include "runtime/base/process/messages.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

/// A Python regular expression as ECMAScript's, which has no names of groups.
class Pattern {
 public:
  Pattern(const std::string& python, const std::string& where) {
    std::string text;
    bool in_class = false;
    for (size_t i = 0; i < python.size(); ++i) {
      text += python[i];
      if (python[i] == '\\' && i + 1 < python.size()) {
        text += python[++i];
      } else if (in_class) {
        in_class = python[i] != ']';
      } else if (python[i] == '[') {
        in_class = true;
        if (i + 1 < python.size() && python[i + 1] == ']') text += python[++i];
      } else if (python[i] == '(') {
        i = open_group(python, i, where);
      }
    }
    try {
      regex_ = std::regex(text);
    } catch (const std::regex_error& error) {
      fail(ExitCode::kUsage, "{}: '{}' is no regular expression: {}", where, python, error.what());
    }
  }

  /// The replacement with what its groups matched, if the whole name matches.
  std::optional<std::string> expand(const std::string& name, const std::string& replacement,
                                    const std::string& where) const {
    std::smatch match;
    if (!std::regex_match(name, match, regex_)) return std::nullopt;
    std::string out;
    for (size_t i = 0; i < replacement.size(); ++i) {
      if (replacement[i] != '\\' || i + 1 == replacement.size()) {
        out += replacement[i];
      } else if (replacement[++i] == 'g' && i + 1 < replacement.size() &&
                 replacement[i + 1] == '<') {
        const size_t end = replacement.find('>', i);
        QT_CHECK(end != std::string::npos, "{}: '{}': \\g< is not closed", where, replacement);
        out += group(match, replacement.substr(i + 2, end - i - 2), replacement, where);
        i = end;
      } else if (is_digit(replacement[i])) {
        std::string number(1, replacement[i]);
        if (i + 1 < replacement.size() && is_digit(replacement[i + 1])) number += replacement[++i];
        out += group(match, number, replacement, where);
      } else {
        out += replacement[i];
      }
    }
    return out;
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  /// Behind what opens a group at `at`, or, of a group with a name, behind the name.
  size_t open_group(const std::string& python, size_t at, const std::string& where) {
    const std::string_view rest = std::string_view(python).substr(at + 1);
    if (!rest.starts_with('?')) {
      groups_.emplace_back();
      return at;
    }
    if (rest.starts_with("?P<") && rest.find('>') != std::string_view::npos) {
      groups_.emplace_back(rest.substr(3, rest.find('>') - 3));
      return at + 1 + rest.find('>');
    }
    QT_CHECK(rest.starts_with("?:") || rest.starts_with("?=") || rest.starts_with("?!"),
             "{}: '{}': look-behind, flags and comments in regular expressions are not known",
             where, python);
    return at;
  }

  std::string group(const std::smatch& match, const std::string& name,
                    const std::string& replacement, const std::string& where) const {
    size_t index = 0;  // the whole match
    if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
      index = name.size() > 4 ? match.size() : static_cast<size_t>(std::stoi(name));
    else
      index =
          static_cast<size_t>(std::find(groups_.begin(), groups_.end(), name) - groups_.begin()) +
          1;
    QT_CHECK(index < match.size(), "{}: '{}': there is no group {}", where, replacement, name);
    return match[index].str();
  }

  std::regex regex_;
  std::vector<std::string> groups_;  // names, "" of those that have none
};

bool speaks() { return mpi::Session::rank_of_process().value_or(0) == 0; }

}  // namespace

SourceNames apply_assignment_map(const AssignmentMap& map, const std::set<std::string>& model,
                                 const SourceNames& names, std::set<std::string>* dropped_names) {
  std::vector<Pattern> patterns;
  for (const AssignmentRule& rule : map.rules) patterns.emplace_back(rule.pattern, map.where);
  std::vector<bool> used(map.rules.size());
  std::vector<std::string> problems, known;
  for (const auto& [name, source] : names) known.push_back(name);
  SourceNames result, others = names;
  std::set<std::string> dropped;
  for (const std::string& name : model) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      const AssignmentRule& rule = map.rules[i];
      const auto old = patterns[i].expand(name, rule.replacement.value_or(""), map.where);
      if (!old) continue;
      used[i] = true;
      if (!rule.replacement) {
        dropped.insert(name);
        break;
      }
      others.erase(*old);
      if (const auto found = names.find(*old); found != names.end())
        result[name] = found->second;
      else
        problems.push_back(fmt::format("'{}' reads {} from {}, which is not in the checkpoint{}",
                                       rule.pattern, name, *old, did_you_mean(*old, known)));
      break;
    }
  }
  if (dropped_names != nullptr) dropped_names->insert(dropped.begin(), dropped.end());
  // T5X's order: what no rule reads keeps its name, though a rule gave that name another source.
  for (const auto& [name, source] : others) {
    if (dropped.contains(name)) continue;
    if (const auto [at, is_new] = result.insert_or_assign(name, source); !is_new && speaks())
      print_warning(
          "{}: the checkpoint has {} itself and no rule reads that: it is taken, "
          "as in T5X",
          map.where, name);
  }
  // Two names may have one source; those that no rule changes keep theirs though another took it.
  for (const std::string& name : model)
    if (!dropped.contains(name) && names.contains(name)) result.emplace(name, names.at(name));
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i] && map.require_all_rules_match)
      problems.push_back(
          fmt::format("'{}' matches no name of the model that an earlier rule does "
                      "not match",
                      map.rules[i].pattern));
  QT_CHECK(problems.empty(), "{}:\n  {}", map.where, fmt::join(problems, "\n  "));
  return result;
}

}  // namespace quintet
