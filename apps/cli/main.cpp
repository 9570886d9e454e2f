#include "apps/cli/program.h"
#include "apps/process/memory_limit.h"
#include "apps/process/version.h"

/// Before static objects are made: no main catches what that throws.
[[gnu::constructor(101)]] static void before_main() { quintet::report_uncaught_exceptions(); }

int main(int argc, char** argv) {
  return quintet::run_program(argc, argv, {.commit = quintet::kCommit});
}
