#include "apps/flags/result_format.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cstdio>

#include "apps/process/output.h"
#include "runtime/mpi/session.h"

namespace quintet {

void ResultFormat::add_to(CLI::App& app) {
  const bool is_auto = format_ == "auto";
  app.add_option("--format", format_,
                 is_auto ? "json: one object per line; text: for people; auto: objects on stdout "
                           "and text on stderr, on a terminal text alone"
                         : "text: for people; json: one object per line")
      ->check(CLI::IsMember(is_auto ? std::vector<std::string>{"auto", "text", "json"}
                                    : std::vector<std::string>{"text", "json"}));
}

bool ResultFormat::has_objects() const {
  if (format_ != "auto") return is_json();
  // Text is seen on a terminal where stderr is one, too. mpirun gives ranks a terminal of its own.
  return isatty(STDOUT_FILENO) == 0 || isatty(STDERR_FILENO) == 0 || mpi::launched();
}

void ResultFormat::print_object(std::string_view json) const {
  if (has_objects()) fmt::print("{}\n", json);
}

void ResultFormat::print_text(std::string_view text) const {
  if (is_json()) return;
  if (format_ == "auto") flush_output();  // text does not land in a line of the results
  fmt::print(format_ == "auto" ? stderr : stdout, "{}", text);
}

}  // namespace quintet
