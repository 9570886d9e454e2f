// Simulated steps send what steps on ranks send, the optimizer's sums included.

#include "apps/plan/layout_step.h"

#include <gtest/gtest.h>

#include "apps/plan/model_case.h"
#include "apps/plan/search.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/multi_optimizer.h"
#include "runtime/optim/optax/optax.h"
#include "tests/harness/stacks.h"

namespace quintet {
namespace {

LayoutCase tiny(const std::function<OptimizerPtr()>& optimizer) {
  ModelCase options;
  options.model = "t5_1_1_tiny";
  options.inputs = 16;
  options.targets = 8;
  LayoutCase what = layout_case(options);
  what.make = [make = what.make, optimizer] {
    ModelAndOptimizer made = make();
    if (optimizer) made.optimizer = optimizer();
    return made;
  };
  return what;
}

LayoutRow planned(const LayoutCase& what, const TrainingLayout& layout) {
  return plan_layout(what, layout,
                     {.hosts = std::vector<std::string>(4, "abstract"), .machine = {}}, 1);
}

/// Simulation and ranks count the same, other than for AdamW, which needs no sums.
void expect_sums_are_counted(const std::function<OptimizerPtr()>& optimizer) {
  const LayoutCase what = tiny(optimizer);
  for (const TrainingLayout& layout : parse_layouts("4x1:a1p2,2x2:a1p2,1x4:a2p1", 4)) {
    SCOPED_TRACE(layout.name());
    LayoutRow measured;
    run_threads({.count = 4, .timeout = std::chrono::minutes(2)}, [&](Comm& comm) {
      LayoutRow row = measure_layout(what, layout, comm, 1);
      if (comm.rank() == 0) measured = std::move(row);
    });
    const LayoutRow simulated = planned(what, layout);
    EXPECT_EQ(simulated.refused, "");
    EXPECT_EQ(simulated.traffic, measured.traffic);
    EXPECT_NE(simulated.traffic, planned(tiny({}), layout).traffic);  // AdamW's
  }
}

TEST(LayoutStep, AdafactorsSumsAreSimulatedAsOnRanks) {
  expect_sums_are_counted([] {
    return adafactor({.beta1 = 0.9,
                      .min_dim_size_to_factor = 8,
                      .logical_factor_rules = standard_logical_factor_rules()});
  });
}

TEST(LayoutStep, NormsThatAChainClipsByAreSimulatedAsOnRanks) {
  // No kernel fuses a clip behind the moments; two of them are two sums.
  expect_sums_are_counted([] {
    return optax_optimizer(chain({scale_by_adam({}), clip_by_global_norm(1), scale(0.5),
                                  clip_by_global_norm(0.1), scale_by_learning_rate(1e-3)}));
  });
  // Groups of parameters have a norm each, which the trainer does not know.
  expect_sums_are_counted([] {
    const auto clipped = [] {
      return optax_optimizer(chain({clip_by_global_norm(1), adamw(1e-3)}));
    };
    return multi_optimizer(
        {{matching("/encoder/"), clipped()}, {matching("/decoder/"), clipped()}});
  });
}

TEST(LayoutStep, AdaptersAndFrozenWeightsAreSimulatedAsOnRanks) {
  std::vector<int64_t> parameters;
  for (const char* base : {"float32", "int8"}) {
    ModelCase options{.model = "t5_1_1_tiny", .inputs = 16, .targets = 8};
    options.lora.rank = 2;
    options.lora.config.base_dtype = base;
    const LayoutCase what = layout_case(options);
    for (const TrainingLayout& layout : parse_layouts("4x1:a1p1,2x2:a1p2", 4)) {
      SCOPED_TRACE(layout.name() + base);
      LayoutRow measured;
      run_threads({.count = 4, .timeout = std::chrono::minutes(2)}, [&](Comm& comm) {
        LayoutRow row = measure_layout(what, layout, comm, 1);
        if (comm.rank() == 0) measured = std::move(row);
      });
      const LayoutRow simulated = planned(what, layout);
      EXPECT_EQ(simulated.refused, "");
      EXPECT_EQ(simulated.traffic, measured.traffic);
      EXPECT_EQ(simulated.memory, measured.memory);
    }
    const MemoryMeter::Kinds memory = planned(what, parse_layouts("4x1:a1p1", 4)[0]).memory;
    parameters.push_back(memory[static_cast<size_t>(MemoryKind::kParameters)]);
    // Two moments of adapters alone: of query and value of 6 attentions, [8, 2] and [2, 12] each.
    constexpr int64_t kMoments = 2 * 4 * 6 * 2 * (8 * 2 + 2 * 12), kCounters = 256;
    const int64_t state = memory[static_cast<size_t>(MemoryKind::kOptimizer)];
    EXPECT_TRUE(state >= kMoments && state < kMoments + kCounters) << state;
  }
  EXPECT_LT(parameters[1], parameters[0]);
}

// Of a bfloat16 model: a master and a copy, or the copy alone. Norms' scales and relative biases have no copy.
TEST(LayoutStep, AnOptimizerOnTheHostOfOneRankHasTheMastersToo) {
  for (const bool offload : {false, true})
    for (const int ranks : {1, 2}) {
      LayoutCase what = layout_case(
          {.model = "t5_1_1_tiny", .batch = 8, .inputs = 16, .targets = 8, .dtype = "bfloat16"});
      what.options.optimizer_offload = offload;
      const LayoutRow row =
          plan_layout(what, parse_layouts(std::to_string(ranks) + "x1:a1p1", ranks)[0],
                      {.hosts = std::vector<std::string>(static_cast<size_t>(ranks), "abstract"),
                       .machine = {}},
                      1);
      ASSERT_EQ(row.refused, "");
      const double bytes = offload && ranks == 1 ? 2 : 6;
      const auto elements = static_cast<double>(what.make().model->parameters().elements());
      EXPECT_NEAR(
          static_cast<double>(row.memory[static_cast<size_t>(MemoryKind::kParameters)]) / elements,
          bytes, 0.02)
          << offload << ranks;
    }
}

// All but the first group that comes and the last that goes is hidden by the update, the largest of three; not so where
// parameters are updated together.
TEST(LayoutStep, AnOptimizerOnTheHostUpdatesWhileGroupsTravel) {
  const auto plan = [](const TransformationPtr& rule, double host_link) {
    LayoutCase what = layout_case(
        {.model = "t5_1_1_small", .batch = 1, .inputs = 8, .targets = 8, .dtype = "bfloat16"});
    what.make = [make = what.make, rule] {
      ModelAndOptimizer made = make();
      made.optimizer = optax_optimizer(rule);
      return made;
    };
    what.options.optimizer_offload = true;
    what.options.gradient_dtype = DType::bf16;
    return plan_layout(
        what, {},
        {.hosts = {"abstract"},
         .machine = {.flops = 1e12, .host_link_bytes = host_link, .host_memory_bytes = 1e6}},
        1);
  };
  const TransformationPtr apart = adamw(1e-2),
                          together = chain({scale_by_adam({}), scale(0.5), scale(-0.01)});
  constexpr double kLink = 1e6;
  const auto cost = [&](const TransformationPtr& rule) {
    return kLink * (plan(rule, kLink).seconds - plan(rule, 1e15).seconds);
  };
  const double elements = 76961152, vocabulary = 32128 * 512;
  EXPECT_NEAR(cost(together), elements * 4, 0.01 * elements);  // a gradient comes, a copy goes
  EXPECT_LE(cost(apart), 2 * 2 * vocabulary + 2 * elements / 4);
  EXPECT_NEAR(static_cast<double>(plan(together, kLink).pinned_bytes), 2 * elements,
              0.01 * elements);
  EXPECT_LE(static_cast<double>(plan(apart, kLink).pinned_bytes),
            2 * 2 * vocabulary + 2 * elements / 8);
}

TEST(LayoutStep, WhatCannotOverlapIsExposed) {
  for (const double overlap : {1.0, 0.5, 0.0}) {
    StepClock clock({.flops = 1});
    const auto sent = clock.send({4, (1 - overlap) * 4}, Links::between_hosts, false);
    clock.op("", {.flops = 3});  // 3 seconds, of which `overlap` run beside the collective
    clock.wait(*sent);
    EXPECT_NEAR(clock.exposed(), overlap == 1 ? 1 : overlap == 0 ? 4 : 2, 1e-9);
    EXPECT_NEAR(clock.seconds(), clock.compute() + clock.exposed(), 1e-9);
  }
}

TEST(LayoutStep, LinksWithinAHostAndBetweenHostsAreTwo) {
  StepClock clock({});
  const auto first = clock.send(4, Links::between_hosts, false),
             second = clock.send(3, Links::within_host, false),
             third = clock.send(2, Links::between_hosts, false);
  clock.wait(*second);
  EXPECT_EQ(clock.seconds(), 3);
  clock.wait(*first);
  EXPECT_EQ(clock.seconds(), 4);
  clock.wait(*third);
  EXPECT_EQ(clock.seconds(), 6);
}

TEST(LayoutStep, WhatIsInTheBackgroundTravelsWhenTheLinksAreFree) {
  StepClock clock({.flops = 1});
  const auto first = clock.send(4, Links::between_hosts, true),
             second = clock.send(4, Links::between_hosts, true);
  clock.op("", {.flops = 1});  // the first has begun
  const auto urgent = clock.send(2, Links::between_hosts, false);
  clock.wait(*urgent);
  EXPECT_EQ(clock.seconds(), 6);  // behind the first, before the second
  clock.wait(*second);
  EXPECT_EQ(clock.seconds(), 10);
  EXPECT_EQ(clock.exposed(), 9);
  clock.wait(*first);
  EXPECT_EQ(clock.seconds(), 10);
}

/// What a step of `layout` waits for links on which a collective takes `seconds`, as a part of its sum.
double exposed_part(const std::string& layout, double seconds, const TrainerOptions& options = {},
                    const std::string& model = "t5_1_1_tiny", bool remat = false) {
  const Machine slow{.flops = 1e6};  // an op takes longer than a collective
  LayoutCase step = layout_case(ModelCase{.model = model, .inputs = 16, .targets = 8});
  step.options = options;
  if (remat) step.make = step.make_remat;
  const LayoutRow row = plan_layout(step, parse_layouts(layout, 4)[0],
                                    {.hosts = std::vector<std::string>(4, "abstract"),
                                     .machine = slow,
                                     .cost = [=](auto, auto, const auto&) { return seconds; }},
                                    1);
  int64_t calls = 0;
  for (const auto& [what, entry] : row.traffic) calls += entry.calls;
  return row.exposed / (seconds * static_cast<double>(calls));
}

// Tensor parallelism sums a layer's results forward, which nothing hides, and as many gradients backward.
TEST(LayoutStep, SumsOfGradientsHideBehindWeightGradients) {
  EXPECT_LT(exposed_part("1x4:a1p1", 1e-3), 0.7);
}

// As many bytes in twice as many collectives; inputs that are gathered again are there before they are wanted.
TEST(LayoutStep, GathersOfSequenceParallelismHideBackward) {
  EXPECT_LT(exposed_part("1x4:a1p1s", 1e-3), 0.6);
}

// One half of the batch computes while the other waits; the embeddings and the loss are left.
TEST(LayoutStep, SumsOfResultsHideBehindTheOtherHalf) {
  QT_SKIP_SANITIZED();
  TrainerOptions in_turns;
  in_turns.num_microbatches = 2;
  in_turns.interleave = true;
  EXPECT_LT(exposed_part("1x4:a1p1", 1e-3, in_turns), 0.35);
}

// But for the first parameter, the last gradients, the loss and the norm: 9 of 75 collectives.
TEST(LayoutStep, GathersAndScattersOfParametersHide) {
  EXPECT_LT(exposed_part("4x1:a1p2", 1e-3, {}, "t5_1_1_base"), 0.15);
}

// A layer's gradients travel while the one before it is computed again.
TEST(LayoutStep, ScattersOfLayersThatAreComputedAgainHide) {
  EXPECT_LT(exposed_part("4x1:a1p2", 1e-3, {}, "t5_1_1_base", true), 0.15);
}

TEST(LayoutStep, ScoresThatAttentionKeepsTakeTime) {
  const LayoutCase what = tiny({});
  const Machine fused{.flops = 1e15, .memory_bytes = 1e9};
  Machine unfused = fused;
  unfused.score_passes = 1;
  const TrainingLayout layout{.data = 4};
  const auto seconds = [&](const Machine& machine) {
    return plan_layout(what, layout,
                       {.hosts = std::vector<std::string>(4, "abstract"), .machine = machine}, 1)
        .seconds;
  };
  // 2 rows a rank, 2 layers a stack, 4 heads: 16 x 16, 8 x 8 and 8 x 16 scores of 4 bytes, 3 times.
  EXPECT_NEAR(seconds(unfused) - seconds(fused), 2 * 2 * 4 * (256 + 64 + 128) * 4 * 3 / 1e9, 1e-9);
}

/// The fastest step of 2x2:a1p1 within so many bytes.
LayoutRow searched(int64_t memory_bytes, double host_link = 0) {
  ModelCase options;
  options.model = "t5_1_1_tiny";
  options.inputs = 512;
  options.targets = 16;
  options.batch = 16;
  const LayoutCase what = layout_case(options);
  return search_layouts(
      what, parse_layouts("2x2:a1p1", 4),
      {.hosts = std::vector<std::string>(4, "abstract"),
       .machine = {.flops = 1e9, .host_link_bytes = host_link, .host_memory_bytes = 1e9},
       .memory_bytes = memory_bytes},
      1)[0];
}

TEST(Search, TakesTheFastestStepThatFits) {
  QT_SKIP_SANITIZED();
  const LayoutRow whole = searched(0);
  EXPECT_TRUE(whole.runs());
  EXPECT_EQ(whole.flags.find("remat"), std::string::npos);
  const int64_t bytes = MemoryMeter::sum(whole.memory);
  EXPECT_EQ(searched(bytes).flags, whole.flags);  // exactly so much
  const LayoutRow less = searched(bytes - 1);
  EXPECT_TRUE(less.runs());
  EXPECT_NE(less.flags, whole.flags);
  EXPECT_GT(less.seconds, whole.seconds);
  EXPECT_LT(MemoryMeter::sum(less.memory), bytes);

  // Fewer bytes than the smallest microbatch takes: layers are computed again, then the state leaves.
  int64_t most = MemoryMeter::sum(less.memory);
  std::vector<std::string> seen;
  for (LayoutRow row = less; row.runs(); row = searched(most - 1, 1e9)) {
    most = MemoryMeter::sum(row.memory);
    seen.push_back(row.flags);
  }
  const auto first = [&](const char* flag) {
    return std::ranges::find_if(
        seen, [&](const std::string& flags) { return flags.find(flag) != std::string::npos; });
  };
  EXPECT_LT(first("remat_policy"), first("--optimizer_offload"));
  EXPECT_LT(first("--optimizer_offload"), seen.end());
  // Nothing fits: the least that it takes is told.
  const LayoutRow none = searched(most - 1, 1e9);
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(MemoryMeter::sum(none.memory), most);
}

TEST(Search, RoundsGradientsWhereNothingElseFits) {
  const LayoutCase what =
      layout_case({.model = "t5_1_1_small", .batch = 2, .inputs = 8, .targets = 8});
  const auto searched = [&](int64_t memory_bytes) {
    return search_layouts(
        what, parse_layouts("1x1", 1),
        {.hosts = {"abstract"},
         .machine = {.flops = 1e9, .host_link_bytes = 1e9, .host_memory_bytes = 1e9},
         .memory_bytes = memory_bytes},
        1)[0];
  };
  std::vector<std::string> seen;
  for (LayoutRow row = searched(0); row.runs(); row = searched(MemoryMeter::sum(row.memory) - 1))
    seen.push_back(row.flags);
  ASSERT_GT(seen.size(), 1);
  EXPECT_NE(seen.back().find("--optimizer_offload --gradient_dtype=bfloat16"), std::string::npos);
  EXPECT_EQ(
      std::ranges::count_if(
          seen, [](const std::string& flags) { return flags.find("bfloat16") != flags.npos; }),
      1);
}

TEST(Search, TheHostsLinkIsPaidFor) {
  QT_SKIP_SANITIZED();
  const int64_t little = MemoryMeter::sum(searched(1, 1e9).memory);
  EXPECT_FALSE(searched(little).fits);  // no link is known
  const double fast = searched(little, 2e6).seconds, slow = searched(little, 1e6).seconds;
  const auto elements = 6.0 / 1e6;                     // a master and a bfloat16 gradient come
  EXPECT_GT(slow - fast, 0.4 * elements * 32128 * 8);  // of the embedding's half, at least
}

TEST(LayoutStep, ExpertsCostTheirTokensAndTheRouter) {
  constexpr int64_t kExperts = 8;
  ModelCase options;
  options.model = "t5_1_1_tiny";
  options.inputs = 16;
  options.targets = 8;
  const auto flops = [&](int64_t sparse_layers) {
    LayoutCase what = layout_case(options);
    what.make = [&] {
      T5Config config = published_model_config(options.model);
      for (SparseStack* stack : {&config.encoder.sparse, &config.decoder.sparse}) {
        stack->num_sparse_layers = sparse_layers;
        stack->moe.num_experts = kExperts;
        stack->moe.mlp_dim = config.mlp_dim;
        stack->moe.activations = config.mlp_activations;
      }
      return ModelAndOptimizer{std::make_shared<EncoderDecoderModel>(config, LossOptions{}),
                               optax_optimizer(adamw(1e-3))};
    };
    return model_flops(what);
  };
  const int64_t emb_dim = published_model_config(options.model).emb_dim;
  const int64_t tokens = options.batch * (options.inputs + options.targets);
  EXPECT_EQ(flops(2), flops(0) + static_cast<double>(2 * 3 * 2 * tokens * emb_dim * kExperts));
}

}  // namespace
}  // namespace quintet
