#pragma once
// The ranks of a benchmark: those of mpirun, or threads of this process (--ranks), which share its cores.
//
//   RankBench ranks;
//   ranks.add_to(app);
//   ranks.start("layouts", args, compute);
//   ranks.run([&](Comm& comm) { ... });      // on every rank
//   if (ranks.leads()) print();

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/flags/compute_flags.h"
#include "apps/process/ranks.h"

namespace quintet {

class RankBench {
 public:
  void add_to(CLI::App& app);
  /// Opens the device and the ranks. Throws usage errors: another --ranks than mpirun's, threads on a GPU.
  void start(const std::string& bench, const std::vector<std::string>& args,
             const ComputeFlags& compute);
  void run(const std::function<void(Comm&)>& body) const;

  int size() const { return size_; }
  bool leads() const { return processes_->leads(); }
  /// "threads" or "processes".
  std::string carrier() const;

 private:
  bool are_threads() const { return processes_->session().size() == 1; }

  RankFlags flags_;
  int asked_ = 0, size_ = 1;
  std::unique_ptr<Ranks> processes_;
};

}  // namespace quintet
