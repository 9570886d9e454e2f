#pragma once
// `quintet precompile`: T5X's precompile.py, which lowers and compiles a training step without the accelerators. Here
// nothing is compiled ahead of time: the step of its configuration is simulated, as `quintet plan` does it.

#include "apps/config/gin_session.h"
#include "apps/flags/microbatch_flags.h"
#include "apps/plan/plan_cluster.h"
#include "apps/plan/plan_mesh.h"
#include "data/batches/batches.h"
#include "models/configurables.h"
#include "runtime/configurables/configurables.h"

namespace quintet {

/// The arguments of train_script.precompile.
struct PrecompileConfig {
  std::shared_ptr<ConfiguredModel> model;
  data::DatasetConfig dataset;
  PartitionerConfig partitioner;
  std::filesystem::path model_dir;
  bool verify_vocabs = true;
};
PrecompileConfig precompile_config_from(const gin::Arguments& args);

struct PrecompileFlags {
  MeshPlan on_mesh{.mesh = ""};  // empty: the smallest that the partitioner asks for
  ClusterPlan on_cluster;
  MicrobatchFlags microbatches;
};

/// By the arguments of train_script.precompile. Without a cluster, MODEL_DIR/step.txt has the step op by op. Throws usage
/// errors of the configuration.
void precompile(PrecompileFlags flags, GinSession& session, const gin::Arguments& args);

}  // namespace quintet
