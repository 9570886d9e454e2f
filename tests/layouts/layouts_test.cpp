// Every layout gives the same training run: loss, every gradient, and the parameters after some
// steps equal those of one rank to float32 rounding. A part of sweep_test.cpp that is quick.

#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/moments.h"
#include "runtime/optim/optax/noise.h"
#include "tests/harness/stacks.h"
#include "tests/layouts/expect.h"

namespace quintet::testing {
namespace {

struct Layouts : ::testing::Test {
  void compare(const Training& training, const std::vector<int>& sizes, int activation_dims,
               int parameter_dims) {
    SCOPED_TRACE(describe(training, sizes, activation_dims, parameter_dims));
    expect_same(run_unsharded(training),
                run_sharded(training, partitioning(sizes, activation_dims, parameter_dims)));
  }
};

TEST_F(Layouts, GiveTheSameRunOfT5) {
  compare({}, {1, 1}, 2, 2);
  for (const int activation_dims : {1, 2})
    for (const int parameter_dims : {1, 2}) compare({}, {2, 2}, activation_dims, parameter_dims);
}

TEST_F(Layouts, GiveTheSameRunWithRematMicrobatchesAndPacking) {
  const Training training{.remat = "full", .packed = true, .microbatches = 2, .optimizer = {}};
  compare(training, {2, 1}, 1, 2);
  compare(training, {1, 2}, 2, 1);
  compare(training, {2, 2}, 2, 2);
}

TEST_F(Layouts, GiveTheSameRunWhenGradientsAreReducedOnceAStep) {
  const Training training{.microbatches = 4, .optimizer = {}, .reduction = GradientReduction::step};
  compare(training, {2, 2}, 1, 2);
  compare(training, {4, 1}, 1, 1);
}

// A gradient is off by at most 2^-7 of what the ranks' parts of it sum to without their signs (accounting_test.cpp):
// here, where that is less than 8 times the gradient, a run is off by 2^-4 of what it has learned.
TEST_F(Layouts, GiveNearlyTheSameRunWhenGradientsTravelInBfloat16) {
  for (const auto reduction : {GradientReduction::microbatch, GradientReduction::step}) {
    Training training{.microbatches = 2, .optimizer = {}, .reduction = reduction};
    const Result want = run_unsharded(training);
    training.reduction_dtype = DType::bf16;
    const auto ranks = run_sharded(training, partitioning({2, 2}, 1, 1));
    const double learned = want.losses.front() - want.losses.back();
    ASSERT_GT(learned, 0);
    for (const Result& rank : ranks) {
      EXPECT_NEAR(rank.losses.front(), want.losses.front(), 2e-6 * want.losses.front());
      EXPECT_NEAR(rank.losses.back(), want.losses.back(), learned / 16);
      EXPECT_NE(rank.parameters, want.parameters);
      EXPECT_EQ(rank.parameters, ranks[0].parameters);
    }
  }
}

// What is kept is rounded by 2^-8 of itself at most once a microbatch, three times that of the embedding; Adafactor moves by
// directions, in which that is less than 2^-4 of what a run has learned.
TEST_F(Layouts, GiveNearlyTheSameRunWhenGradientsAreKeptInBfloat16) {
  for (const char* remat : {"none", "full"})
    for (const DType travels : {DType::f32, DType::bf16}) {
      Training training{.remat = remat, .microbatches = 2, .optimizer = {}};
      const Result want = run_unsharded(training);
      const double learned = want.losses.front() - want.losses.back();
      ASSERT_GT(learned, 0);
      training.gradient_dtype = DType::bf16;
      training.reduction_dtype = travels;
      for (const std::vector<int>& mesh : {std::vector{2, 1}, std::vector{2, 2}}) {
        const auto ranks = run_sharded(training, partitioning(mesh, 1, 2));
        for (const Result& rank : ranks) {
          EXPECT_NEAR(rank.losses.front(), want.losses.front(), 2e-6 * want.losses.front());
          EXPECT_NEAR(rank.losses.back(), want.losses.back(), learned / 16);
          EXPECT_NE(rank.parameters, want.parameters);
          EXPECT_EQ(rank.parameters, ranks[0].parameters);
        }
      }
    }
}

// Sums in another order are rounded to 8 bits another way, here and there.
TEST_F(Layouts, GiveNearlyTheSameRunInFp8WithTheSameScalesOnAllRanks) {
  const Training training{.mlp_dim = 64, .optimizer = {}, .fp8 = true};
  const Result want = run_unsharded(training);
  const double learned = want.losses.front() - want.losses.back();
  ASSERT_GT(learned, 0);
  ASSERT_EQ(want.fp8_scales.size(), 4 + 2 * 7);
  for (const auto& [activations, parameters] : {std::pair{1, 1}, std::pair{2, 2}})
    for (const Result& rank :
         run_sharded(training, partitioning({2, 2}, activations, parameters))) {
      EXPECT_NEAR(rank.losses.back(), want.losses.back(), learned / 16);
      for (const auto& [name, scales] : want.fp8_scales)
        for (size_t i = 0; i < scales.size(); ++i)
          EXPECT_NEAR(rank.fp8_scales.at(name)[i], scales[i], 0.05F * scales[i]) << name << i;
    }
}

/// Fused with what makes FP8 operands, casts leave the bits that they leave apart. x is cast where ranks have rows of their own,
/// weights where they lie there whole; not where another axis cuts them.
TEST_F(Layouts, FuseCastsInFp8WhereRowsAloneAreSharded) {
  struct Case {
    std::vector<int> sizes;
    int parameter_dims;
    bool x_fused, weights_fused;
  };
  for (const Case& c : {Case{{2, 1}, 1, true, true},
                        {{4, 1}, 1, true, true},
                        {{2, 1}, 2, true, false},
                        {{1, 2}, 1, false, false}}) {
    SCOPED_TRACE(
        fmt::format("{} x {}, parameters in {} dims", c.sizes[0], c.sizes[1], c.parameter_dims));
    Training training{.mlp_dim = 64, .microbatches = 2, .steps = 3, .optimizer = {}, .fp8 = true};
    const Partitioning on = partitioning(c.sizes, 1, c.parameter_dims);
    const std::vector<Result> fused = run_sharded(training, on);
    training.fused_casts = false;
    const std::vector<Result> apart = run_sharded(training, on);
    for (size_t rank = 0; rank < fused.size(); ++rank) {
      EXPECT_EQ(fused[rank].losses, apart[rank].losses);
      EXPECT_EQ(fused[rank].parameters, apart[rank].parameters);
      EXPECT_EQ(fused[rank].fp8_scales, apart[rank].fp8_scales);
      for (const auto& [op, is_fused] : {std::pair{"rms_norm_fp8", c.x_fused},
                                         {"add_rms_norm_fp8", c.x_fused},
                                         {"cast_fp8_weights", c.weights_fused}}) {
        EXPECT_EQ(fused[rank].calls.contains(op), is_fused) << op;
        EXPECT_FALSE(apart[rank].calls.contains(op)) << op;
      }
    }
  }
}

TEST_F(Layouts, GiveTheSameRunWithTheDropoutOfT5x) {
  const Training training{.microbatches = 2, .steps = 2, .optimizer = {}, .t5x_dropout = true};
  compare(training, {2, 2}, 1, 2);
  compare(training, {4, 1}, 1, 1);
  compare({.network = Network::experts, .steps = 2, .optimizer = {}, .t5x_dropout = true},
          {1, 2, 2}, 1, 2);
}

TEST_F(Layouts, GiveTheSameRunWhenMicrobatchesTakeTurns) {
  QT_SKIP_SANITIZED();
  const Training training{.microbatches = 4, .optimizer = {}, .interleave = true};
  compare(training, {2, 2}, 1, 2);
  compare(training, {1, 4}, 2, 1);
  compare(
      {.remat = "minimal", .packed = true, .microbatches = 2, .optimizer = {}, .interleave = true},
      {2, 2}, 2, 2);
  compare({.microbatches = 4,
           .optimizer = {},
           .reduction = GradientReduction::step,
           .interleave = true},
          {2, 2}, 1, 2);
  compare({.network = Network::experts, .microbatches = 2, .optimizer = {}, .interleave = true},
          {1, 2, 2}, 1, 2);
}

TEST_F(Layouts, GiveTheSameRunOfTiedT5) {
  const Training training{.network = Network::t5_1_0_tied, .packed = true, .optimizer = {}};
  compare(training, {1, 4}, 1, 1);
  compare(training, {2, 2}, 1, 2);
  compare(training, {2, 2}, 2, 1);
}

TEST_F(Layouts, GiveTheSameRunOfMultiQueryAttentionAndParallelLayers) {
  for (const Network network : {Network::multi_query, Network::parallel,
                                Network::parallel_decoder_only, Network::rotary, Network::fused})
    compare({.network = network, .packed = true, .optimizer = {}}, {2, 2}, 2, 2);
}

TEST_F(Layouts, GiveTheSameRunOfADecoder) {
  const Training training{.network = Network::decoder_only, .remat = "minimal", .optimizer = {}};
  compare(training, {4, 1}, 1, 2);
  compare(training, {2, 2}, 2, 2);
}

TEST_F(Layouts, GiveTheSameRunOnThreeAxes) { compare({.optimizer = {}}, {2, 2, 2}, 2, 2); }

TEST_F(Layouts, GiveTheSameRunOnReplicasOfAMesh) {
  const Training training{.packed = true, .microbatches = 2, .optimizer = {}};
  expect_same(run_unsharded(training),
              run_sharded(training, replicated(2, partitioning({2, 1}, 1, 2))));
  expect_same(run_unsharded({}), run_sharded({}, replicated(2, partitioning({2, 2}, 1, 2))));
  const Training experts{.network = Network::experts, .optimizer = {}};
  expect_same(run_unsharded(experts),
              run_sharded(experts, replicated(2, partitioning({1, 2, 1}, 1, 1))));
}

TEST_F(Layouts, GiveTheSameRunWithSequenceParallelism) {
  const auto compare_all = [](const Training& training, const std::vector<Partitioning>& all) {
    const Result want = run_unsharded(training);
    for (const Partitioning& on : all) expect_same(want, run_sharded(training, on));
  };
  compare_all({}, {sequence_parallel(1, 4, 1), sequence_parallel(2, 2, 1),
                   sequence_parallel(2, 2, 2), replicated(2, sequence_parallel(2, 2, 2))});
  compare_all({.remat = "full", .packed = true, .microbatches = 2, .optimizer = {}},
              {sequence_parallel(2, 2, 2)});
  compare_all({.packed = true, .microbatches = 4, .optimizer = {}, .interleave = true},
              {sequence_parallel(2, 2, 2)});
  compare_all({.network = Network::t5_1_0_tied, .packed = true, .optimizer = {}},
              {sequence_parallel(1, 4, 1), sequence_parallel(2, 2, 2)});
  compare_all({.network = Network::decoder_only, .remat = "full", .optimizer = {}},
              {sequence_parallel(1, 2, 1), sequence_parallel(2, 4, 2)});
  compare_all({.network = Network::experts, .optimizer = {}},
              {sequence_parallel_experts(1, 2, 2, 1), sequence_parallel_experts(2, 2, 2, 2)});
}

// Every rank has a part of each row, and gathers keys and values; the other mesh axis, ZeRO-3's, too.
TEST_F(Layouts, GiveTheSameRunWithContextParallelism) {
  const auto compare_all = [](const Training& training, const std::vector<Partitioning>& all) {
    const Result want = run_unsharded(training);
    for (const Partitioning& on : all) expect_same(want, run_sharded(training, on));
  };
  compare_all({}, {context_parallel(1, 4, 1), context_parallel(2, 2, 2)});
  compare_all({.remat = "full", .packed = true, .microbatches = 2, .optimizer = {}},
              {context_parallel(2, 2, 2)});
  compare_all({.network = Network::t5_1_0_tied, .packed = true, .optimizer = {}},
              {context_parallel(1, 4, 1)});
  compare_all({.network = Network::decoder_only, .remat = "full", .optimizer = {}},
              {context_parallel(2, 4, 2)});
  compare_all({.network = Network::rotary, .packed = true, .optimizer = {}},
              {context_parallel(1, 4, 1)});
}

TEST_F(Layouts, GiveTheSameRunWithExperts) {
  const Training training{.network = Network::experts, .optimizer = {}};
  compare(training, {2, 2}, 1, 2);
  compare(training, {1, 4, 1}, 1, 1);
  compare(training, {1, 2, 2}, 1, 1);
  compare(training, {2, 2, 2}, 1, 2);
  compare(training, {2, 2, 2}, 2, 2);
  compare({.network = Network::experts, .remat = "full", .microbatches = 2, .optimizer = {}},
          {1, 2, 1}, 1, 2);
}

TEST_F(Layouts, GiveTheSameRunWithExpertsOfAllRouters) {
  const Training dropless{.network = Network::experts, .dropless = true, .optimizer = {}};
  compare(dropless, {1, 4, 1}, 1, 1);
  compare(dropless, {2, 2, 2}, 2, 2);
  const Training choosing{
      .network = Network::experts, .remat = "full", .experts_choose = true, .optimizer = {}};
  compare(choosing, {2, 2, 1}, 1, 2);
  compare(choosing, {1, 2, 2}, 2, 1);
}

TEST_F(Layouts, GiveTheSameRunWithExpertsThatNobodyChooses) {
  for (const bool dropless : {true, false})
    compare({.network = Network::experts,
             .dropless = dropless,
             .router_stddev = 0,
             .steps = 1,
             .optimizer = {}},
            {1, 4, 1}, 1, 1);
}

TEST_F(Layouts, GiveTheSameRunForAnyRules) {
  // Heads unsharded, the MLP's inner axis over both mesh axes, lengths sharded outside of matrix products.
  const Partitioning any{{{"data", 2}, {"model", 2}},
                         {{"batch", {}},
                          {"mlp", {"model", "data"}},
                          {"joined_kv", {}},
                          {"heads", {}},
                          {"vocab", {"data"}},
                          {"length", {"model"}},
                          {"embed", {"data"}}}};
  expect_same(run_unsharded({}), run_sharded({}, any));
}

/// Axes in any order over mesh axes in any order.
LogicalAxisRules random_rules(uint32_t seed) {
  uint64_t drawn = 0;
  const auto draw = [&](size_t below) {
    return static_cast<size_t>(random_bits(key_from_seed(seed), drawn++)) % below;
  };
  const std::vector<MeshAxes> places{{}, {"data"}, {"model"}, {"data", "model"}, {"model", "data"}};
  std::vector<std::string> axes{"batch", "length",    "embed", "mlp",
                                "heads", "joined_kv", "vocab", "relpos_buckets"};
  LogicalAxisRules rules;
  while (!axes.empty()) {
    const size_t i = draw(axes.size());
    rules.push_back({axes[i], places[draw(places.size())]});
    axes.erase(axes.begin() + static_cast<int64_t>(i));
  }
  return rules;
}

TEST_F(Layouts, GiveTheSameRunForRandomRules) {
  const Training training{.steps = 1, .optimizer = {}};
  const Result alone = run_unsharded(training);
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const Partitioning any{{{"data", 2}, {"model", 2}}, random_rules(seed)};
    std::string text;
    for (const auto& [axis, over] : any.rules)
      text += fmt::format("{}: {}; ", axis, fmt::join(over, "+"));
    SCOPED_TRACE(text);
    expect_same(alone, run_sharded(training, any));
  }
}

TEST_F(Layouts, GiveTheSameRunWithOtherOptimizers) {
  Training training;
  training.optimizer = [] {
    return optax_optimizer(chain({clip_by_global_norm(0.1), adamw(1e-3, {.weight_decay = 0.1})}));
  };
  compare(training, {2, 2}, 1, 2);
  training.optimizer = [] {
    return multi_optimizer(
        {{matching(".*(embedding|norm).*"),
          adafactor({.min_dim_size_to_factor = 16,
                     .logical_factor_rules = standard_logical_factor_rules(),
                     .global_norm_clip_threshold = 0.1})},
         {matching(".*kernel.*"), optax_optimizer(chain({clip_by_global_norm(0.1), sgd(0.1)}))}});
  };
  compare(training, {2, 2}, 1, 2);
}

/// Ranks of other data shards take part in the gradient of an example, which counts once.
TEST_F(Layouts, GiveTheSameRunWhenTheGradientOfEachExampleIsClipped) {
  Training training{
      .microbatches = 16,
      .steps = 2,
      .optimizer =
          [] {
            return optax_optimizer(dpsgd({{.l2_norm_clip = 2, .noise_multiplier = 0.01}, 0.1}));
          },
      .summed_loss = true};
  const Result want = run_unsharded(training);
  expect_same(want, run_sharded(training, partitioning({1, 2}, 1, 2)));
  training.microbatches = 8;
  expect_same(want, run_sharded(training, partitioning({2, 2}, 1, 2)));
  training.microbatches = 4;
  expect_same(want, run_sharded(training, partitioning({4, 1}, 1, 1)));
}

/// Norms of whole parameters, and noise by the element of the global array.
TEST_F(Layouts, GiveTheSameRunWithNormsAndNoise) {
  Training training{.microbatches = 2, .optimizer = {}};
  training.optimizer = [] {
    WithRate<LambOptions> options;
    options.learning_rate = 1e-2;
    options.weight_decay = 0.1;
    return optax_optimizer(chain({add_noise({.eta = 1e-4, .seed = 7}), lamb(options)}));
  };
  compare(training, {2, 2}, 2, 2);
}

TEST_F(Layouts, FollowTheCurveOfOneRank) {
  const Training training{
      .network = Network::decoder_only, .rows = 8, .steps = 100, .optimizer = {}};
  const Result curve = run_unsharded(training);
  EXPECT_LT(curve.losses.back(), 0.9 * curve.losses.front());
  for (const Result& got : run_sharded(training, partitioning({2, 2}, 2, 2)))
    for (size_t i = 0; i < curve.losses.size(); ++i)
      ASSERT_NEAR(got.losses[i], curve.losses[i], 1e-4 * curve.losses[i]) << "step " << i;
}

}  // namespace
}  // namespace quintet::testing
