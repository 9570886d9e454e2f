// T5X's rule tables and what they make of arrays (fixtures partitioning/).

#include "runtime/mesh/rules.h"

#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

MeshAxes axes_from(const Json& json) {
  if (json.is_null()) return {};
  return json.is_string() ? MeshAxes{json.as_string()} : json.as_strings();
}

LogicalAxisRules table_from(const Json& json) {
  LogicalAxisRules rules;
  for (const Json& rule : json.items()) rules.push_back({rule[0].as_string(), axes_from(rule[1])});
  return rules;
}

TEST(AxisRules, GiveTheReferencesTables) {
  const auto file = fixture_root() / "partitioning" / "rules.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no fixtures at " << file;
  const LogicalAxisRules plain = standard_logical_axis_rules({});
  for (const auto& [name, json] : Json::read(file).members()) {
    SCOPED_TRACE(name);
    char kind[8];
    int activation = 0, parameter = 0;
    if (std::sscanf(name.c_str(), "%5s a%d p%d", kind, &activation, &parameter) != 3) continue;
    const LogicalAxisRules want = table_from(json);
    // A dense table's name does not say its additional rules: they are what follows the standard
    // ones.
    LogicalAxisRules extra;
    if (std::string(kind) == "dense") {
      const size_t standard = standard_logical_axis_rules({activation, parameter}).size();
      ASSERT_GE(want.size(), standard);
      extra.assign(want.begin() + static_cast<std::ptrdiff_t>(standard), want.end());
    }
    const AxisRuleOptions options{activation, parameter, extra};
    EXPECT_EQ(std::string(kind) == "moe" ? moe_logical_axis_rules(options)
                                         : standard_logical_axis_rules(options),
              want);
  }
}

TEST(AxisRules, AssignMeshAxesAsTheReference) {
  const auto folder = fixture_root() / "partitioning";
  if (!std::filesystem::exists(folder / "specs.jsonl")) GTEST_SKIP() << "no fixtures at " << folder;
  const Json tables = Json::read(folder / "rules.json");
  for (const Json& line : Json::read_lines(folder / "specs.jsonl")) {
    SCOPED_TRACE(line.path());
    const LogicalAxisRules rules = table_from(tables[line["rules"].as_string()]);
    std::vector<std::optional<std::string>> names;
    for (const Json& name : line["logical_axes"].items())
      names.push_back(name.is_null() ? std::nullopt : std::optional(name.as_string()));
    if (line.has("error")) {
      EXPECT_THROW(logical_to_mesh_axes(names, rules), Error);
      continue;
    }
    std::vector<MeshAxes> want;
    for (const Json& axes : line["mesh_axes"].items()) want.push_back(axes_from(axes));
    EXPECT_EQ(logical_to_mesh_axes(names, rules), want);
  }
}

}  // namespace
}  // namespace quintet::testing
