#pragma once
// The ranks that train together: this process alone, or those that mpirun or srun started.
//
//   Ranks ranks(flags);                                    // starts MPI where there is a launcher
//   ranks.agree_on("command line", arguments);             // exit 2 with both values otherwise
//   ranks.open(Device::current());
//   Mesh mesh(axes, ranks.comm());
//   if (ranks.leads()) write_metrics();
//
// The first rank alone writes metrics, logs and the configuration; decisions that depend on one
// rank's clock, signals or files are made together.

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mpi/session.h"

namespace CLI {
class App;
}

namespace quintet {

struct RankFlags {
  double collective_timeout = 600;  // seconds; 0: for ever
  int init_timeout = 1800;          // seconds until all ranks have started
  int64_t check_replicas = 1000;    // steps; 0: never
  bool share_gpus = false;          // ranks of one GPU are meant

  void add_to(CLI::App& app);
  /// Of a verb whose ranks wait for each other at the start alone.
  void add_init_timeout(CLI::App& app);
};

class Ranks {
 public:
  explicit Ranks(const RankFlags& flags);

  const mpi::Session& session() const { return session_; }
  /// A line of what must be the same on all ranks, and how a message shows it.
  struct Line {
    std::string compared, shown;
  };
  /// Builds, arguments and data must be the same on all ranks: throws an error of this code, on all of
  /// them, that names the first line that differs, with both ranks' values and `advice`. All ranks call
  /// it; those without lines have no part in it. One number a rank is reduced while all is well.
  void agree_on(const std::string& what, const std::vector<Line>& lines, const std::string& advice,
                ExitCode code = ExitCode::kUsage) const;
  /// The same for a text's lines: programs, flags, configurations.
  void agree_on(const std::string& what, const std::string& text) const;
  /// On the build and on what the verb was started with.
  void agree_on_program(const std::string& arguments) const;

  /// Starts talking about data in the device's memory. The last `data_ranks` ranks call it too and
  /// have no part in what follows. Throws Error(kEnvironment) that names two ranks whose processors,
  /// drivers or libraries differ: the same numbers would become different ones on them.
  void open(Device& device, int data_ranks = 0);

  int rank() const { return session_.rank(); }
  /// Ranks that train.
  int size() const { return session_.size() - data_ranks_; }
  bool leads() const { return rank() == 0; }
  const RankFlags& flags() const { return flags_; }
  /// Null where one rank trains.
  Comm* comm() const { return comm_.get(); }
  /// The ranks that train, for data in the device's memory; with comm() only.
  Group group() const;
  /// The largest of all ranks' numbers; all call it.
  int64_t highest(int64_t number) const;
  /// The first rank's text; all call it.
  std::string of_leader(const std::string& text) const;
  /// The text of every rank, in order; all call it.
  std::vector<std::string> gather(const std::string& text) const;
  /// Those that write a checkpoint together, for the manager's own thread; null for one rank.
  std::shared_ptr<HostGroup> writers() const;

 private:
  RankFlags flags_;
  mpi::Session session_;
  int data_ranks_ = 0;
  std::unique_ptr<Comm> comm_;
};

/// Ranks 0 .. count-1 of a comm as those that write one checkpoint.
std::shared_ptr<HostGroup> writers_of(std::unique_ptr<Comm> comm, int count);

}  // namespace quintet
