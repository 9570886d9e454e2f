// Steps on paper send what steps on ranks send, the optimizer's sums included.

#include "apps/layout_step.h"

#include <gtest/gtest.h>

#include "apps/bench_models.h"
#include "runtime/mesh/collectives_threads.h"
#include "runtime/optim/adafactor.h"

namespace quintet {
namespace {

LayoutCase tiny(const std::function<OptimizerPtr()>& optimizer) {
  BenchOptions options;
  options.model = "t5_1_1_tiny";
  options.inputs = 16;
  options.targets = 8;
  LayoutCase what = bench_case(options);
  what.make = [make = what.make, optimizer] {
    ModelAndOptimizer made = make();
    if (optimizer) made.optimizer = optimizer();
    return made;
  };
  return what;
}

LayoutRow planned(const LayoutCase& what, const TrainingLayout& layout) {
  return plan_layout(what, layout, {.hosts = std::vector<std::string>(4, "paper"), .machine = {}},
                     1);
}

TEST(LayoutStep, AdafactorsSumsAreCountedOnPaperAsOnRanks) {
  const LayoutCase what = tiny([] {
    return adafactor({.beta1 = 0.9,
                      .min_dim_size_to_factor = 8,
                      .logical_factor_rules = standard_logical_factor_rules()});
  });
  for (const TrainingLayout& layout : parse_layouts("4x1:a1p2,2x2:a1p2,1x4:a2p1", 4)) {
    SCOPED_TRACE(layout.name());
    LayoutRow measured;
    run_threads({.count = 4, .timeout = std::chrono::minutes(2)}, [&](Comm& comm) {
      LayoutRow row = measure_layout(what, layout, comm, 1);
      if (comm.rank() == 0) measured = std::move(row);
    });
    const LayoutRow on_paper = planned(what, layout);
    EXPECT_EQ(on_paper.refused, "");
    EXPECT_EQ(on_paper.traffic, measured.traffic);
    EXPECT_NE(on_paper.traffic, planned(tiny({}), layout).traffic);  // AdamW's
  }
}

}  // namespace
}  // namespace quintet
