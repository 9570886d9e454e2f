#include "apps/flags/result_format.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "apps/process/output.h"
#include "runtime/mpi/session.h"

namespace quintet {

void ResultFormat::add_to(CLI::App& app) {
  app.add_option(
         "--format", format_,
         "json: one object per line on stdout; text: for people, on stderr; auto: both, on a "
         "terminal text alone")
      ->check(CLI::IsMember({"auto", "text", "json"}));
}

bool ResultFormat::has_objects() const {
  if (format_ != "auto") return format_ == "json";
  // Text is seen on a terminal where stderr is one, too. mpirun gives ranks a terminal of its own.
  return isatty(STDOUT_FILENO) == 0 || isatty(STDERR_FILENO) == 0 || mpi::launched();
}

void ResultFormat::print_object(std::string_view json) const {
  if (has_objects()) fmt::print("{}\n", json);
}

void ResultFormat::print_text(std::string_view text) const {
  if (!has_text()) return;
  flush_output();  // text does not land in a line of the results
  fmt::print(stderr, "{}", text);
}

}  // namespace quintet
