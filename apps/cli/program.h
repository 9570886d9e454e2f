#pragma once
// The `quintet` command: finds the verb, runs it, turns exceptions into messages and exit codes. A program with
// configurables of its own is this one with them added (docs/extend.md):
//
//   int main(int argc, char** argv) {
//     return quintet::run_program(argc, argv, {register_mine, QUINTET_INSTALLED_CONFIGS});
//   }

#include "apps/config/gin_session.h"

namespace quintet {

/// The whole of a program's main; returns its exit code.
int run_program(int argc, char** argv, Additions own);

}  // namespace quintet
