// Every factorisation of 1, 2, 4 and 8 ranks x activations 1D or 2D x parameters 1D or 2D x remat x
// microbatches x packed or not x network gives the same training run.

#include "tests/layouts/expect.h"

namespace quintet::testing {
namespace {

std::vector<std::vector<int>> meshes() {
  std::vector<std::vector<int>> all;
  for (const int ranks : {1, 2, 4, 8})
    for (int data = 1; data <= ranks; data *= 2) {
      all.push_back({data, ranks / data});
      for (int expert = 2; data * expert <= ranks; expert *= 2)
        all.push_back({data, expert, ranks / data / expert});
    }
  return all;
}

using Case = std::tuple<std::vector<int>, Network, bool, bool, int64_t>;
class Sweep : public ::testing::TestWithParam<Case> {};

TEST_P(Sweep, EveryLayoutGivesTheSameRun) {
  const auto& [sizes, network, remat, packed, microbatches] = GetParam();
  const Training training{.network = network,
                          .remat = remat ? "full" : "none",
                          .packed = packed,
                          .microbatches = microbatches,
                          .optimizer = {}};
  const Result want = run_unsharded(training);
  for (const int activation_dims : {1, 2})
    for (const int parameter_dims : {1, 2}) {
      SCOPED_TRACE(describe(training, sizes, activation_dims, parameter_dims));
      expect_same(want,
                  run_sharded(training, partitioning(sizes, activation_dims, parameter_dims)));
    }
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const auto& [sizes, network, remat, packed, microbatches] = info.param;
  const char* const networks[] = {"T5_1_1",      "T5_1_0_tied", "decoder_only",          "experts",
                                  "multi_query", "parallel",    "parallel_decoder_only", "rotary",
                                  "fused"};
  return fmt::format("{}_on_{}{}{}_{}_microbatches", networks[static_cast<int>(network)],
                     fmt::join(sizes, "x"), remat ? "_remat" : "", packed ? "_packed" : "",
                     microbatches);
}

INSTANTIATE_TEST_SUITE_P(All, Sweep,
                         ::testing::Combine(::testing::ValuesIn(meshes()),
                                            ::testing::Values(Network::t5_1_1, Network::t5_1_0_tied,
                                                              Network::decoder_only),
                                            ::testing::Bool(), ::testing::Bool(),
                                            ::testing::Values(1, 2)),
                         name_of_case);

/// Those over whose ranks a microbatch's tokens make whole groups.
std::vector<std::vector<int>> meshes_of_experts() {
  std::vector<std::vector<int>> all = meshes();
  std::erase_if(all, [](const auto& sizes) {
    return (sizes.size() == 3 ? sizes[0] * sizes[1] : sizes[0]) > 4;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Experts, Sweep,
                         ::testing::Combine(::testing::ValuesIn(meshes_of_experts()),
                                            ::testing::Values(Network::experts), ::testing::Bool(),
                                            ::testing::Values(false), ::testing::Values(1, 2)),
                         name_of_case);

TEST(SequenceParallelism, OnEveryMeshGivesTheSameRun) {
  for (const Network network : {Network::t5_1_1, Network::t5_1_0_tied, Network::decoder_only})
    for (const bool remat : {false, true})
      for (const int64_t microbatches : {1, 2}) {
        const Training training{.network = network,
                                .remat = remat ? "full" : "none",
                                .packed = remat,
                                .microbatches = microbatches,
                                .optimizer = {}};
        const Result want = run_unsharded(training);
        for (const int model : {2, 4})
          for (int data = 1; data * model <= 8; data *= 2)
            for (const int parameter_dims : {1, 2}) {
              SCOPED_TRACE(describe(training, {data, model}, 1, parameter_dims));
              expect_same(want,
                          run_sharded(training, sequence_parallel(data, model, parameter_dims)));
            }
      }
}

TEST(SequenceParallelism, OfModelsWithExpertsGivesTheSameRun) {
  for (const bool remat : {false, true})
    for (const auto& [dropless, choose] : {std::pair(false, false), {true, false}, {false, true}}) {
      const Training training{.network = Network::experts,
                              .remat = remat ? "full" : "none",
                              .dropless = dropless,
                              .experts_choose = choose,
                              .optimizer = {}};
      const Result want = run_unsharded(training);
      for (const auto& [data, expert, model] :
           {std::tuple(1, 2, 2), {2, 1, 2}, {1, 4, 2}, {2, 2, 2}, {1, 1, 4}})
        for (const int parameter_dims : {1, 2}) {
          SCOPED_TRACE(describe(training, {data, expert, model}, 1, parameter_dims));
          expect_same(want, run_sharded(training, sequence_parallel_experts(data, expert, model,
                                                                            parameter_dims)));
        }
    }
}

/// Parameters sharded over the data ranks of one of several replicas.
TEST(Replicas, EveryMeshOfThemGivesTheSameRun) {
  for (const Network network :
       {Network::t5_1_1, Network::t5_1_0_tied, Network::decoder_only, Network::experts})
    for (const int64_t microbatches : {1, 2}) {
      const Training training{
          .network = network, .remat = "full", .microbatches = microbatches, .optimizer = {}};
      const Result want = run_unsharded(training);
      for (const int replicas : {2, 4})
        for (const std::vector<int>& sizes :
             network == Network::experts ? meshes_of_experts() : meshes()) {
          const int data = sizes[0] * (sizes.size() == 3 ? sizes[1] : 1);
          if (replicas * data * sizes.back() > 8 ||
              (network == Network::experts && replicas * data > 4))
            continue;
          SCOPED_TRACE(fmt::format("{} replicas, {}", replicas, describe(training, sizes, 1, 2)));
          expect_same(want, run_sharded(training, replicated(replicas, partitioning(sizes, 1, 2))));
        }
    }
}

}  // namespace
}  // namespace quintet::testing
