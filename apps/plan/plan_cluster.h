#pragma once
// `quintet plan --cluster=FILE`: every layout of a cluster's devices, simulated; and published runs,
// simulated, beside what was published.

#include <optional>

#include "apps/flags/result_format.h"
#include "apps/plan/cluster.h"
#include "apps/plan/layout_report.h"

namespace CLI {
class App;
}

namespace quintet {

struct ClusterPlan {
  std::string cluster, layouts, published, report;  // files; layouts as in parse_layouts
  bool search = false;
  ResultFormat format;

  void add_to(CLI::App& app);
  /// Throws usage errors of flags that do not go together.
  void check(const TrainerOptions& options) const;
  /// What --cluster says; none without it. Reads the file, which may be a pipe, once: call it once.
  std::optional<Cluster> read() const;
};

/// `title`: of the model; `cluster`: what plan.read() gave. Prints one JSON object a layout and the table.
void plan_cluster(const ClusterPlan& plan, const std::optional<Cluster>& cluster,
                  const std::string& title, const LayoutCase& what);
/// A file of runs, each with its cluster, model, layout, batch and the sequences a second published:
/// bench/published/t5_training.json.
std::vector<PublishedRun> plan_published(const std::string& file);

}  // namespace quintet
