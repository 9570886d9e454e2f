#include "runtime/mesh/collectives/watchdog.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/stacks.h"
#include "runtime/base/thread.h"

namespace quintet {
namespace {

constexpr double kAnswerSeconds = 1.0;        // a watchdog that lives answers in 0.05
constexpr double kSignalAnswerSeconds = 0.7;  // mpirun gives one second from SIGTERM to SIGKILL
constexpr double kStackSeconds = 5.0;         // for a rank to print where its threads are
constexpr const char* kShowStacks = "stacks";
constexpr std::chrono::milliseconds kRound(50);

/// Gone, or dead and not yet buried.
bool has_ended(int process) {
  if (kill(process, 0) != 0 && errno == ESRCH) return true;
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'Z';
}

}  // namespace

Watchdog::Watchdog(Options options, int rank, std::vector<std::string> hosts,
                   std::map<int, int> local_processes, std::unique_ptr<WatchChannel> channel)
    : options_(std::move(options)),
      rank_(rank),
      hosts_(std::move(hosts)),
      processes_(std::move(local_processes)),
      channel_(std::move(channel)),
      last_end_(now_seconds()),
      thread_(start_thread("to watch ranks", [this] { serve(); })) {
  handle_stack_signal();
}

Watchdog::~Watchdog() {
  closed_ = true;
  thread_.join();
}

Watchdog::Waiting::Waiting(Watchdog& watchdog, const Activity& activity, bool patient)
    : watchdog_(watchdog) {
  const std::lock_guard lock(watchdog.mutex_);
  id_ = watchdog.next_id_++;
  const double now = now_seconds();
  watchdog.waits_[id_] = {activity, now, now + watchdog.options_.timeout_seconds, patient};
}

void Watchdog::Waiting::set_started(bool started) {
  const std::lock_guard lock(watchdog_.mutex_);
  Wait& wait = watchdog_.waits_[id_];
  // Others are waited for from here on.
  if (started && !wait.started) wait.ask_at = now_seconds() + watchdog_.options_.timeout_seconds;
  wait.started = started;
}

Watchdog::Waiting::~Waiting() {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.last_ = to_string(watchdog_.waits_[id_].activity);
  watchdog_.last_end_ = now_seconds();
  watchdog_.waits_.erase(id_);
}

void Watchdog::serve() {
  while (!closed_) {
    for (const WatchChannel::Note& note : channel_->receive())
      if (note.question) answer(note);
    watch_processes();
    look_for_long_waits();
    std::this_thread::sleep_for(kRound);
  }
}

std::string Watchdog::place(int rank) const {
  return fmt::format("rank {} on {}", rank, hosts_[static_cast<size_t>(rank)]);
}

/// "waits in all_reduce ... since 3.2 s"; the first letter tells waiting from working.
std::string Watchdog::state() const {
  const std::lock_guard lock(mutex_);
  const double now = now_seconds();
  if (waits_.empty())
    return fmt::format("is in no collective since {:.1f} s; its last was {}", now - last_end_,
                       last_);
  const Wait& wait = waits_.begin()->second;
  if (!wait.started)
    return fmt::format("is at work on its device before {}, queued since {:.1f} s",
                       to_string(wait.activity), now - wait.since);
  return fmt::format("waits in {} since {:.1f} s", to_string(wait.activity), now - wait.since);
}

void Watchdog::end(const std::string& what) const {
  options_.end(fmt::format("{}: {}; it {}", place(rank_), what, state()));
}

void Watchdog::answer(const WatchChannel::Note& question) {
  if (question.text == kShowStacks) print_stacks(place(rank_));
  channel_->send({question.rank, false, state()});
}

void Watchdog::watch_processes() {
  for (const auto& [rank, process] : processes_)
    if (has_ended(process)) {
      options_.end(fmt::format("{} has died (process {}); {} {}", place(rank), process,
                               place(rank_), state()));
      processes_.clear();  // once
      return;
    }
}

void Watchdog::look_for_long_waits() {
  const double now = now_seconds();
  const bool hurry = options_.signalled && options_.signalled();
  std::optional<std::pair<int64_t, Wait>> longest;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, wait] : waits_) {
      const bool due = options_.timeout_seconds > 0 && now >= wait.ask_at;
      if (!due && !(hurry && now - wait.since > 0.2)) continue;
      if (due) wait.ask_at = now + options_.timeout_seconds;
      if (!longest || wait.since < longest->second.since) longest = {id, wait};
    }
  }
  if (longest) ask(longest->first, longest->second, now - longest->second.since);
}

void Watchdog::ask(int64_t id, const Wait& wait, double waited) {
  const bool late = options_.timeout_seconds > 0 && waited >= options_.timeout_seconds;
  if (!wait.started) {
    if (late)
      options_.end(fmt::format(
          "{}: its device has not come to {} in {:.1f} s (--collective_timeout is {:.0f} s): a "
          "kernel before it hangs or takes that long",
          place(rank_), to_string(wait.activity), waited, options_.timeout_seconds));
    return;
  }
  const auto answers =
      answers_of(wait.activity.ranks, late ? kAnswerSeconds : kSignalAnswerSeconds);
  {
    const std::lock_guard lock(mutex_);
    if (!waits_.contains(id)) return;  // over meanwhile: who has left since owes no answer
  }
  std::string silent, elsewhere, waiting;
  std::vector<int> to_blame;
  for (const int rank : wait.activity.ranks) {
    if (rank == rank_) continue;
    const auto found = answers.find(rank);
    if (found == answers.end())
      silent += fmt::format("{}{}", silent.empty() ? "" : ", ", place(rank));
    else {
      const bool waits = found->second.starts_with("waits");
      (waits ? waiting : elsewhere) += fmt::format("\n  {} {}", place(rank), found->second);
      if (!waits) to_blame.push_back(rank);
    }
  }
  const std::string self =
      fmt::format("{} has waited {:.1f} s in {}", place(rank_), waited, to_string(wait.activity));
  if (!silent.empty()) {
    options_.end(
        fmt::format("{} for {}, which does not answer: dead, stopped or cut off", self, silent));
  } else if (late && !wait.patient) {
    // Whoever keeps a rank waiting that we wait for has been waited for longer, and is reported
    // there.
    if (elsewhere.empty()) std::this_thread::sleep_for(std::chrono::seconds(2));
    answers_of(to_blame, kStackSeconds, kShowStacks);
    options_.end(fmt::format("{} (--collective_timeout is {:.0f} s):{}{}", self,
                             options_.timeout_seconds, elsewhere, waiting));
  }
}

std::map<int, std::string> Watchdog::answers_of(const std::vector<int>& ranks, double seconds,
                                                const std::string& question) {
  size_t requested = 0;
  for (const int rank : ranks)
    if (rank != rank_) {
      channel_->send({rank, true, question});
      ++requested;
    }
  std::map<int, std::string> answers;
  const double end = now_seconds() + seconds;
  while (answers.size() < requested && now_seconds() < end && !closed_) {
    for (const WatchChannel::Note& note : channel_->receive()) {
      if (note.question)
        answer(note);
      else if (std::find(ranks.begin(), ranks.end(), note.rank) != ranks.end())
        answers[note.rank] = note.text;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return answers;
}

}  // namespace quintet
