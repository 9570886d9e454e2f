#include "apps/evaluate/step_timing.h"

#include <gtest/gtest.h>

#include "runtime/base/formats/json.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

TEST(StepTiming, CountsAsT5xDoes) {
  const auto file = testing::fixture_root() / "semantics" / "timing.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const Json json = Json::read(file);
  constexpr double kSeconds = 0.5;
  constexpr int64_t kSteps = 3;
  Metrics metrics;
  for (int64_t step = 0; step < kSteps; ++step)
    merge_step(metrics,
               {{"loss_per_all_target_tokens", {1.0, json["positions"].as_double()}},
                {"loss_per_nonpadding_target_token", {1.0, json["nonpadding"].as_double()}}});
  const auto values =
      timing_of({kSeconds, kSteps, json["batch_size"].as_int(), json["devices"].as_int()}, metrics);
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  EXPECT_EQ(names, json["names"].as_strings());
  for (const auto& [name, numerator] : json["numerators"].members())
    EXPECT_DOUBLE_EQ(values.at(name), numerator.as_double() * kSteps / kSeconds) << name;
  EXPECT_DOUBLE_EQ(values.at("timing/steps_per_second"), kSteps / kSeconds);
  EXPECT_EQ(timing_of({0, kSteps, 2, 4}, metrics).count("timing/seqs_per_second"), 0u);
}

}  // namespace
}  // namespace quintet
