// Ranks that look at each other: copies that drifted apart, ranks that are slow.

#include "apps/process/rank_checks.h"

#include <gtest/gtest.h>

#include <mutex>

#include "runtime/base/check.h"
#include "runtime/mesh/collectives/collectives_threads.h"

namespace quintet {
namespace {

/// On four ranks, two of which hold each half of "target/sharded" and all "target/replicated", a bit of
/// `name` flips on rank 3. What each rank throws.
std::vector<std::string> messages_when(const std::string& name) {
  std::mutex mutex;
  std::vector<std::string> messages(4);
  run_threads({.count = 4, .timeout = std::chrono::minutes(1)}, [&](Comm& comm) {
    std::vector<float> whole(6, 0.5f), half(3, 0.25f);
    const Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
    const auto array = [](const char* called, std::vector<float>& values, int64_t origin,
                          const MeshAxes& mesh_axes) {
      const int64_t sizes[] = {static_cast<int64_t>(values.size())};
      View view = View::of(values.data(), sizes);
      view.origin[0] = origin;
      return StateArray{called, {"embed"}, view, &Device::cpu(), mesh_axes};
    };
    std::vector<StateArray> state = {
        array("target/replicated", whole, 0, {}),
        array("target/sharded", half, 3 * mesh.coordinate("model"), {"model"})};
    for (const StateArray& one : state)
      if (comm.rank() == 3 && one.name == name)
        reinterpret_cast<uint32_t*>(one.view.pointer)[1] ^= 1u;
    try {
      check_replicas(state, mesh);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kPeer);
      const std::lock_guard lock(mutex);
      messages[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  return messages;
}

TEST(Replicas, OneFlippedBitIsFoundByAllRanksAndNamed) {
  for (const std::string& message : messages_when("nothing")) EXPECT_EQ(message, "");
  for (const std::string& message : messages_when("target/replicated"))
    EXPECT_TRUE(message.starts_with("target/replicated [0]: rank 0 on ") &&
                message.find(" and rank 3 on ") != std::string::npos)
        << message;
  for (const std::string& message : messages_when("target/sharded"))
    EXPECT_TRUE(message.starts_with("target/sharded [3]: rank 1 on ") &&
                message.find(" and rank 3 on ") != std::string::npos)
        << message;
}

TEST(Pace, ARankThatTakesMuchLongerThanMostIsNamed) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  EXPECT_EQ(slow_ranks({0.5, 0.5, 0.6, 0.5}, hosts), "");
  EXPECT_EQ(slow_ranks({0.001, 0.001, 0.004, 0.001}, hosts), "");  // nobody notices
  const std::string warning = slow_ranks({0.5, 0.5, 0.7, 0.5}, hosts);
  EXPECT_TRUE(warning.starts_with("rank 2 on b (0.700 s): slower than the others")) << warning;
  EXPECT_NE(slow_ranks({0.1, 0.2}, {"a", "b"}).find("rank 1 on b"), std::string::npos);
}

TEST(Pace, CountsStepsInWindows) {
  Pace pace;
  for (int64_t step = 1; step <= 3 * Pace::kSteps; ++step) {
    pace.add(0.1);
    EXPECT_EQ(pace.due(), step % Pace::kSteps == 0) << step;
  }
}

}  // namespace
}  // namespace quintet
