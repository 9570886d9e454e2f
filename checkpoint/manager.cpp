#include <omp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/commit.h"
#include "checkpoint/hdf5_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/region_reader.h"
#include "checkpoint/save.h"
#include "checkpoint/snapshot.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/process/messages.h"
#include "runtime/base/thread.h"

namespace quintet {
std::string make_run_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{:x}-{:x}", std::chrono::nanoseconds(now).count(), ::getpid());
}

TensorSlice whole_slice(std::string name, const HostArray& array) {
  return {std::move(name), array.dtype,
          array.shape,     std::vector<int64_t>(array.shape.size(), 0),
          array.shape,     array.bytes.data()};
}

std::vector<int64_t> list_checkpoints(const std::filesystem::path& model_dir) {
  std::vector<int64_t> steps;
  if (!is_there(model_dir)) return steps;
  for (const std::string& name : names_in(model_dir)) {
    const auto step = step_of(name);
    std::error_code error;
    if (step && std::filesystem::is_directory(model_dir / name, error)) steps.push_back(*step);
    if (error) fail_disk(model_dir / name, "look up", error.value());
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

namespace {

std::vector<int64_t> numbers_in(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<int64_t>(in), {}};
}

/// What a save leaves for the calling thread.
struct Outcome {
  std::exception_ptr failure;
  std::vector<std::string> warnings;
  double seconds = 0;
  int64_t bytes = 0;
};

}  // namespace

struct CheckpointManager::Impl {
  using SlicesWhenReady = CheckpointManager::SlicesWhenReady;
  std::filesystem::path model_dir;
  CheckpointOptions options;
  HostGroup alone;
  Snapshot snapshot;
  std::thread writer;
  std::atomic<bool> done{true};  // `outcome` is set
  bool pending = false;          // and nobody has taken it
  Outcome outcome;
  Timing timing;
  int failures_in_a_row = 0;
  bool last_save_lost = false;

  HostGroup& hosts() { return options.hosts ? *options.hosts : alone; }
  void warn(const std::string& text) const {
    if (options.warn)
      options.warn(text);
    else
      write_warning(text);
  }
  Outcome write(int64_t step, const SlicesWhenReady& ready, const std::string& state_json);
  void write_beside(int64_t step, SlicesWhenReady ready, const std::string& state_json);
  std::vector<std::string> apply_keep(int64_t just_saved);
  void take(const Outcome& ended);
  void join();
  void settle();
};

/// One save, the removal of old ones and what follows, on whichever thread.
Outcome CheckpointManager::Impl::write(int64_t step, const SlicesWhenReady& ready,
                                       const std::string& state_json) {
  const auto start = Clock::now();
  Outcome result;
  try {
    std::vector<TensorSlice> slices;
    stage(hosts(), [&] { slices = ready(); });
    result.bytes = write_checkpoint(model_dir, step, options.run_id, slices, state_json, hosts());
    result.seconds = seconds_since(start);
    stage(hosts(), [&] {
      if (hosts().index() == 0) result.warnings = apply_keep(step);
    });
    if (options.after_save) options.after_save(step, hosts(), result.warnings);
  } catch (...) {
    result.failure = std::current_exception();
  }
  return result;
}

/// Removes what is not kept; never the step just saved, nor PINNED ones, which count as kept. A deletion that
/// fails loses no data: a warning.
std::vector<std::string> CheckpointManager::Impl::apply_keep(int64_t just_saved) {
  std::vector<std::string> warnings;
  if (options.keep <= 0 && !options.choose_removed) return warnings;
  std::vector<int64_t> steps = list_checkpoints(model_dir);
  std::erase(steps, just_saved);
  steps.push_back(just_saved);
  const auto surplus = std::max<std::ptrdiff_t>(std::ssize(steps) - options.keep, 0);
  const std::vector<int64_t> removed = options.choose_removed
                                           ? options.choose_removed(steps, warnings)
                                           : std::vector(steps.begin(), steps.begin() + surplus);
  for (const int64_t step : removed) {
    if (step == just_saved || is_there(checkpoint_path(model_dir, step) / kPinnedName)) continue;
    try {
      trash(model_dir, step);
    } catch (const Error& error) {
      warnings.push_back(fmt::format("an old checkpoint could not be removed: {}", error.what()));
    }
  }
  return warnings;
}

/// The result of a save that has ended, on the caller's thread; throws if it failed.
void CheckpointManager::Impl::take(const Outcome& ended) {
  timing.write_seconds = ended.seconds;
  timing.bytes = ended.bytes;
  last_save_lost = ended.failure != nullptr;
  for (const std::string& text : ended.warnings) warn(text);
  if (ended.failure) std::rethrow_exception(ended.failure);
  failures_in_a_row = 0;
}

void CheckpointManager::Impl::join() {
  if (writer.joinable()) writer.join();
}

/// Takes the result of a background save that has ended, if there is one.
void CheckpointManager::Impl::settle() {
  if (!done || !pending) return;
  pending = false;
  join();
  try {
    take(std::exchange(outcome, {}));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDisk) throw;
    ++failures_in_a_row;
    // Without any checkpoint, training on would be at the mercy of the disk.
    if (list_checkpoints(model_dir).empty()) throw;
    if (failures_in_a_row >= options.save_failures_max)
      fail(ExitCode::kDisk, "{} ({} saves in a row failed)", error.what(), failures_in_a_row);
    warn(fmt::format("a checkpoint could not be saved ({} of {} failures allowed in a row): {}",
                     failures_in_a_row, options.save_failures_max - 1, error.what()));
  }
}

void CheckpointManager::Impl::write_beside(int64_t step, SlicesWhenReady ready,
                                           const std::string& state_json) {
  const auto run = [this, step, ready = std::move(ready), state_json] {
    outcome = write(step, ready, state_json);
    done = true;
    done.notify_all();
  };
  done = false;
  pending = true;
  try {
    writer = start_thread("to save a checkpoint", [run] {
      omp_set_num_threads(1);  // of this thread: the others train
      run();
    });
  } catch (const Error& error) {
    warn(fmt::format("{}; training waits for this save", error.what()));
    run();
  } catch (...) {
    done = true;
    pending = false;
    throw;
  }
}

CheckpointManager::CheckpointManager(const FolderLock& lock, CheckpointOptions options)
    : impl_(std::make_unique<Impl>()) {
  QT_CHECK(options.keep >= 0, "checkpoint: keep is {}, expected 0 (all) or more", options.keep);
  QT_CHECK(options.save_failures_max >= 1,
           "checkpoint: save_failures_max is {}, expected 1 or more", options.save_failures_max);
  // A file-size limit must be an error of write(2), not the end of the process.
  ::signal(SIGXFSZ, SIG_IGN);
  start_hdf5();
  impl_->model_dir = lock.folder();
  impl_->options = std::move(options);
  if (impl_->options.run_id.empty()) impl_->options.run_id = make_run_id();
  if (!lock.taken_over_from().empty())
    impl_->warn(fmt::format("{}: the last run there ended without giving back its lock ({})",
                            impl_->model_dir.string(), lock.taken_over_from()));
  if (impl_->hosts().index() == 0) remove_leftovers(impl_->model_dir);
  impl_->hosts().all_ok(true);
}

CheckpointManager::~CheckpointManager() {
  try {
    wait();
  } catch (const std::exception& error) {
    impl_->warn(fmt::format("a checkpoint could not be saved: {}", error.what()));
  }
}

std::vector<int64_t> CheckpointManager::steps() const { return list_checkpoints(impl_->model_dir); }

std::optional<int64_t> CheckpointManager::latest_step() const {
  const auto all = steps();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

void CheckpointManager::save(int64_t step, const std::vector<TensorSlice>& slices,
                             const std::string& state_json) {
  const auto start = Clock::now();
  wait();
  impl_->take(impl_->write(
      step, [&] { return slices; }, state_json));
  impl_->timing.stall_seconds = seconds_since(start);
}

void CheckpointManager::save_async(int64_t step, const std::vector<TensorSlice>& slices,
                                   const std::string& state_json) {
  const auto start = Clock::now();
  wait();
  impl_->snapshot.take(slices);
  impl_->write_beside(
      step, [impl = impl_.get()] { return impl->snapshot.slices(); }, state_json);
  impl_->timing.stall_seconds = seconds_since(start);
}

void CheckpointManager::save_async(int64_t step, SlicesWhenReady slices,
                                   const std::string& state_json) {
  const auto start = Clock::now();
  wait();
  impl_->write_beside(step, std::move(slices), state_json);
  impl_->timing.stall_seconds = seconds_since(start);
}

void CheckpointManager::poll() { impl_->settle(); }

void CheckpointManager::wait() {
  impl_->done.wait(false);
  impl_->settle();
}

void CheckpointManager::finish() {
  wait();
  QT_CHECK_AS(
      ExitCode::kDisk, !impl_->last_save_lost,
      "{}: the last checkpoint could not be saved (see the warning above); newest saved step: "
      "{}",
      impl_->model_dir.string(), latest_step() ? fmt::format("{}", *latest_step()) : "none");
}

CheckpointManager::Timing CheckpointManager::last_timing() const { return impl_->timing; }

std::shared_ptr<const CheckpointReader> CheckpointManager::latest_whole() {
  HostGroup& hosts = impl_->hosts();
  std::vector<int64_t> all = numbers_in(hosts.of_first(fmt::format("{}", fmt::join(steps(), " "))));
  std::string problems;
  while (!all.empty()) {
    const int64_t step = all.back();
    all.pop_back();
    const std::filesystem::path folder = checkpoint_path(impl_->model_dir, step);
    std::string problem = "another host found it damaged or not finite";
    bool whole = true;
    std::shared_ptr<const NativeCheckpointReader> reader;
    try {
      reader = NativeCheckpointReader::open_together(folder, hosts);
      const NotFinite bad = reader->verify(hosts.index(), hosts.count());
      whole = bad.empty();
      if (!whole) problem = fmt::format("{}: {}", folder.string(), describe(bad));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      whole = false;
      problem = error.what();
    }
    if (hosts.all_ok(whole)) return reader;
    problems += fmt::format("\n  {}", problem);
    if (all.empty()) break;
    const auto aside = hosts.index() == 0 ? set_aside(impl_->model_dir, step) : folder;
    impl_->warn(
        fmt::format("CHECKPOINT {} IS DAMAGED, going back to step {}: {}; it was moved to {}", step,
                    all.back(), problem, aside.string()));
  }
  QT_CHECK_AS(ExitCode::kData, problems.empty(),
              "{}: no checkpoint is whole and finite:{}\nrestore one from a copy, or choose a new "
              "model_dir",
              impl_->model_dir.string(), problems);
  return nullptr;
}

void CheckpointManager::remove(int64_t step) {
  wait();
  QT_CHECK(is_there(checkpoint_path(impl_->model_dir, step)),
           "{}: there is no checkpoint of step {}", impl_->model_dir.string(), step);
  trash(impl_->model_dir, step);
}

}  // namespace quintet
