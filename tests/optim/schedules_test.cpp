// Schedules against T5X and optax at the steps recorded in optim/lr_schedules.json.

#include "runtime/optim/schedules.h"

#include <nlohmann/json.hpp>

#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

using testing::fixture_root;

template <typename T>
void read(const Json& args, const char* name, T& into) {
  if (!args.has(name)) return;
  if constexpr (std::is_same_v<T, std::string>) into = args[name].as_string();
  if constexpr (std::is_same_v<T, double>) into = args[name].as_double();
  if constexpr (std::is_same_v<T, int64_t>) into = args[name].as_int();
}

LearningRateOptions learning_rate_options(const Json& args) {
  LearningRateOptions o;
  read(args, "factors", o.factors);
  read(args, "base_learning_rate", o.base_learning_rate);
  read(args, "warmup_steps", o.warmup_steps);
  read(args, "decay_factor", o.decay_factor);
  read(args, "steps_per_decay", o.steps_per_decay);
  read(args, "steps_per_cycle", o.steps_per_cycle);
  read(args, "step_offset", o.step_offset);
  read(args, "min_learning_rate", o.min_learning_rate);
  return o;
}

/// float32 keeps 6e-8 of the largest term; differences of near-equal numbers lose more of the
/// result.
void expect_schedule(const Schedule& schedule, const Json& row) {
  const auto steps = row["steps"].as_ints();
  const auto want = row["lr"].as_doubles();
  ASSERT_EQ(steps.size(), want.size());
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(schedule(steps[i]), want[i], 1e-6 * std::abs(want[i]))
        << "step " << steps[i] << " of " << row["args"].raw().dump();
}

TEST(Schedules, AgreeWithT5xAndOptax) {
  const auto file = fixture_root() / "optim/lr_schedules.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const Json golden = Json::read(file);
  for (const Json& row : golden["create_learning_rate_scheduler"].items()) {
    const LearningRateOptions options = learning_rate_options(row["args"]);
    if (row.has("error"))
      EXPECT_THROW(create_learning_rate_scheduler(options), Error) << row["args"].raw().dump();
    else
      expect_schedule(create_learning_rate_scheduler(options), row);
  }
  for (const Json& row : golden["optax_warmup_cosine_decay_schedule"].items()) {
    WarmupCosineOptions o;
    read(row["args"], "init_value", o.init_value);
    read(row["args"], "peak_value", o.peak_value);
    read(row["args"], "warmup_steps", o.warmup_steps);
    read(row["args"], "decay_steps", o.decay_steps);
    read(row["args"], "end_value", o.end_value);
    read(row["args"], "exponent", o.exponent);
    expect_schedule(warmup_cosine_decay_schedule(o), row);
  }
}

TEST(Schedules, DefaultsAreTheReferences) {
  const auto file = fixture_root() / "optim/lr_schedules.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const LearningRateOptions ours, theirs = learning_rate_options(Json::read(file)["defaults"]);
  for (int64_t step : {0, 10, 999, 1000, 5000, 123456})
    EXPECT_EQ(create_learning_rate_scheduler(ours)(step),
              create_learning_rate_scheduler(theirs)(step));
}

TEST(Schedules, WrongOptionsAreErrors) {
  EXPECT_THROW(create_learning_rate_scheduler({.factors = "constant * "}), Error);
  EXPECT_THROW(create_learning_rate_scheduler({.factors = ""}), Error);
  EXPECT_THROW(warmup_cosine_decay_schedule({.warmup_steps = 10, .decay_steps = 10}), Error);
}

TEST(Schedules, LinearAndConstant) {
  EXPECT_EQ(constant_schedule(0.25)(7), 0.25f);
  const Schedule line = linear_schedule(1.0, 0.0, 4, 2);
  EXPECT_EQ(line(0), 1.0f);
  EXPECT_EQ(line(3), 0.75f);
  EXPECT_EQ(line(100), 0.0f);
}

}  // namespace
}  // namespace quintet
