#pragma once
// MPI from start to end. A process that mpirun, mpiexec or srun started is one rank of a job; any
// other is a job of one and never touches MPI.
//
//   mpi::Session session;                 // in main; ends MPI when it goes
//   if (session.rank() == 0) ...
//   session.fail(ExitCode::kPeer);        // ends all ranks
//
// MPI runs at MPI_THREAD_MULTIPLE: the watchdog, the data service and background saving talk from
// threads of their own. Calls go through mpi/call.h. Knows nothing of meshes or data.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/check.h"

namespace quintet::mpi {

/// Whether the environment says that a launcher of MPI jobs started this process.
bool launched();

/// At most one a process.
class Session {
 public:
  /// Starts MPI where launched(). Throws Error(kEnvironment) if MPI has no thread support, and ends
  /// the process with code 4 after `timeout_seconds` if a rank does not come (0: never). Says on stderr
  /// where srun started several tasks that do not know of each other.
  explicit Session(int timeout_seconds = 1800);
  /// Waits for the other ranks and ends MPI; during an exception, ends all ranks.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool active() const { return active_; }  // MPI calls are possible
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// Position among the ranks of the same host, and their number.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& host() const { return hosts_[static_cast<size_t>(rank_)]; }
  const std::vector<std::string>& hosts() const { return hosts_; }

  /// While it lives, what ranks do together at the start has the session's time: a process that is
  /// still in it then ends with code 4 and says that it waits `to` do that ("to compare flags").
  class TimeLimit {
   public:
    TimeLimit(const Session& session, const std::string& to);
    ~TimeLimit();
    TimeLimit(const TimeLimit&) = delete;
    TimeLimit& operator=(const TimeLimit&) = delete;
  };

  /// Text of every rank, in order; for what is small. All ranks call it, in the session's time.
  std::vector<std::string> gather(const std::string& text) const;

  /// Whether all ranks that have a number have the same one. All ranks call it, in the session's time.
  bool all_equal(std::optional<uint64_t> number) const;

  /// This process's rank, while MPI runs.
  static std::optional<int> rank_of_process();
  /// Ends every rank of the job at once; this process exits with `code`.
  [[noreturn]] static void fail(ExitCode code);

 private:
  bool active_ = false;
  int timeout_seconds_ = 0;
  int rank_ = 0, local_rank_ = 0, local_size_ = 1;
  std::vector<std::string> hosts_;
};

}  // namespace quintet::mpi
