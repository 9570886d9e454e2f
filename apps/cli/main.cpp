#include "apps/cli/program.h"
#include "apps/process/version.h"

int main(int argc, char** argv) {
  return quintet::run_program(argc, argv, {.commit = quintet::kCommit});
}
