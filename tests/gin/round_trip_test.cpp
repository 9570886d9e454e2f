// What is written reads back: repr() and pretty() of any value, config_str() of any configuration.

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/gin/config.h"
#include "runtime/gin/resolved.h"
#include "runtime/gin/syntax/parser.h"
#include "runtime/gin/syntax/pretty.h"
#include "runtime/gin/syntax/unicode.h"
#include "tests/gin/oraclelib.h"
#include "tests/gin/random_gin.h"

namespace quintet {
namespace {

using testing::RandomGin;

TEST(GinRoundTrip, AnyValueReadsBackAsItself) {
  RandomGin random(1);
  for (int i = 0; i < 3000; ++i) {
    const gin::Value value = random.value({"f", "mod.g"});
    ASSERT_EQ(gin::parse_value(value.repr()), value) << value.repr();
    const std::string pretty = gin::pretty(value, 10 + random.below(80));
    ASSERT_EQ(gin::sorted_repr(gin::parse_value("(" + pretty + ")")), gin::sorted_repr(value))
        << pretty;
  }
}

TEST(GinRoundTrip, PrettyLinesKeepToTheWidthWhereTheyCanBeCut) {
  RandomGin random(2);
  for (int i = 0; i < 500; ++i) {
    std::vector<gin::Value> items;
    for (size_t n = 1 + random.below(30); n > 0; --n)
      items.emplace_back(static_cast<int64_t>(random.below(100000)));
    for (const std::string& line : gin::split(gin::pretty(gin::list_of(items), 40), '\n'))
      EXPECT_LE(gin::count_code_points(line), 40u) << line;
  }
}

/// Everything a configuration binds, names in full, independent of order.
std::string content(const gin::Config& config) {
  const gin::Resolved resolved = gin::resolve(config);
  std::map<std::string, std::string> sorted;
  for (const auto* values : {&resolved.macros, &resolved.bindings})
    for (const auto& [name, value] : values->items()) sorted[name] = gin::sorted_repr(value);
  std::string out;
  for (const auto& [name, text] : sorted) out += name + " = " + text + "\n";
  return out;
}

std::string random_config(RandomGin& random, bool is_dynamic) {
  const std::string prefix = is_dynamic ? "lib." : "";
  const std::vector<std::string> functions = {prefix + "layer", prefix + "optimizer",
                                              prefix + "rules"};
  std::string text =
      is_dynamic ? "from __gin__ import dynamic_registration\nimport oraclelib as lib\n" : "";
  for (int m = 0; m < 4; ++m) text += "M" + std::to_string(m) + " = " + std::to_string(m) + "\n";
  const std::vector<std::string> names = {"dataset.name", "dataset.batch", "train.values",
                                          "model.norm", "sched.base"};
  for (size_t n = random.below(8); n > 0; --n)
    text += random.pick<std::string>({"", "a/", "a/b/", "B/"}) + prefix + random.pick(names) +
            " = " + random.value(functions).repr() + "\n";
  return text;
}

TEST(GinRoundTrip, AnyConfigurationReadsBackAsItself) {
  RandomGin random(3);
  gin::Registry registry;
  testing::register_oraclelib(registry, "oraclelib");
  for (int i = 0; i < 400; ++i) {
    const std::string text = random_config(random, i % 2 == 0);
    SCOPED_TRACE(text);
    gin::Config first(registry, {});
    first.parse_text(text, "first");
    first.finalize();
    const std::string written = first.config_str();
    gin::Config second(registry, {});
    second.parse_text(written, "second");
    second.finalize();
    ASSERT_EQ(content(second), content(first)) << written;
    ASSERT_EQ(second.config_str(), written);
  }
}

}  // namespace
}  // namespace quintet
