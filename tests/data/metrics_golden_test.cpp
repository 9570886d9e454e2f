// The rows of fixtures/metrics whose function is one of ours.
#include <algorithm>
#include <iostream>

#include "data/metrics.h"
#include "tests/harness/fixtures.h"

namespace quintet::data {
namespace {

TEST(MetricsGolden, EqualT5sValues) {
  const auto file = ::quintet::testing::fixture_root() / "metrics" / "metrics.jsonl";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const auto names = metric_names();
  std::map<std::string, int> left_out;
  int compared = 0;
  const auto texts = [](const Json& list) {
    Texts all;
    for (const Json& item : list.items())
      all.push_back(item.is_string() ? item.as_string() : item.raw().dump());
    return all;
  };
  for (const Json& row : Json::read_lines(file)) {
    const std::string fn = row["fn"].as_string();
    if (std::find(names.begin(), names.end(), fn) == names.end()) {
      ++left_out[fn];
      continue;
    }
    SCOPED_TRACE(row.path() + " " + fn);
    const Metrics got =
        metric_by_name(fn).compute(texts(row["targets"]), texts(row["predictions"]));
    const auto want = row["result"].members();
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [name, value] : want) {
      ASSERT_TRUE(got.count(name)) << name;
      EXPECT_NEAR(got.at(name), value.as_double(), 1e-6 * std::abs(value.as_double())) << name;
    }
    ++compared;
  }
  EXPECT_GT(compared, 0);
  for (const auto& [fn, count] : left_out)
    std::cout << "left out: " << count << " rows of " << fn << ", not one of our metrics yet\n";
}

}  // namespace
}  // namespace quintet::data
