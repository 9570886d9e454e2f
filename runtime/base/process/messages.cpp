#include "runtime/base/process/messages.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace quintet {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool shows_colours() {
  const char* term = std::getenv("TERM");
  return !is_set("NO_COLOR") && isatty(STDERR_FILENO) != 0 && term != nullptr &&
         std::string_view(term) != "dumb";
}

std::string label(std::string_view word, int colour) {
  return shows_colours() ? fmt::format("\x1b[1;{}m{}:\x1b[0m ", colour, word)
                         : fmt::format("{}: ", word);
}

}  // namespace

std::string error_label() { return label("error", 31); }
std::string warning_label() { return label("warning", 33); }

void write_warning(std::string_view text) {
  const std::string line = fmt::format("{}{}\n", warning_label(), text);
  std::fputs(line.c_str(), stderr);
}

}  // namespace quintet
