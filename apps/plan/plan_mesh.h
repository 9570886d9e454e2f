#pragma once
// `quintet plan --mesh=AXES`: a simulated training step on one mesh.

#include <filesystem>
#include <string>

#include "apps/flags/result_format.h"
#include "apps/plan/layout_step.h"
#include "runtime/mesh/rules.h"

namespace quintet {

struct MeshPlan {
  std::string mesh = "data=1,model=1";
  int activations = 0, parameters = 0;  // dimensions of T5X's tables; 0: the configured rules
  bool explain = false;                 // which op runs where, what is resharded
  std::filesystem::path file = {};      // where that is written, too; empty: nowhere
  bool configured_for_experts = false;  // the configured rules know an expert axis

  /// Throws a usage error for what is no mesh.
  int64_t ranks() const;
};

/// Prints what each rank sends in a step: an object for each collective, and a table. Throws a usage error for what is no
/// mesh.
void plan_mesh(const MeshPlan& plan, const LayoutCase& what, const LogicalAxisRules& configured,
               const ResultFormat& format);

}  // namespace quintet
