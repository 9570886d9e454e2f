// `quintet plan`: a simulated training step: on one mesh, op by op; on a cluster, what every layout costs.

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/flags/microbatch_flags.h"
#include "apps/plan/gin_case.h"
#include "apps/plan/model_case.h"
#include "apps/plan/plan_cluster.h"
#include "apps/plan/plan_mesh.h"
#include "runtime/configurables/configurables.h"

namespace quintet {
namespace {

struct PlanOptions {
  std::vector<std::string> files;
  ModelCase bench = {.model = "", .batch = 128, .inputs = 512, .targets = 114};  // or its model
  MeshPlan on_mesh;
  ClusterPlan on_cluster;
  MicrobatchFlags microbatches;
};

void plan(const PlanOptions& options, const gin::CommandLine& gin_line) {
  const auto& [files, bench, on_mesh, on_cluster, microbatches] = options;
  const std::optional<Cluster> cluster = on_cluster.read();
  if (!cluster && !on_cluster.published.empty())
    return plan_cluster(on_cluster, {}, "published runs", {});
  const bool is_named = cluster && !bench.model.empty();
  const auto session = is_named ? nullptr : model_session("plan", gin_line);
  LayoutCase what = is_named ? layout_case(bench) : gin_case(bench, *session);
  what.options = microbatches.options(cluster ? cluster->devices : on_mesh.ranks());
  on_cluster.check(what.options);
  const auto remat = on_cluster.search && !is_named ? add_remat(what, bench, gin_line) : nullptr;
  if (cluster)
    return plan_cluster(on_cluster, cluster, is_named ? bench.model : gin_line.files.back(), what);
  const auto of = session->config().call_as<PartitionerConfig>("partitioning.PjitPartitioner");
  plan_mesh(on_mesh, what, of.logical_axis_rules, on_cluster.format);
}

}  // namespace

int run_plan(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = gin::extract_command_line(left);
  PlanOptions options;
  CommandLine cli("plan", "Simulates a training step on a mesh: layouts, collectives, bytes.",
                  "quintet plan t5x/examples/t5/t5_1_1/small.gin --gin.DROPOUT_RATE=0.0 "
                  "--mesh=data=4,model=2 --parameters=2 --explain");
  CLI::App& app = cli.app();
  app.add_option("FILE", options.files, "gin files that define MODEL");
  describe_gin_flags(app, "a gin file that defines MODEL");
  app.add_option("--mesh", options.on_mesh.mesh, "axes and sizes of the mesh, outermost first");
  add_model_flags(app, options.bench);
  app.add_option(
         "--activations", options.on_mesh.activations,
         "1 or 2: T5X's rules for activations; default: those of partitioning.PjitPartitioner")
      ->check(CLI::Range(1, 2));
  app.add_option("--parameters", options.on_mesh.parameters,
                 "1 or 2: T5X's rules for parameters (2: ZeRO-3); default: likewise")
      ->check(CLI::Range(1, 2));
  app.add_option("--dtype", options.bench.dtype, "of --model: float32 or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  options.on_cluster.add_to(app);
  app.add_flag("--explain", options.on_mesh.explain,
               "print layouts and collectives of one step, op by op");
  options.bench.lora.add_to(app);
  options.microbatches.add_microbatches_to(app);
  options.microbatches.add_to(app);
  LaunchFlags launch;
  launch.add_to_one_process(app);
  if (!cli.parse(left) || !launch.check()) return 0;
  gin_line.files.insert(gin_line.files.end(), options.files.begin(), options.files.end());
  plan(options, gin_line);
  return 0;
}

}  // namespace quintet
