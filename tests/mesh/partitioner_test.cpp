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

using Axes3 = std::vector<MeshAxis>;

TEST(Partitioner, DataTakesTheRanksThatModelLeaves) {
  const auto two =
      configured("t5x.partitioning.PjitPartitioner", {"PjitPartitioner.num_partitions = 2"});
  EXPECT_EQ(mesh_axes(two, 8), (Axes3{{"data", 4}, {"expert", 1}, {"model", 2}}));
  const auto submesh = configured("t5x.partitioning.PjitPartitioner",
                                  {"PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1)"});
  EXPECT_EQ(mesh_axes(submesh, 8), (Axes3{{"data", 2}, {"expert", 1}, {"model", 4}}));
}

TEST(Partitioner, OfExpertsBuildsThreeAxes) {
  const std::string name = "t5x.contrib.moe.partitioning.MoePjitPartitioner";
  const auto config = configured(name, {"MoePjitPartitioner.num_partitions = 2",
                                        "MoePjitPartitioner.num_expert_partitions = 2"});
  EXPECT_EQ(mesh_axes(config, 8), (Axes3{{"data", 2}, {"expert", 2}, {"model", 2}}));
  // A bound: the largest divisor of what `model` leaves that is not above it.
  const auto many = configured(name, {"MoePjitPartitioner.num_partitions = 1",
                                      "MoePjitPartitioner.num_expert_partitions = 8"});
  EXPECT_EQ(mesh_axes(many, 12), (Axes3{{"data", 2}, {"expert", 6}, {"model", 1}}));
  EXPECT_EQ(config.logical_axis_rules.front().second, (MeshAxes{"expert", "data"}));
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
