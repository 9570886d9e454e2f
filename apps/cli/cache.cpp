// `quintet cache`: seqio's cache_tasks_main without Beam. One process with threads, or many under mpirun.

#include <thread>

#include "apps/cache/cache_tasks.h"
#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

void add_flags(CommandLine& cli, CacheFlags& flags) {
  CLI::App& app = cli.app();
  const auto natural = CLI::Range(int64_t{0}, int64_t{99'999});
  app.add_option(
         "--tasks", flags.tasks,
         "regular expressions that match complete names; default: all tasks of the gin files")
      ->delimiter(',');
  app.add_option("--excluded_tasks", flags.excluded_tasks, "likewise, tasks to exclude")
      ->delimiter(',');
  app.add_option("--output_cache_dir", flags.cache.output_cache_dir, "where the caches go")
      ->required()
      ->transform(mapped_path);
  app.add_option("--tasks_additional_cache_dirs", flags.other_cache_dirs,
                 "skip tasks that are cached in one of these folders")
      ->delimiter(',');
  app.add_option("--min_shards", flags.cache.min_shards, "smallest number of files per split")
      ->capture_default_str()
      ->check(natural);
  app.add_option("--max_shards", flags.cache.max_shards,
                 "largest number of files per split; 0: no limit")
      ->capture_default_str()
      ->check(natural);
  app.add_option("--base_seed", flags.base_seed, "seed of random preprocessing and of the order");
  app.add_flag("--overwrite", flags.overwrite, "replace existing caches");
  app.add_flag("--ignore_other_caches", flags.ignore_other_caches,
               "do not skip tasks that are in --tasks_additional_cache_dirs");
  app.add_flag("--enable_char_counts", flags.cache.enable_char_counts, "also count characters");
  app.add_flag("--add_provenance", flags.cache.add_provenance, "keep where examples are from");
  app.add_option("--output_format", flags.output_format,
                 "tfrecord, or arrayrecord, which other programs read by index")
      ->capture_default_str()
      ->check(CLI::IsMember({"tfrecord", "arrayrecord"}));
  app.add_flag("--preserve_random_access", flags.preserve_random_access,
               "with --output_format=arrayrecord: each record is compressed alone");
  app.add_option("--threads", flags.cache.threads,
                 "threads of this process; default: all processors")
      ->check(CLI::Range(1, 1024));
  app.add_option("--memory_mib", flags.memory_mib,
                 "memory of this process for examples in flight, in MiB")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 24));
  describe_gin_flags(app, "the tasks (seqio.TaskRegistry.tasks)");
  describe_data_flags(app);
  flags.format.add_to(app);
  flags.ranks.add_init_timeout(app);
  flags.launch.add_to(app);
}

}  // namespace

int run_cache(std::span<char* const> arguments) {
  std::vector<std::string> args(arguments.begin(), arguments.end());
  const gin::CommandLine gin_line = extract_data_command_line(args);
  CacheFlags flags;
  flags.cache.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  CommandLine cli(
      "cache",
      "Preprocesses tasks up to their cache point and writes shuffled caches in seqio's format.",
      "quintet cache --gin_file=my_task.gin --tasks=my_task --output_cache_dir=/data/cache\n"
      "mpirun -n 8 quintet cache --gin_file=my_task.gin --output_cache_dir=/data/cache");
  add_flags(cli, flags);
  if (!cli.parse(args) || !flags.launch.check()) return 0;
  cache_tasks(std::move(flags), gin_line, fmt::format("{}", fmt::join(arguments, "\n")));
  return 0;
}

}  // namespace quintet
