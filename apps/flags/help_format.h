#pragma once
// How --help looks: flags with their kind, limits and default in plain words, wrapped to the terminal.

#include <memory>
#include <string>

namespace CLI {
class App;
class FormatterBase;
class Option;
}  // namespace CLI

namespace quintet {

/// `width`: columns of a line; a word that is longer has a line of its own.
std::shared_ptr<CLI::FormatterBase> help_format(size_t width);

/// What --help says of a flag, beside its description.
struct FlagText {
  std::string names;  // "-h,--help"
  std::string kind;   // of its value: INT, TEXT, or the choices there are, "float32|bfloat16"
  std::string facts;  // limits, default, whether it is required
};
FlagText flag_text(const CLI::Option& option, bool is_positional);

inline constexpr const char* kAnswersGroup = "Answers";

/// The flags that are added while it lives stand under a title of their own.
class HelpGroup {
 public:
  HelpGroup(CLI::App& app, const std::string& title);
  ~HelpGroup();
  HelpGroup(const HelpGroup&) = delete;
  HelpGroup& operator=(const HelpGroup&) = delete;

 private:
  CLI::App& app_;
  std::string former_;
};

/// Of the terminal that stdout is, at least 40; 100 where it is none.
size_t help_width();

}  // namespace quintet
