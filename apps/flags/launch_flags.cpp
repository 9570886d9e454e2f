#include "apps/flags/launch_flags.h"

#include <CLI/App.hpp>
#include <cstdlib>

#include "apps/flags/flag_files.h"
#include "runtime/base/check.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

constexpr const char* kGroup = "Flags of T5X's command lines";

}  // namespace

bool LaunchFlags::leads() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  return true;
}

/// Of absl.app and absl.flags. --flagfile: with_flag_files; --undefok: CommandLine::parse.
void LaunchFlags::add_absl_flags(CLI::App& app) {
  app.add_flag_callback(
         "--helpfull,--helpshort", [] { throw CLI::CallForHelp(); }, "--help")
      ->group(kGroup);
  app.add_flag_callback(
         "--helpxml",
         [] {
           fail(ExitCode::kUsage, "--helpxml: help has no XML form; --help prints it as text");
         },
         "refused: help is text")
      ->group(kGroup);
  app.add_flag("--only_check_args", only_check_args, "check the flags and exit")->group(kGroup);
  app.add_option(kUndefokFlag, "names of flags, with commas between, to ignore if they are unknown")
      ->group(kGroup);
  for (const std::string name : {"pdb", "pdb_post_mortem", "run_with_pdb", "run_with_profiling",
                                 "use_cprofile_for_profiling"})
    app.add_flag_function(
           fmt::format("--{0},!--no{0}", name),
           [this, name](int64_t) { python_options.push_back("--" + name); },
           "without effect: no Python is run")
        ->group(kGroup);
  app.add_option_function<std::string>(
         "--profile_file",
         [this](const std::string&) { python_options.emplace_back("--profile_file"); },
         "likewise; train has --profile")
      ->group(kGroup);
}

void LaunchFlags::add_to(CLI::App& app) {
  add_absl_flags(app);
  app.add_flag("--logtostderr,--alsologtostderr,!--nologtostderr,!--noalsologtostderr", logtostderr,
               "logs go to stderr, as they always do")
      ->group(kGroup);
  for (const std::string name :
       {"--verbosity", "--stderrthreshold", "--log_dir", "--logger_levels"})
    app.add_option_function<std::string>(
           name == "--verbosity" ? "-v,--v," + name : name,
           [this, name](const std::string&) { log_options.push_back(name); },
           "without effect: all there is to log goes to stderr")
        ->group(kGroup);
  app.add_flag("--showprefixforinfo,!--noshowprefixforinfo", showprefixforinfo,
               "without effect: lines have no prefix")
      ->group(kGroup);
  app.add_flag("--multiprocess_gpu,!--nomultiprocess_gpu", multiprocess_gpu,
               "without effect: mpirun or srun starts ranks")
      ->group(kGroup);
  app.add_option("--coordinator_address", coordinator_address,
                 "without effect, for the same reason")
      ->group(kGroup);
  app.add_option("--process_count", process_count, "must be 1 where no launcher started the ranks")
      ->group(kGroup);
  app.add_option("--process_index", process_index, "without effect: the launcher counts the ranks")
      ->group(kGroup);
}

void LaunchFlags::add_to_one_process(CLI::App& app) {
  add_to(app);
  app.add_option("--initialization_timeout", initialization_timeout,
                 "without effect: this is one process, which waits for no others")
      ->group(kGroup);
}

void LaunchFlags::add_dry_run(CLI::App& app) {
  app.add_flag("--dry_run,!--nodry_run", dry_run, "print the configuration and exit");
}

void LaunchFlags::add_run_mode(CLI::App& app, const std::vector<std::string>& modes) {
  const std::string help = "which of them runs, as in T5X's main.py; default: " + modes.front();
  app.add_option("--run_mode", help)
      ->type_name("TEXT")
      ->check(CLI::IsMember(modes, CLI::ignore_case))
      ->group(kGroup);
}

bool LaunchFlags::check() const {
  QT_CHECK(
      process_count <= 1 || mpi::launched(),
      "--process_count={}: this process was started alone; start all of them with 'mpirun -n {} "
      "quintet ...' or srun",
      process_count, process_count);
  if (!leads()) return !only_check_args;
  std::vector<std::string> logs = log_options;
  if (!logtostderr) logs.emplace_back("--nologtostderr");
  if (!showprefixforinfo) logs.emplace_back("--noshowprefixforinfo");
  if (!logs.empty())
    fmt::print(stderr, "{}: without effect; all there is to log goes to stderr, without a prefix\n",
               fmt::join(logs, ", "));
  std::string given;
  if (multiprocess_gpu) given += ", --multiprocess_gpu";
  if (!coordinator_address.empty()) given += ", --coordinator_address";
  if (process_count != 1) given += ", --process_count";
  if (process_index != 0) given += ", --process_index";
  if (!initialization_timeout.empty()) given += ", --initialization_timeout";
  if (!given.empty())
    fmt::print(stderr, "{}: without effect; mpirun or srun says which ranks there are\n",
               given.substr(2));
  if (!python_options.empty())
    fmt::print(stderr,
               "{}: without effect; no Python is run that could be debugged or profiled ('train "
               "--profile' times each op)\n",
               fmt::join(python_options, ", "));
  return !only_check_args;
}

}  // namespace quintet
