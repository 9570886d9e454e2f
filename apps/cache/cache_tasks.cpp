#include "apps/cache/cache_tasks.h"

#include <nlohmann/json.hpp>
#include <regex>

#include "apps/config/gin_session.h"
#include "apps/input/same_data.h"
#include "apps/process/progress.h"
#include "apps/process/ranks.h"
#include "data/tasks/cache_folder.h"
#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/mesh/collectives/collectives_mpi.h"
#include "runtime/mpi/session.h"

namespace quintet {
namespace {

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

/// Unless flags name tasks, those that the gin files define. Built-in ones are cached when they are named: each needs
/// data that a machine may not have.
std::vector<const data::Task*> chosen_tasks(GinSession& session, const CacheFlags& flags) {
  const data::TaskRegistry& registry = session.tasks();
  const auto wanted = expressions(flags.tasks), unwanted = expressions(flags.excluded_tasks);
  std::vector<const data::Task*> tasks;
  const auto names = registry.names();
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return std::regex_match(name, wanted[i]); }))
      registry.get(flags.tasks[i]);  // an error that knows the nearest name
  for (const std::string& name : flags.tasks.empty() ? registry.configured() : names) {
    if (any_matches(unwanted, name) || !(wanted.empty() || any_matches(wanted, name))) continue;
    if (const auto* task = dynamic_cast<const data::Task*>(registry.get(name).get()))
      tasks.push_back(task);
  }
  if (!tasks.empty()) return tasks;
  const auto& defined = registry.configured();
  fail(ExitCode::kUsage,
       "quintet cache: no task is chosen; name built-in ones with --tasks=NAME,NAME ('quintet data "
       "list' lists them), or a gin file that binds seqio.TaskRegistry.tasks{}",
       defined.empty() ? "" : fmt::format("; the gin files define {}", fmt::join(defined, ", ")));
}

/// Whether a cache is to be made; says why not.
bool is_needed(const data::Task& task, const CacheFlags& flags, bool speak) {
  const auto say = [&](const std::string& text) {
    if (!speak) return false;
    flags.format.print_object(
        nlohmann::ordered_json{{"task", task.name()}, {"not_cached", text}}.dump());
    flags.format.print_text(fmt::format("{}: {}\n", task.name(), text));
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

void cache_tasks(CacheFlags flags, const gin::CommandLine& command_line,
                 const std::string& arguments) {
  flags.cache.memory_bytes = flags.memory_mib << 20;
  flags.cache.base_seed = std::max<int64_t>(0, flags.base_seed);
  if (flags.output_format == "arrayrecord") flags.cache.format = data::CacheFormat::array_record;
  QT_CHECK(!flags.preserve_random_access || flags.cache.format == data::CacheFormat::array_record,
           "--preserve_random_access: TFRecords are not compressed; it goes with "
           "--output_format=arrayrecord");
  if (flags.preserve_random_access) flags.cache.group_size = 1;

  GinSession session(command_line);
  const auto tasks = chosen_tasks(session, flags);
  const Ranks ranks(flags.ranks);
  ranks.agree_on_program(arguments);
  agree_on_data(ranks, tasks);
  const mpi::Session& mpi = ranks.session();
  std::unique_ptr<Comm> comm;
  data::Peers& peers = flags.cache.peers;
  if (mpi.active() && mpi.size() > 1) {
    comm = open_mpi(mpi, Device::cpu(), {.timeout_seconds = 0});
    peers = {mpi.rank(), mpi.size(),
             [&](const std::string& text) { return gather_text(comm->world(), text); }};
  }
  PartsProgress progress;
  flags.cache.progress = [&](const std::string& what, int64_t done, int64_t total) {
    progress.update(what, done, total, "");
  };
  for (const data::Task* task : tasks) {
    const bool needed = is_needed(*task, flags, mpi.rank() == 0);
    peers.gather("");  // all have looked before anything changes
    if (!needed && mpi.rank() == 0) data::tidy_cache(*task, flags.cache.output_cache_dir);
    if (!needed) continue;
    const auto folder = data::cache_folder(flags.cache.output_cache_dir, task->name());
    const auto start = Clock::now();
    const int64_t examples = data::write_cache(*task, flags.cache, flags.overwrite);
    const double seconds = seconds_since(start);
    progress.finish();
    if (mpi.rank() != 0) continue;
    flags.format.print_object(nlohmann::ordered_json{
        {"task", task->name()},
        {"examples", examples},
        {"folder", folder.string()},
        {"seconds", seconds}}.dump());
    flags.format.print_text(fmt::format("{}: {} examples cached at {} in {:.1f} s\n", task->name(),
                                        examples, folder.string(), seconds));
  }
}

}  // namespace quintet
