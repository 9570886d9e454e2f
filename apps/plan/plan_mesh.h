#pragma once
// `quintet plan --mesh=AXES`: a simulated training step on one mesh.

#include <string>

#include "apps/plan/layout_step.h"
#include "runtime/mesh/rules.h"

namespace quintet {

struct MeshPlan {
  std::string mesh = "data=1,model=1";
  int activations = 0, parameters = 0;  // dimensions of T5X's tables; 0: the configured rules
  bool explain = false;                 // which op runs where, what is resharded
};

/// Prints on stdout what each rank sends in a step. Throws a usage error for what is no mesh.
void plan_mesh(const MeshPlan& plan, const LayoutCase& what, const LogicalAxisRules& configured);

}  // namespace quintet
