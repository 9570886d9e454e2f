#include "apps/flags/help_format.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <regex>
#include <sstream>

namespace quintet {
namespace {

constexpr size_t kColumn = 30;    // where descriptions begin
constexpr double kNoLimit = 1e6;  // a bound from here on is none that a reader needs

/// `text` from column `column` on, which is where the cursor stands, in lines of `width`.
std::string wrapped(const std::string& text, size_t column, size_t width) {
  std::istringstream words(text);
  std::string out, word;
  for (size_t at = column; words >> word; at += word.size()) {
    if (at > column && at + 1 + word.size() > width) {
      out += "\n" + std::string(column, ' ');
      at = column;
    } else if (at > column) {
      out += " ";
      ++at;
    }
    out += word;
  }
  return out;
}

/// What CLI11's validators say of a value, in words: "INT in [0 - 4096]" is " (0 to 4096)".
std::string limits_of(const std::string& type) {
  std::smatch found;
  if (type.find("NONNEGATIVE") != std::string::npos) return "0 or more";
  if (type.find("POSITIVE") != std::string::npos) return "above 0";
  if (!std::regex_search(type, found, std::regex(R"(in \[(\S+) - (\S+)\])"))) return "";
  if (std::stod(found[2]) < kNoLimit) return found[1].str() + " to " + found[2].str();
  return found[1].str() + " or more";
}

/// The kind of value, without limits: INT, TEXT, or the choices there are.
std::string kind_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  if (const size_t choices = type.find('{'); choices != std::string::npos) {
    std::string names = type.substr(choices + 1, type.find('}') - choices - 1);
    std::replace(names.begin(), names.end(), ',', '|');
    return names;
  }
  return type.substr(0, type.find(':'));
}

/// Whether `value` is a default, not the mark of one that is not given: empty, or 0 where `limits` forbid it.
bool is_default(const std::string& value, const std::string& limits) {
  const bool starts_at_zero = limits.empty() || limits.starts_with("0 ");
  return !value.empty() && value != "[]" && (value != "0" || starts_at_zero);
}

class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(size_t width) : width_(width) {}

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const auto [names, kind, facts] = flag_text(*option, is_positional);
    const std::string left = "  " + names + (kind.empty() ? "" : " " + kind);
    const std::string right = option->get_description() + (facts.empty() ? "" : " (" + facts + ")");
    const size_t column = std::min(kColumn, width_ / 3);
    const std::string gap = left.size() + 1 < column ? std::string(column - left.size(), ' ')
                                                     : "\n" + std::string(column, ' ');
    return left + gap + wrapped(right, column, width_) + "\n";
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0, width_) + "\n";
  }
  /// One empty line between parts, none elsewhere.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    return std::regex_replace(help, std::regex("\n{3,}"), "\n\n");
  }

 private:
  size_t width_;
};

}  // namespace

FlagText flag_text(const CLI::Option& option, bool is_positional) {
  std::string facts = limits_of(option.get_type_name());
  if (const std::string value = option.get_default_str(); is_default(value, facts))
    facts += (facts.empty() ? "" : "; ") + ("default " + value);
  if (option.get_required()) facts += facts.empty() ? "required" : "; required";
  // Without what a flag that begins with "no" sets.
  return {std::regex_replace(option.get_name(is_positional, !is_positional),
                             std::regex(R"(\{\w*\})"), ""),
          is_positional ? "" : kind_of(option), facts};
}

std::shared_ptr<CLI::FormatterBase> help_format(size_t width) {
  return std::make_shared<HelpFormat>(width);
}

HelpGroup::HelpGroup(CLI::App& app, const std::string& title)
    : app_(app), former_(app.option_defaults()->get_group()) {
  app_.option_defaults()->group(title);
}

HelpGroup::~HelpGroup() { app_.option_defaults()->group(former_); }

size_t help_width() {
  constexpr size_t kLeast = 40, kUsual = 100;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0)
    return kUsual;
  return std::max<size_t>(size.ws_col, kLeast);
}

}  // namespace quintet
