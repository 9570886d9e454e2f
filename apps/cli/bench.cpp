// `quintet bench WHAT`: one JSON object on stdout, words for people on stderr.

#include "apps/bench/bench.h"

#include <cstdio>
#include <string>
#include <vector>

#include "apps/cli/verbs.h"
#include "runtime/base/check.h"
#include "runtime/base/nearest.h"

namespace quintet {
namespace {

const std::vector<Command> kBenches = {
#define QUINTET_LIST(name, summary) {#name, summary, run_bench_##name},
    QUINTET_BENCHES(QUINTET_LIST)
#undef QUINTET_LIST
};

void print_benches(std::FILE* out) {
  fmt::print(out, "Usage: quintet bench WHAT [flags]\n\n");
  for (const Command& bench : kBenches) fmt::print(out, "  {:<10} {}\n", bench.name, bench.summary);
  fmt::print(out,
             "\nExamples:\n  quintet bench train --model=t5_1_1_small --batch=8 --inputs=256 "
             "--targets=64 --threads=2 --steps=5\n  quintet bench train --profile\n\n"
             "'quintet bench WHAT --help' shows the flags of a benchmark.\n");
}

}  // namespace

std::vector<Command> bench_commands() { return kBenches; }

int run_bench(std::span<char* const> args) {
  const std::string name = args.empty() ? "" : args[0];
  if (name == "--help" || name == "-h") {
    print_benches(stdout);
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& bench : kBenches) {
    if (bench.name == name) return bench.run(args.subspan(1));
    names.push_back(bench.name);
  }
  if (name.empty()) {
    print_benches(stderr);
    return static_cast<int>(ExitCode::kUsage);
  }
  fail(ExitCode::kUsage, "quintet bench: '{}' is not a benchmark{}; there are: {}", name,
       did_you_mean(name, names), fmt::join(names, ", "));
}

}  // namespace quintet
