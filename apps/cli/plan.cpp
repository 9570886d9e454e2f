// `quintet plan`: a training step of a model on paper: on one mesh, which op runs where, what moves, how
// many bytes each rank sends; on a cluster, what every layout costs (plan_cluster.h).

#include <cstdio>

#include "apps/bench/bench_models.h"
#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/plan/gin_case.h"
#include "apps/plan/plan_cluster.h"
#include "runtime/abstract_device.h"
#include "runtime/batch_rows.h"
#include "runtime/configurables.h"
#include "runtime/mesh/sharding.h"
#include "runtime/reshard.h"
#include "runtime/step_log.h"

namespace quintet {
namespace {

struct PlanOptions {
  std::vector<std::string> files;
  std::string mesh = "data=1,model=1";
  BenchOptions bench = {  // its model, if there is one, instead of files
      .model = "",
      .batch = 128,
      .inputs = 512,
      .targets = 114,
      .compute = {}};
  int activations = 0, parameters = 0;  // dimensions of T5X's tables; 0: the rules of the gin files
  bool explain = false;
  ClusterPlan on_cluster;
};

/// "data=4,model=2"
std::vector<MeshAxis> parse_mesh(const std::string& text) {
  std::vector<MeshAxis> mesh;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t equals = item.find('=');
    const std::string digits = equals == std::string::npos ? "" : item.substr(equals + 1);
    QT_CHECK(equals > 0 && !digits.empty() && digits.size() < 7 &&
                 digits.find_first_not_of("0123456789") == std::string::npos &&
                 std::stoi(digits) > 0,
             "--mesh={}: expected axes with their sizes, like data=4,model=2", text);
    mesh.push_back({item.substr(0, equals), std::stoi(digits)});
    at = end + 1;
  }
  return mesh;
}

size_t ranks_of(const std::vector<MeshAxis>& mesh) {
  constexpr size_t kMost = 1 << 20;
  size_t ranks = 1;
  for (const MeshAxis& axis : mesh) {
    ranks *= static_cast<size_t>(axis.size);
    QT_CHECK(ranks <= kMost, "--mesh: more than {} ranks", kMost);
  }
  return ranks;
}

/// Runs one step abstractly.
void run_step(const LayoutCase& what, StepLog& log) {
  const ModelAndOptimizer trained = what.make();
  BaseModel& model = *trained.model;
  model.parameters().allocate();
  model.parameters().refresh();
  for (const ParamInfo& info : model.parameters().all()) {
    log.name(info.value, info.name);
    if (info.compute) log.name(info.compute, info.name);
  }
  const LossFunction loss = [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
    log.section("forward");
    StepLoss result = loss_of(model)(batch, begin, end, key);
    log.section("backward");
    return result;
  };
  Trainer trainer(loss, model.parameters(), on_paper(trained.optimizer), {}, {});
  const StepLog::Use use(log);
  trainer.train(own_rows(what.batch(0)));
}

}  // namespace

int run_plan(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = gin::extract_command_line(left);
  PlanOptions options;
  CommandLine cli("plan", "A training step on a mesh, on paper: layouts, collectives, bytes.",
                  "quintet plan t5x/examples/t5/t5_1_1/small.gin --gin.DROPOUT_RATE=0.0 "
                  "--mesh=data=4,model=2 --parameters=2 --explain");
  CLI::App& app = cli.app();
  app.add_option("FILE", options.files, "gin files that define MODEL");
  app.add_option("--mesh", options.mesh, "axes and sizes of the mesh, outermost first");
  app.add_option("--batch", options.bench.batch, "rows of a batch")->check(CLI::PositiveNumber);
  app.add_option("--inputs", options.bench.inputs, "input tokens a row")
      ->check(CLI::PositiveNumber);
  app.add_option("--targets", options.bench.targets, "target tokens a row")
      ->check(CLI::PositiveNumber);
  app.add_option("--activations", options.activations,
                 "1 or 2: T5X's rules for activations; else those of partitioning.PjitPartitioner")
      ->check(CLI::Range(1, 2));
  app.add_option("--parameters", options.parameters,
                 "1 or 2: T5X's rules for parameters (2: ZeRO-3)")
      ->check(CLI::Range(1, 2));
  app.add_option("--model", options.bench.model,
                 "instead of gin files: t5_1_1_small, ... as bench has them");
  app.add_option("--dtype", options.bench.dtype, "of --model: float32 or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--cluster", options.on_cluster.cluster,
                 "a JSON file that describes devices and links: plans every layout of them");
  app.add_option("--layouts", options.on_cluster.layouts,
                 "with --cluster: DATAxMODEL:aNpN, of experts DATAxMODELxEXPERT:aNpN, with commas "
                 "between; default: all of them");
  app.add_option("--published", options.on_cluster.published,
                 "a file of published runs, planned beside what was published");
  app.add_option("--report", options.on_cluster.report, "with --cluster: an HTML file");
  app.add_flag("--explain", options.explain, "op by op: layouts and collectives of one step");
  if (!cli.parse(left)) return 0;
  gin_line.files.insert(gin_line.files.end(), options.files.begin(), options.files.end());
  const ClusterPlan& on_cluster = options.on_cluster;
  if (!on_cluster.cluster.empty() && !options.bench.model.empty()) {
    plan_cluster(on_cluster, options.bench.model, bench_case(options.bench));
    return 0;
  }
  if (on_cluster.cluster.empty() && !on_cluster.published.empty()) {
    plan_cluster(on_cluster, "published runs", {});
    return 0;
  }
  const auto session = model_session("plan", gin_line);
  const LayoutCase what = gin_case(options.bench, *session);
  if (!on_cluster.cluster.empty()) {
    plan_cluster(on_cluster, gin_line.files.back(), what);
    return 0;
  }
  AbstractDevice device;
  Device::use(device);
  {
    const auto partitioner =
        session->config().call_as<PartitionerConfig>("partitioning.PjitPartitioner");
    const std::vector<MeshAxis> mesh = parse_mesh(options.mesh);
    const bool experts = std::any_of(mesh.begin(), mesh.end(),
                                     [](const MeshAxis& axis) { return axis.name == "expert"; });
    const AxisRuleOptions dims{.activation_partitioning_dims = std::max(options.activations, 1),
                               .parameter_partitioning_dims = std::max(options.parameters, 1),
                               .additional_rules = {}};
    const LogicalAxisRules rules = experts ? moe_logical_axis_rules(dims)
                                   : options.activations + options.parameters == 0
                                       ? partitioner.logical_axis_rules
                                       : standard_logical_axis_rules(dims);
    const auto comm = paper_comm(0, std::vector<std::string>(ranks_of(mesh), "paper"), device);
    const Mesh ranks(mesh, comm.get());
    const Sharding sharding(ranks, rules);
    const Sharding::Use use(sharding);
    StepLog log;
    run_step(what, log);
    if (options.explain) fmt::print("{}\n", log.text());
    fmt::print("Sent by each rank in one step:\n{}", log.totals());
  }
  Device::use(Device::cpu());
  return 0;
}

}  // namespace quintet
