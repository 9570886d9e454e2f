// `quintet serve`: a trained model behind HTTP, with a web page.

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/serve/server.h"
#include "runtime/gin/command_line.h"
#include "runtime/mpi/launcher.h"

namespace quintet {

int run_serve(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  serve::ServeFlags flags;
  CommandLine cli(
      "serve", "Serves a trained model over HTTP, for OpenAI's clients.",
      "quintet serve --model_dir=/tmp/numbers\n"
      "quintet serve --model_dir=/tmp/numbers --host=0.0.0.0 --port=80 --api_keys=keys.txt\n"
      "mpirun -n 2 quintet serve --model_dir=/tmp/numbers");
  flags.add_to(cli.app());
  cli.app().add_flag("--pipe", flags.pipe,
                     "answer the program that starts this one, on standard input and output, "
                     "instead of a port: for libquintet.so");
  describe_gin_flags(cli.app(), kGinFileOfModel);
  if (!cli.parse(left)) return 0;
  flags.set_defaults();
  if (flags.pipe) {
    flags.trust_client(cli.app());
    mpi::leave_job();  // of the program that starts this one
  }
  Ranks ranks(flags.ranks);
  ranks.agree_on_program(fmt::format("{}", fmt::join(args, "\n")));
  flags.compute.start();
  ranks.open(Device::current());
  serve::run_server(flags, ranks, gin_line);
  return 0;
}

}  // namespace quintet
