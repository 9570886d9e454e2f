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

class Sweep : public ::testing::TestWithParam<std::tuple<Network, bool, bool, int64_t>> {};

TEST_P(Sweep, EveryMeshGivesTheSameRun) {
  const auto [network, remat, packed, microbatches] = GetParam();
  const Training training{.network = network,
                          .remat = remat,
                          .packed = packed,
                          .microbatches = microbatches,
                          .optimizer = {}};
  const Result want = run_whole(training);
  for (const std::vector<int>& sizes : meshes())
    for (const int activation_dims : {1, 2})
      for (const int parameter_dims : {1, 2}) {
        SCOPED_TRACE(describe(training, sizes, activation_dims, parameter_dims));
        expect_same(want, run_cut(training, partitioning(sizes, activation_dims, parameter_dims)));
        if (HasFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(All, Sweep,
                         ::testing::Combine(::testing::Values(Network::t5_1_1,
                                                              Network::t5_1_0_tied,
                                                              Network::decoder_only),
                                            ::testing::Bool(), ::testing::Bool(),
                                            ::testing::Values(1, 2)));

}  // namespace
}  // namespace quintet::testing
