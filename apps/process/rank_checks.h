#pragma once
// What ranks look at in each other while they train: whether copies of the same numbers are still
// the same (row D5 of the fault table), and whether one of them holds up the others (D6).

#include <string>
#include <vector>

#include "runtime/mesh/mesh.h"
#include "runtime/optim/optimizer.h"

namespace quintet {

/// Compares the checksums of every block that several ranks hold: the largest and the smallest of all
/// ranks' are reduced, two numbers an array. Throws kPeer on all ranks, naming a block that differs
/// and two ranks. All ranks of the mesh call it.
void check_replicas(const std::vector<StateArray>& state, const Mesh& mesh);

/// Seconds that a rank's steps take of its own work: waiting for others aside.
class Pace {
 public:
  static constexpr int64_t kSteps = 20;
  void add(double seconds);
  /// After every kSteps steps. All ranks then call slow_ranks.
  bool due() const { return steps_ == kSteps; }
  /// A warning that names ranks that took much longer than most; empty: none.
  std::string slow_ranks(const Group& ranks);

 private:
  int64_t steps_ = 0;
  double seconds_ = 0;
};

/// The same from the seconds a step of every rank.
std::string slow_ranks(const std::vector<double>& seconds, const std::vector<std::string>& hosts);

}  // namespace quintet
