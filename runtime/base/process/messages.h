#pragma once
// What a user reads on stderr: errors and warnings begin alike everywhere.

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace quintet {

/// "error: " and "warning: ", in colour where stderr is a terminal that shows colours and NO_COLOR (no-color.org) is not set.
std::string error_label();
std::string warning_label();

/// `text` as a line of stderr that begins with the label.
void write_warning(std::string_view text);

template <typename... Args>
void print_warning(fmt::format_string<Args...> format, Args&&... args) {
  write_warning(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace quintet
