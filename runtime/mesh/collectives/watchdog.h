#pragma once
// Ends the job when a rank is dead or hangs: a thread in every process that knows which collective
// its process waits in, asks the others where they are when that takes too long, and names the one
// that does not answer or is somewhere else.
//
//   Watchdog::Waiting waiting(watchdog, activity);   // around every wait for other ranks
//
// A rank that is named and still answers first prints where each of its threads is (base/stacks.h).
//
// A process of the same host that has ended is seen within 0.2 s, before mpirun sees it.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/mesh/collectives/transport.h"

namespace quintet {

/// How watchdogs of different processes reach each other. Called by the watchdog's thread alone.
class WatchChannel {
 public:
  virtual ~WatchChannel() = default;
  struct Note {
    int rank;
    bool question;  // else an answer
    std::string text;
  };
  virtual void send(const Note& to) = 0;
  virtual std::vector<Note> receive() = 0;  // what has come; does not wait
};

class Watchdog {
 public:
  struct Options {
    double timeout_seconds = 600;                      // of one collective; 0: for ever
    std::function<bool()> signalled = {};              // mpirun sends SIGTERM when a rank has died
    std::function<void(const std::string&)> end = {};  // prints the message, ends the job
  };
  /// Local processes by rank: they are watched directly.
  Watchdog(Options options, int rank, std::vector<std::string> hosts,
           std::map<int, int> local_processes, std::unique_ptr<WatchChannel> channel);
  ~Watchdog();

  /// Ends the job with a message of another's, such as NCCL's.
  void end(const std::string& what) const;

  /// This process waits in `activity` while it lives. `patient`: others may be long at something
  /// else, such as writing a file; only a rank that does not answer ends the job.
  class Waiting {
   public:
    Waiting(Watchdog& watchdog, const Activity& activity, bool patient);
    /// Of a device's queue: whether the device has come to it, or is still at work before it.
    void set_started(bool started);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Watchdog& watchdog_;
    int64_t id_;
  };

 private:
  struct Wait {
    Activity activity;
    double since = 0, ask_at = 0;
    bool patient = false, started = true;
  };
  void serve();
  void watch_processes();
  void look_for_long_waits();
  void ask(int64_t id, const Wait& wait, double waited);
  std::string state() const;
  std::string place(int rank) const;
  std::map<int, std::string> answers_of(const std::vector<int>& ranks, double seconds,
                                        const std::string& question = "");
  void answer(const WatchChannel::Note& question);

  const Options options_;
  const int rank_;
  const std::vector<std::string> hosts_;
  std::map<int, int> processes_;
  std::unique_ptr<WatchChannel> channel_;
  mutable std::mutex mutex_;
  std::map<int64_t, Wait> waits_;
  std::string last_ = "no collective yet";
  double last_end_ = 0;
  int64_t next_id_ = 0;
  std::atomic<bool> closed_{false};
  std::thread thread_;
};

}  // namespace quintet
