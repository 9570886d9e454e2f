// `quintet cache`: seqio's cache_tasks_main without Beam. One process with threads, or many under mpirun.

#include <cstdio>
#include <regex>
#include <thread>

#include "apps/cli.h"
#include "apps/data_flags.h"
#include "apps/ranks.h"
#include "apps/same_data.h"
#include "apps/session.h"
#include "apps/verbs.h"
#include "data/cache/cache_folder.h"
#include "data/cache/cache_writer.h"
#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file.h"
#include "runtime/mesh/collectives_mpi.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

struct Flags {
  std::vector<std::string> tasks, excluded_tasks, other_cache_dirs;
  data::CacheOptions cache;
  bool overwrite = false, ignore_other_caches = false, ignored = false;
  int64_t base_seed = -1, memory_mib = 1024;
  std::string output_format = "tfrecord";
};

void add_flags(CommandLine& cli, Flags& flags) {
  CLI::App& app = cli.app();
  const auto natural = CLI::Range(int64_t{0}, int64_t{99'999});
  app.add_option("--tasks", flags.tasks,
                 "regular expressions of whole names; default: all of the gin files")
      ->delimiter(',');
  app.add_option("--excluded_tasks", flags.excluded_tasks, "likewise, tasks to leave out")
      ->delimiter(',');
  app.add_option("--output_cache_dir", flags.cache.output_cache_dir, "where the caches go")
      ->required();
  app.add_option("--tasks_additional_cache_dirs", flags.other_cache_dirs,
                 "a task that is cached in one of these is left out")
      ->delimiter(',');
  app.add_option("--min_shards", flags.cache.min_shards, "least number of files a split")
      ->capture_default_str()
      ->check(natural);
  app.add_option("--max_shards", flags.cache.max_shards, "most files a split; 0: no limit")
      ->capture_default_str()
      ->check(natural);
  app.add_option("--base_seed", flags.base_seed, "of random preprocessing and of the order");
  app.add_flag("--overwrite", flags.overwrite, "make caches again that are there");
  app.add_flag("--ignore_other_caches", flags.ignore_other_caches,
               "cache even what --tasks_additional_cache_dirs have");
  app.add_flag("--enable_char_counts", flags.cache.enable_char_counts, "count characters, too");
  app.add_option("--output_format", flags.output_format, "tfrecord")
      ->check(CLI::IsMember({"tfrecord"}));
  app.add_flag("--preserve_random_access", flags.ignored)->group("");
  app.add_option("--threads", flags.cache.threads, "of this process; default: its processors")
      ->check(CLI::Range(1, 1024));
  app.add_option("--memory_mib", flags.memory_mib, "of this process, for examples in flight")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 24));
  app.add_option("--gin_file", "the tasks (seqio.TaskRegistry.tasks); may be repeated");
  app.add_option("--gin.NAME", "=VALUE: one gin binding");
  describe_data_flags(app);
}

std::vector<std::regex> expressions(const std::vector<std::string>& texts) {
  std::vector<std::regex> all;
  for (const std::string& text : texts) {
    try {
      all.emplace_back(text);
    } catch (const std::regex_error& error) {
      fail(ExitCode::kUsage, "quintet cache: '{}' is no regular expression: {}", text,
           error.what());
    }
  }
  return all;
}

bool any_matches(const std::vector<std::regex>& all, const std::string& name) {
  return std::any_of(all.begin(), all.end(),
                     [&](const std::regex& one) { return std::regex_match(name, one); });
}

/// Names of the tasks that the gin files define. Built-in ones are cached when they are named: each needs
/// data that a machine may not have.
std::vector<std::string> configured_tasks(gin::Config& config) {
  std::vector<std::string> names;
  for (const gin::Value& task : config.call_as<std::vector<gin::Value>>("seqio.TaskRegistry"))
    if (const auto object = task.object_as<const data::Task>()) names.push_back(object->name());
  return names;
}

std::vector<const data::Task*> chosen_tasks(Session& session, const Flags& flags) {
  const data::TaskRegistry& registry = session.tasks();
  const auto wanted = expressions(flags.tasks), unwanted = expressions(flags.excluded_tasks);
  std::vector<const data::Task*> tasks;
  for (const std::string& name :
       flags.tasks.empty() ? configured_tasks(session.config()) : registry.names()) {
    if (any_matches(unwanted, name) || !(wanted.empty() || any_matches(wanted, name))) continue;
    if (const auto* task = dynamic_cast<const data::Task*>(registry.get(name).get()))
      tasks.push_back(task);
  }
  if (!tasks.empty()) return tasks;
  if (flags.tasks.size() == 1)
    registry.get(flags.tasks[0]);  // an error that knows the nearest name
  fail(ExitCode::kUsage,
       "quintet cache: no task is chosen; the gin files define {}; 'quintet data list' "
       "lists all",
       fmt::join(configured_tasks(session.config()), ", "));
}

/// Whether a cache is to be made; says why not.
bool is_needed(const data::Task& task, const Flags& flags, bool speak) {
  const auto say = [&](const std::string& text) {
    if (speak) fmt::print("{}: {}\n", task.name(), text);
    return false;
  };
  if (!task.supports_caching())
    return say("has no seqio.CacheDatasetPlaceholder, so it is not cached");
  const auto folder = data::cache_folder(flags.cache.output_cache_dir, task.name());
  if (is_there(folder / "COMPLETED")) {
    if (!flags.overwrite) {
      data::check_cache_origin(folder, data::cache_origin(task.name(), task.output_features()));
      return say("is cached at " + folder.string() + " already; --overwrite makes it again");
    }
    return true;
  }
  if (flags.ignore_other_caches) return true;
  if (const auto other = data::find_cache(task.name(), flags.other_cache_dirs))
    return say("is cached at " + other->string() + "; --ignore_other_caches caches it here, too");
  return true;
}

}  // namespace

int run_cache(std::span<char* const> arguments) {
  std::vector<std::string> args(arguments.begin(), arguments.end());
  const gin::CommandLine gin_line = extract_data_command_line(args);
  Flags flags;
  flags.cache.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  CommandLine cli(
      "cache", "Preprocesses tasks up to their cache point, shuffled, for seqio and for us.",
      "quintet cache --gin_file=my_task.gin --tasks=my_task --output_cache_dir=/data/cache\n"
      "mpirun -n 8 quintet cache --gin_file=my_task.gin --output_cache_dir=/data/cache");
  add_flags(cli, flags);
  if (!cli.parse(args)) return 0;
  flags.cache.memory_bytes = flags.memory_mib << 20;
  flags.cache.base_seed = std::max<int64_t>(0, flags.base_seed);

  Session session(gin_line);
  const auto tasks = chosen_tasks(session, flags);
  const Ranks ranks(RankFlags{});
  ranks.agree_on("build", build_text());
  ranks.agree_on("command line", fmt::format("{}", fmt::join(arguments, "\n")));
  agree_on_data(ranks, tasks);
  const mpi::Session& mpi = ranks.session();
  std::unique_ptr<Comm> comm;
  data::Peers& peers = flags.cache.peers;
  if (mpi.active() && mpi.size() > 1) {
    comm = open_mpi(mpi, Device::cpu(), {.timeout_seconds = 0});
    peers = {mpi.rank(), mpi.size(),
             [&](const std::string& text) { return gather_text(comm->world(), text); }};
  }
  flags.cache.report = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  for (const data::Task* task : tasks) {
    const bool needed = is_needed(*task, flags, mpi.rank() == 0);
    peers.gather("");  // all have looked before anything changes
    if (!needed && mpi.rank() == 0) data::tidy_cache(*task, flags.cache.output_cache_dir);
    if (!needed) continue;
    const auto folder = data::cache_folder(flags.cache.output_cache_dir, task->name());
    const auto start = Clock::now();
    const int64_t examples = data::write_cache(*task, flags.cache, flags.overwrite);
    const double seconds = seconds_since(start);
    if (mpi.rank() == 0)
      fmt::print("{}: {} examples cached at {} in {:.1f} s\n", task->name(), examples,
                 folder.string(), seconds);
  }
  return 0;
}

}  // namespace quintet
