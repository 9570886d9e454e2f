#pragma once
// Layouts of a training run and what one costs: the rows that `quintet bench layouts` measures and
// `quintet plan` works out, as a table and as JSON. layout_report.h draws them.

#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/device_counts.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/mesh/collectives/collectives.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/rules.h"

namespace quintet {

/// A (data, model) mesh and the dimensions of T5X's tables of rules; named "2x2:a1p2". Of a model with
/// experts a (data, expert, model) mesh and the tables of t5x.contrib.moe; named "2x2x4:a1p2". With
/// replicas in front of it "r4x2x2:a1p2", with sequence parallelism "2x2:a1p2s", with context parallelism "2x2:a1p2c".
struct TrainingLayout {
  int data = 1, model = 1, activations = 1, parameters = 1;
  int expert = 0;  // 0: the model has no experts
  int replica = 1;
  bool sequence = false, context = false;
  bool operator==(const TrainingLayout&) const = default;

  std::string name() const;
  int64_t ranks() const { return int64_t{replica} * data * model * std::max(expert, 1); }
  std::vector<MeshAxis> mesh() const;
  LogicalAxisRules rules() const;
};

/// Every factorisation of the ranks with every table that makes a difference on it, but for context
/// parallelism. `experts`: of the
/// model's layers, 0: it has none; the expert axis divides them.
std::vector<TrainingLayout> all_layouts(int ranks, int64_t experts = 0);
/// "2x2:a1p2,4x1": without a table, 1 dimension each; of a model with experts "2x2x4:a1p2" too. Throws
/// a usage error naming what is not a layout, or what does not need exactly `ranks` ranks.
std::vector<TrainingLayout> parse_layouts(const std::string& text, int ranks, int64_t experts = 0);

/// One step of one layout.
struct LayoutRow {
  TrainingLayout layout;
  std::string flags = {};    // that the step needs beside the layout
  std::string refused = {};  // why it cannot run; the rest is zero then
  double seconds = 0, compute = 0, exposed = 0, data = 0;  // of a step; exposed: communication
  double tokens_per_second = 0, mfu = 0;
  Traffic::Table traffic = {};  // sent by a rank in a step
  MemoryMeter::Kinds memory{};  // of a rank, when it held most
  int64_t pinned_bytes = 0;     // of its host, through which an optimizer's arrays travel there
  int64_t messages = 0;         // through ordinary memory, of a rank in a step that is measured
  bool fits = true;             // into a device's memory
  DeviceCounts counts =
      {};  // of a step of one rank; of all ranks if they are threads that share a GPU

  int64_t sent_bytes() const;
  bool runs() const { return refused.empty() && fits; }
};

/// The fastest that runs; null: none does.
const LayoutRow* best_of(const std::vector<LayoutRow>& rows);
/// For people; the best is marked by a star.
std::string layout_table(const std::vector<LayoutRow>& rows);
/// Members of a JSON object: launches, copies, host_waits, bytes_to_host, staged_bytes of one of `steps`.
nlohmann::ordered_json counts_json(const DeviceCounts& counts, int64_t steps);
/// One object; `facts`: members to put first.
std::string layout_json(const LayoutRow& row, bool best,
                        const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace quintet
