#include "apps/plan/plan_mesh.h"

#include "runtime/abstract/abstract_device.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/execution/reshard.h"
#include "runtime/mesh/sharding.h"
#include "runtime/profile/step_log.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

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
    LossOutput result = loss_of(model)(batch, begin, end, key);
    log.section("backward");
    return result;
  };
  const TrainerOptions options = simulated_options(what, trained);
  Trainer trainer(loss, model.parameters(),
                  abstract_optimizer(trained.optimizer, options.gradient_dtype), options, {});
  const StepLog::Use use(log);
  trainer.train(local_rows(what.batch(0)));
}

}  // namespace

int64_t MeshPlan::ranks() const { return static_cast<int64_t>(ranks_of(parse_mesh(mesh))); }

void plan_mesh(const MeshPlan& plan, const LayoutCase& what, const LogicalAxisRules& configured,
               const ResultFormat& format) {
  QT_CHECK(!plan.explain || !format.is_json(), "--explain: is text; leave --format=json");
  AbstractDevice device;
  const Device::Use use_device(device);
  const std::vector<MeshAxis> mesh = parse_mesh(plan.mesh);
  const auto has_axis = [&](std::string_view name) {
    return std::ranges::any_of(mesh, [&](const MeshAxis& axis) { return axis.name == name; });
  };
  const bool experts = has_axis("expert");
  const AxisRuleOptions dims{.activation_partitioning_dims = std::max(plan.activations, 1),
                             .parameter_partitioning_dims = std::max(plan.parameters, 1),
                             .additional_rules = {}};
  const bool as_configured =
      plan.activations + plan.parameters == 0 && (!experts || plan.configured_for_experts);
  LogicalAxisRules rules = as_configured ? configured
                           : experts     ? moe_logical_axis_rules(dims)
                                         : standard_logical_axis_rules(dims);
  if (has_axis("replica")) rules = with_replicas(std::move(rules));
  const auto comm = abstract_comm(0, std::vector<std::string>(ranks_of(mesh), "abstract"), device);
  const Mesh ranks(mesh, comm.get());
  const Sharding sharding(ranks, rules);
  const Sharding::Use use_sharding(sharding);
  StepLog log;
  run_step(what, log);
  for (const auto& [what_over, sent] : log.sent())
    format.print_object(nlohmann::ordered_json{
        {"collective", what_over.first},
        {"over", what_over.second},
        {"calls", sent.calls},
        {"bytes",
         sent.bytes}}.dump());
  if (plan.explain) format.print_text(log.text() + "\n");
  if (!plan.file.empty()) atomic_write_file(plan.file, log.text() + "\n" + log.totals());
  format.print_text("Sent by each rank in one step:\n" + log.totals());
}

}  // namespace quintet
