#include "runtime/configurables/configurables.h"

#include <algorithm>

#include "runtime/trainer/trainer.h"

namespace quintet {
namespace {

constexpr const char* kHybridAxes[] = {"replica", "data", "model"};

/// [('batch', 'data'), ('embed', None), ('batch', ('expert', 'data'))]
LogicalAxisRules rules_from(const gin::Value& value, const gin::Where& where) {
  if (auto made = value.object_as<LogicalAxisRules>()) return *made;
  LogicalAxisRules rules;
  const auto pairs = gin::as<std::vector<gin::Value>>(value, where);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [name, axes] = gin::as<std::tuple<std::string, gin::Value>>(pairs[i], where.item(i));
    if (axes.is_none()) {
      rules.push_back({name, {}});
    } else if (const auto* one = axes.get_if<std::string>()) {
      rules.push_back({name, {*one}});
    } else {
      rules.push_back({name, gin::as<std::vector<std::string>>(axes, where.item(i))});
    }
  }
  return rules;
}

gin::Value rules_function(const gin::Arguments& args, bool moe) {
  AxisRuleOptions options{args.get<int>("activation_partitioning_dims"),
                          args.get<int>("parameter_partitioning_dims"),
                          {},
                          args.get<bool>("sequence_parallel"),
                          args.get<bool>("context_parallel")};
  const gin::Value more = args.value("additional_rules");
  if (!more.is_none()) options.additional_rules = rules_from(more, args.where("additional_rules"));
  return gin::Value::object(std::make_shared<LogicalAxisRules>(
      moe ? moe_logical_axis_rules(options) : standard_logical_axis_rules(options)));
}

/// T5X's hybrid mesh of (replica, data, model): dcn_mesh_shape slices of ici_mesh_shape. They decide, as in
/// T5X, whose gin files bind num_partitions = 1 beside them.
void read_hybrid_mesh(const gin::Arguments& args, PartitionerConfig& config) {
  using Shape = std::vector<int64_t>;
  const auto shape = [&](const char* name) { return args.get<std::optional<Shape>>(name); };
  const auto ici = shape("ici_mesh_shape"), dcn = shape("dcn_mesh_shape");
  if (!ici && !dcn) return;
  const std::string name = args.where(ici ? "ici_mesh_shape" : "dcn_mesh_shape").text;
  QT_CHECK(ici && dcn,
           "{}: T5X makes a mesh of slices from ici_mesh_shape and dcn_mesh_shape together; "
           "bind the other one, or num_replicas and num_partitions",
           name);
  Shape sizes;
  for (const Shape* each : {&*ici, &*dcn})
    QT_CHECK(each->size() == 3 && std::ranges::all_of(*each, [](int64_t n) { return n >= 1; }),
             "{}: expected sizes of 3 axes (replica, data, model), each 1 or more, found ({})",
             args.where(each == &*ici ? "ici_mesh_shape" : "dcn_mesh_shape").text,
             fmt::join(*each, ", "));
  for (size_t i = 0; i < 3; ++i) {
    sizes.push_back((*ici)[i] * (*dcn)[i]);
    for (size_t j = i + 1; j < 3; ++j)
      QT_CHECK((*ici)[i] == 1 || (*dcn)[j] == 1,
               "{}: ranks of a slice are neighbours, {} ranks of '{}' in a slice and {} slices "
               "along '{}' "
               "would tear it; bind dcn_mesh_shape = ({}, {}, {})",
               name, (*ici)[i], kHybridAxes[i], (*dcn)[j], kHybridAxes[j],
               (*dcn)[0] * (*dcn)[1] * (*dcn)[2], 1, 1);
  }
  QT_CHECK(config.num_partitions == 1 || config.num_partitions == sizes[2],
           "{}: {} model ranks, but {} has {}; bind one of them", name, sizes[2], config.name,
           config.num_partitions);
  QT_CHECK(config.num_replicas == 1 || config.num_replicas == sizes[0],
           "{}: {} replicas, but {} has {}; bind one of them", name, sizes[0],
           args.where("num_replicas").text, config.num_replicas);
  config.num_replicas = sizes[0];
  config.num_data = sizes[1];
  config.num_partitions = sizes[2];
  config.name = name;
}

/// The ranks of the model axis: `parameter`, or the product of model_parallel_submesh, which decides where both
/// are bound, as in T5X, whose runs bind num_partitions = 1 beside the submesh of umT5's files.
int64_t model_ranks(const gin::Arguments& args, const char* parameter) {
  const auto partitions = args.get<std::optional<int64_t>>(parameter);
  const auto submesh = args.get<std::optional<std::vector<int64_t>>>("model_parallel_submesh");
  if (!submesh) return partitions.value_or(1);
  QT_CHECK(submesh->size() == 4 && std::ranges::all_of(*submesh, [](int64_t n) { return n >= 1; }),
           "{}: expected 4 sizes (x, y, z, core), each 1 or more, found ({})",
           args.where("model_parallel_submesh").text, fmt::join(*submesh, ", "));
  int64_t product = 1;
  for (const int64_t n : *submesh) product *= n;
  QT_CHECK(partitions.value_or(1) == 1 || *partitions == product,
           "{}: {}, but model_parallel_submesh has {} model ranks; bind one of them",
           args.where(parameter).text, *partitions, product);
  return product;
}

PartitionerConfig partitioner_config(const gin::Arguments& args) {
  PartitionerConfig config;
  config.name = args.where("num_partitions").text;
  config.num_partitions = model_ranks(args, "num_partitions");
  QT_CHECK(config.num_partitions >= 1, "{}: expected 1 or more, found {}",
           args.where("num_partitions").text, config.num_partitions);
  config.num_replicas = args.get<int64_t>("num_replicas");
  QT_CHECK(config.num_replicas >= 1, "{}: expected 1 or more, found {}",
           args.where("num_replicas").text, config.num_replicas);
  read_hybrid_mesh(args, config);
  const gin::Value rules = args.value("logical_axis_rules");
  if (!rules.is_none())
    config.logical_axis_rules = rules_from(rules, args.where("logical_axis_rules"));
  return config;
}

gin::Value made(PartitionerConfig config) {
  if (config.num_replicas > 1)
    config.logical_axis_rules = with_replicas(std::move(config.logical_axis_rules));
  return gin::Value::object(std::make_shared<PartitionerConfig>(std::move(config)));
}

gin::Value partitioner(const gin::Arguments& args) { return made(partitioner_config(args)); }

gin::Value moe_partitioner(const gin::Arguments& args) {
  PartitionerConfig config = partitioner_config(args);
  if (args.value("logical_axis_rules").is_none())
    config.logical_axis_rules = moe_logical_axis_rules({});
  for (const char* name : {"num_experts", "num_expert_partitions"}) {  // former name, present name
    if (args.value(name).is_none()) continue;
    config.num_expert_partitions = args.get<int64_t>(name);
    QT_CHECK(config.num_expert_partitions >= 1, "{}: expected 1 or more, found {}",
             args.where(name).text, config.num_expert_partitions);
  }
  return made(std::move(config));
}

struct WeightMetricsComputer {};

/// An empty pattern matches nothing, as in Python.
struct NamePattern {
  std::string expression;
};

gin::Value compute_num_model_partitions(const gin::Arguments& args) {
  return model_ranks(args, "num_model_partitions");
}

TrainerOptions trainer_options(const gin::Arguments& args) {
  TrainerOptions options;
  const int64_t parts = args.get<std::optional<int64_t>>("num_microbatches").value_or(1);
  QT_CHECK(parts >= 0, "{}: expected 1 or more, or 0 or None for whole batches, found {}",
           args.where("num_microbatches").text, parts);
  options.num_microbatches = std::max<int64_t>(parts, 1);  // 0: as T5X's
  options.t5x_dropout = args.get<bool>("t5x_dropout");
  options.learning_rate = args.get<Schedule>("learning_rate_fn");
  options.weight_metrics =
      args.get<std::optional<WeightMetricsComputer>>("weight_metrics_computer").has_value();
  return options;
}

gin::Value trainer(const gin::Arguments& args) {
  return gin::Value::object(std::make_shared<TrainerOptions>(trainer_options(args)));
}

gin::Value moe_trainer(const gin::Arguments& args) {
  TrainerOptions options = trainer_options(args);
  options.gradient_scale = static_cast<double>(args.get<int64_t>("num_expert_partitions"));
  options.scaled_gradients = ".*expert.*";
  if (args.has("sharded_match_fn"))
    options.scaled_gradients = args.value("sharded_match_fn").is_none()
                                   ? ""
                                   : args.get<NamePattern>("sharded_match_fn").expression;
  return gin::Value::object(std::make_shared<TrainerOptions>(std::move(options)));
}

}  // namespace

std::vector<MeshAxis> mesh_axes(const PartitionerConfig& config, int ranks) {
  QT_CHECK(
      ranks % config.num_partitions == 0,
      "{} = {}: does not divide the {} of this run; bind a divisor of it, or start other ranks: "
      "mpirun -n {} quintet ...",
      config.name, config.num_partitions, ranks == 1 ? "one rank" : fmt::format("{} ranks", ranks),
      config.num_partitions);
  int64_t others = ranks / config.num_partitions;
  QT_CHECK(
      others % config.num_replicas == 0,
      "{}: {} replicas of {} model ranks do not divide the {} ranks of this run; bind num_replicas "
      "to a divisor of {}",
      config.name, config.num_replicas, config.num_partitions, ranks, others);
  others /= config.num_replicas;
  QT_CHECK(config.num_data.value_or(others) == others,
           "{}: a mesh of {} replica x {} data x {} model ranks, but this run has {} ranks; start "
           "as many",
           config.name, config.num_replicas, *config.num_data, config.num_partitions, ranks);
  int64_t expert = std::min(config.num_expert_partitions, others);
  while (others % expert != 0) --expert;
  return {{"replica", static_cast<int>(config.num_replicas)},
          {"data", static_cast<int>(others / expert)},
          {"expert", static_cast<int>(expert)},
          {"model", static_cast<int>(config.num_partitions)}};
}

void register_runtime(gin::Registry& registry) {
  const std::vector<gin::Param> dims = {{"activation_partitioning_dims", 1},
                                        {"parameter_partitioning_dims", 1},
                                        {"sequence_parallel", false},
                                        {"context_parallel", false},
                                        {"additional_rules", nullptr}};
  registry.add("t5x.partitioning.standard_logical_axis_rules", dims,
               [](const gin::Arguments& args) { return rules_function(args, false); });
  registry.add("t5x.contrib.moe.partitioning.standard_logical_axis_rules", dims,
               [](const gin::Arguments& args) { return rules_function(args, true); });
  registry.add("t5x.partitioning.PjitPartitioner",
               {{"num_partitions", nullptr},
                {"model_parallel_submesh", nullptr},
                {"num_replicas", 1},
                {"params_on_devices", true},
                {"backend", nullptr},
                {"ici_mesh_shape", nullptr},
                {"dcn_mesh_shape", nullptr},
                {"logical_axis_rules", nullptr}},
               partitioner);
  registry.add("t5x.contrib.moe.partitioning.MoePjitPartitioner",
               {{"num_partitions", nullptr},
                {"num_experts", nullptr},
                {"num_expert_partitions", nullptr},
                {"model_parallel_submesh", nullptr},
                {"num_replicas", 1},
                {"params_on_devices", true},
                {"backend", nullptr},
                {"ici_mesh_shape", nullptr},
                {"dcn_mesh_shape", nullptr},
                {"state_filter_fn", nullptr},
                {"logical_axis_rules", nullptr}},
               moe_partitioner);
  registry.add("t5x.contrib.moe.partitioning.compute_num_model_partitions",
               {{"num_model_partitions"}, {"model_parallel_submesh"}},
               compute_num_model_partitions);
  std::vector<gin::Param> trainer_params = {{"num_microbatches", nullptr},
                                            {"learning_rate_fn"},
                                            {"weight_metrics_computer", nullptr},
                                            {"t5x_dropout", false}};
  registry.add("t5x.trainer.Trainer", trainer_params, trainer);
  trainer_params.emplace_back("num_expert_partitions");
  trainer_params.emplace_back("sharded_match_fn", gin::Value());
  registry.add("t5x.contrib.moe.trainer.MoeTrainer", trainer_params, moe_trainer);
  registry.add_function(
      "t5x.contrib.moe.training_utils.match_fn",
      [](const std::optional<std::string>& prefix) { return NamePattern{prefix.value_or("")}; },
      {{"prefix"}});
  registry.add_struct<WeightMetricsComputer>("t5x.trainer.WeightMetricsComputer");
}

}  // namespace quintet
