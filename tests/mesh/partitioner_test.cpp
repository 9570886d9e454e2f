#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/configurables/configurables.h"
#include "runtime/gin/config.h"

namespace quintet {
namespace {

PartitionerConfig configured(const std::string& name, const std::vector<std::string>& bindings) {
  gin::Registry registry;
  register_runtime(registry);
  gin::Config config(registry, {});
  config.load({.files = {}, .bindings = bindings, .search_paths = {}});
  return config.call_as<PartitionerConfig>(name);
}

using MeshOf = std::vector<MeshAxis>;

TEST(Partitioner, DataTakesTheRanksThatModelLeaves) {
  const auto two =
      configured("t5x.partitioning.PjitPartitioner", {"PjitPartitioner.num_partitions = 2"});
  EXPECT_EQ(mesh_axes(two, 8), (MeshOf{{"replica", 1}, {"data", 4}, {"expert", 1}, {"model", 2}}));
  const auto submesh = configured("t5x.partitioning.PjitPartitioner",
                                  {"PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1)"});
  EXPECT_EQ(mesh_axes(submesh, 8),
            (MeshOf{{"replica", 1}, {"data", 2}, {"expert", 1}, {"model", 4}}));
}

/// umT5's files bind a submesh beside the num_partitions = 1 of T5X's runs.
TEST(Partitioner, ASubmeshDecidesBesideOnePartition) {
  const std::string name = "t5x.partitioning.PjitPartitioner";
  const auto with = [&](const std::string& partitions, const std::string& submesh) {
    return configured(name, {"PjitPartitioner.num_partitions = " + partitions,
                             "PjitPartitioner.model_parallel_submesh = " + submesh})
        .num_partitions;
  };
  EXPECT_EQ(with("1", "(1, 2, 1, 1)"), 2);
  EXPECT_EQ(with("4", "(2, 2, 1, 1)"), 4);
  EXPECT_THROW(with("2", "(2, 2, 1, 1)"), Error);
  EXPECT_THROW(with("1", "(2, 2)"), Error);
  EXPECT_THROW(with("1", "(2, 0, 1, 1)"), Error);
}

TEST(Partitioner, OfExpertsBuildsThreeAxes) {
  const std::string name = "t5x.contrib.moe.partitioning.MoePjitPartitioner";
  const auto config = configured(name, {"MoePjitPartitioner.num_partitions = 2",
                                        "MoePjitPartitioner.num_expert_partitions = 2"});
  EXPECT_EQ(mesh_axes(config, 8),
            (MeshOf{{"replica", 1}, {"data", 2}, {"expert", 2}, {"model", 2}}));
  // A bound: the largest divisor of what `model` leaves that is not above it.
  const auto many = configured(name, {"MoePjitPartitioner.num_partitions = 1",
                                      "MoePjitPartitioner.num_expert_partitions = 8"});
  EXPECT_EQ(mesh_axes(many, 12),
            (MeshOf{{"replica", 1}, {"data", 2}, {"expert", 6}, {"model", 1}}));
  EXPECT_EQ(config.logical_axis_rules.front().second, (MeshAxes{"expert", "data"}));
}

TEST(Partitioner, ReplicasAreTheOutermostAxisAndShardBatches) {
  const auto config =
      configured("t5x.partitioning.PjitPartitioner",
                 {"PjitPartitioner.num_partitions = 2", "PjitPartitioner.num_replicas = 2"});
  EXPECT_EQ(mesh_axes(config, 12),
            (MeshOf{{"replica", 2}, {"data", 3}, {"expert", 1}, {"model", 2}}));
  EXPECT_EQ(config.logical_axis_rules.front(),
            (std::pair<std::string, MeshAxes>{"batch", {"replica", "data"}}));
  const auto experts = configured(
      "t5x.contrib.moe.partitioning.MoePjitPartitioner",
      {"MoePjitPartitioner.num_partitions = 1", "MoePjitPartitioner.num_expert_partitions = 2",
       "MoePjitPartitioner.num_replicas = 2"});
  EXPECT_EQ(mesh_axes(experts, 8),
            (MeshOf{{"replica", 2}, {"data", 2}, {"expert", 2}, {"model", 1}}));
  EXPECT_EQ(experts.logical_axis_rules.front().second, (MeshAxes{"replica", "expert", "data"}));
}

TEST(Partitioner, SlicesOfT5xMakeAMeshOfReplicas) {
  const auto config = configured(
      "t5x.partitioning.PjitPartitioner",
      {"PjitPartitioner.num_partitions = 1", "PjitPartitioner.ici_mesh_shape = (1, 4, 2)",
       "PjitPartitioner.dcn_mesh_shape = (2, 1, 1)"});
  EXPECT_EQ(mesh_axes(config, 16),
            (MeshOf{{"replica", 2}, {"data", 4}, {"expert", 1}, {"model", 2}}));
  EXPECT_EQ(config.logical_axis_rules.front().second, (MeshAxes{"replica", "data"}));
}

/// Of a partitioner with these bindings on 16 ranks.
std::string refusal(const std::vector<std::string>& bindings) {
  try {
    mesh_axes(configured("t5x.partitioning.PjitPartitioner", bindings), 16);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Partitioner, SlicesThatMakeNoMeshAreRefused) {
  const std::string ici = "PjitPartitioner.ici_mesh_shape = ",
                    dcn = "PjitPartitioner.dcn_mesh_shape = ";
  const auto expect = [](const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal({ici + "(1, 4, 2)"}), {"ici_mesh_shape", "bind the other one"});
  expect(refusal({ici + "(8, 2)", dcn + "(1, 1)"}), {"3 axes", "(8, 2)"});
  expect(refusal({ici + "(1, 4, 1)", dcn + "(1, 1, 4)"}),
         {"4 ranks of 'data' in a slice", "(4, 1, 1)"});
  expect(refusal({ici + "(1, 4, 2)", dcn + "(1, 1, 1)"}),
         {"1 replica x 4 data x 2 model ranks", "16 ranks"});
  expect(refusal({ici + "(1, 4, 2)", dcn + "(2, 1, 1)", "PjitPartitioner.num_partitions = 4"}),
         {"2 model ranks", "has 4"});
  expect(refusal({"PjitPartitioner.num_partitions = 2", "PjitPartitioner.num_replicas = 3"}),
         {"num_replicas", "3 replicas", "16 ranks"});
}

TEST(Partitioner, RanksThatDoNotFitAreRefused) {
  const auto three =
      configured("t5x.partitioning.PjitPartitioner", {"PjitPartitioner.num_partitions = 3"});
  try {
    mesh_axes(three, 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    for (const char* part : {"num_partitions", "3", "4 ranks", "mpirun -n 3"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quintet
