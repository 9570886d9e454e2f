#include "apps/train/non_finite_report.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

/// inputs: [rows, 3], value 10 * row + column + first.
HostArrays batch_from(int32_t first, int64_t rows) {
  HostArray inputs(DType::i32, {rows, 3});
  for (int64_t i = 0; i < rows * 3; ++i)
    inputs.as<int32_t>()[static_cast<size_t>(i)] = first + static_cast<int32_t>(i / 3 * 10 + i % 3);
  return {{"inputs", inputs}};
}

TEST(NonFiniteReport, HoldsStepTensorPlaceAndFirstRows) {
  const testing::Scratch folder;
  NonFiniteReport report;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  report.add({.step = 7, .tensor = "decoder/kernel", .loss = nan, .data_position = "{\"at\":28}"},
             batch_from(100, 20));
  const auto file = report.write(folder.path());
  EXPECT_EQ(file, folder.path() / "not_finite_7.json");
  const Json step = Json::read(file)["steps"][size_t{0}];
  EXPECT_EQ(step["step"].as_int(), 7);
  EXPECT_EQ(step["tensor"].as_string(), "decoder/kernel");
  EXPECT_TRUE(std::isnan(step["loss"].as_double()));
  EXPECT_EQ(step["data_position"].as_string(), "{\"at\":28}");
  const Json inputs = step["features"]["inputs"];
  EXPECT_EQ(inputs["shape"].as_ints(), (std::vector<int64_t>{20, 3}));
  EXPECT_EQ(inputs["first_rows"].size(), 8u);
  EXPECT_EQ(inputs["first_rows"][size_t{2}].as_ints(), (std::vector<int64_t>{120, 121, 122}));
}

TEST(NonFiniteReport, TellsBatchesApartBeyondTheirFirstRows) {
  const testing::Scratch folder;
  HostArrays one = batch_from(0, 20), other = one;
  other.at("inputs").as<int32_t>().back() += 1;
  NonFiniteReport report;
  report.add({.step = 1}, one);
  report.add({.step = 2}, other);
  const Json steps = Json::read(report.write(folder.path()))["steps"];
  EXPECT_NE(steps[size_t{0}]["features"]["inputs"]["crc32c"].as_string(),
            steps[size_t{1}]["features"]["inputs"]["crc32c"].as_string());
}

TEST(NonFiniteReport, JoinsTheRowsOfAllShards) {
  const testing::Scratch folder;
  NonFiniteReport first, second;
  for (int64_t step = 3; step < 5; ++step) {
    first.add({.step = step}, batch_from(0, 2));
    second.add({.step = step}, batch_from(static_cast<int32_t>(100 * step), 2));
  }
  const Json steps = Json::read(first.write(folder.path(), {first.text(), second.text()}))["steps"];
  const Json features = steps[size_t{1}]["features"];
  EXPECT_EQ(features.size(), 2u);
  EXPECT_EQ(features[size_t{0}]["inputs"]["first_rows"][size_t{0}].as_ints(),
            (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(features[size_t{1}]["inputs"]["first_rows"][size_t{0}].as_ints(),
            (std::vector<int64_t>{400, 401, 402}));
}

TEST(NonFiniteReport, KeepsTheNewestTenAndTakesNarrowBatches) {
  const testing::Scratch folder;
  NonFiniteReport report;
  for (int64_t step = 0; step < 12; ++step) report.add({.step = step}, batch_from(0, step % 3));
  const Json steps = Json::read(report.write(folder.path()))["steps"];
  EXPECT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps[size_t{0}]["step"].as_int(), 2);
}

}  // namespace
}  // namespace quintet
