// `quintet report`: an HTML page about training runs.

#include "apps/report/report.h"

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"

namespace quintet {

int run_report(std::span<char* const> args) {
  ReportOptions options;
  CommandLine cli(
      "report",
      "Writes a page about one or more training runs: curves, differences of their configurations, "
      "samples by step, starts and faults. One HTML file that needs nothing else.",
      "quintet report /tmp/numbers --output=/tmp/numbers.html\n"
      "quintet report /tmp/numbers /tmp/trained --output=/tmp/both.html");
  cli.app()
      .add_option("RUN,--model_dir,--model", options.runs,
                  "model directories, also T5X's, whose TensorBoard events are read")
      ->required()
      ->transform(mapped_path);
  cli.app()
      .add_option("--output", options.output,
                  "the page's file; an earlier report there is replaced")
      ->transform(mapped_path);
  options.format.add_to(cli.app());
  if (!cli.parse(args)) return 0;
  write_report(options);
  return 0;
}

}  // namespace quintet
