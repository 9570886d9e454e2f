#include "apps/plan/precompile.h"

#include "apps/config/decoding_config.h"
#include "apps/config/export/export_names.h"
#include "apps/config/gin_flags.h"
#include "apps/input/run_vocabularies.h"
#include "apps/plan/gin_case.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

/// "replica=2,data=1,model=4": axes of one rank are left out, but for data and model.
std::string smallest_mesh(const PartitionerConfig& partitioner) {
  const auto ranks =
      static_cast<int>(partitioner.num_partitions * partitioner.num_expert_partitions *
                       partitioner.num_replicas * partitioner.num_data.value_or(1));
  std::string text;
  for (const MeshAxis& axis : mesh_axes(partitioner, ranks))
    if (axis.size > 1 || axis.name == "data" || axis.name == "model")
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  return text;
}

/// Tokens of a row; a decoder-only model has inputs and targets in one sequence.
ModelCase case_of(const data::DatasetConfig& dataset, bool decoder_only) {
  ModelCase size{.model = "", .batch = dataset.batch_size, .inputs = 0, .targets = 0};
  for (const auto& [feature, length] : dataset.task_feature_lengths)
    (feature == "inputs" && !decoder_only ? size.inputs : size.targets) += length;
  QT_CHECK(size.batch > 0 && size.targets > 0 && (size.inputs > 0 || decoder_only),
           "{}: a step needs batch_size and task_feature_lengths, such as {{'inputs': 512, "
           "'targets': 114}}",
           dataset.lengths_where);
  return size;
}

}  // namespace

PrecompileConfig precompile_config_from(const gin::Arguments& args) {
  return {.model = configured_model(args),
          .dataset = args.get<data::DatasetConfig>("train_dataset_cfg"),
          .partitioner = args.get<PartitionerConfig>("partitioner"),
          .model_dir = local_path(args.get<std::string>("model_dir")),
          .verify_vocabs = verifies_vocabs(args.config(), kPrecompile)};
}

void precompile(PrecompileFlags flags, GinSession& session, const gin::Arguments& args) {
  const auto [model, dataset, partitioner, model_dir, verify_vocabs] = precompile_config_from(args);
  if (verify_vocabs) verify_matching_vocabs(*model, *session.task(dataset));
  const bool decoder_only = model->model->spec().decoder_only();
  LayoutCase what =
      gin_case(case_of(dataset, decoder_only), session, std::string(kPrecompile) + ".model");
  if (flags.on_mesh.mesh.empty()) flags.on_mesh.mesh = smallest_mesh(partitioner);
  const std::optional<Cluster> cluster = flags.on_cluster.read();
  what.options = flags.microbatches.options(cluster ? cluster->devices : flags.on_mesh.ranks());
  flags.on_cluster.check(what.options);
  QT_CHECK(flags.on_cluster.published.empty() || !flags.on_cluster.cluster.empty(),
           "--published goes with --cluster, or with quintet plan alone");
  if (cluster) return plan_cluster(flags.on_cluster, cluster, model->name, what);
  flags.on_mesh.configured_for_experts = partitioner.num_expert_partitions > 1;
  make_folders(model_dir);
  flags.on_mesh.file = model_dir / "step.txt";
  plan_mesh(flags.on_mesh, what, partitioner.logical_axis_rules, flags.on_cluster.format);
}

}  // namespace quintet
