// apply_assignment_map against what T5X's own function gave for the same names and rules (assignment_maps.json).

#include "apps/model/assignment_map.h"

#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> all;
  for (size_t i = 0; i < list.size(); ++i) all.push_back(list[i].as_string());
  return all;
}

AssignmentMap map_of(const Json& test) {
  AssignmentMap map;
  map.require_all_rules_match = test["require_all_rules_match"].as_bool();
  for (size_t i = 0; i < test["rules"].size(); ++i) {
    const Json rule = test["rules"][i];
    map.rules.push_back(
        {rule[size_t{0}].as_string(),
         rule[size_t{1}].is_null() ? std::nullopt : std::optional(rule[size_t{1}].as_string())});
  }
  return map;
}

TEST(AssignmentMap, GivesWhatT5xGives) {
  const Json cases = Json::read(QUINTET_SOURCE_DIR "/tests/apps/assignment_maps.json");
  ASSERT_GT(cases.size(), 20u);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json test = cases[i];
    SCOPED_TRACE(test["name"].as_string());
    SourceNames names;
    for (const std::string& name : strings(test["checkpoint"])) names[name] = name;
    const std::vector<std::string> model = strings(test["model"]);
    const std::set<std::string> wanted(model.begin(), model.end());
    if (test.has("error")) {
      EXPECT_THROW(apply_assignment_map(map_of(test), wanted, names), Error);
      continue;
    }
    SourceNames expected;
    for (const auto& [name, source] : test["result"].members()) expected[name] = source.as_string();
    EXPECT_EQ(apply_assignment_map(map_of(test), wanted, names), expected);
  }
}

TEST(AssignmentMap, TransformationsFollowOneAnother) {
  const std::set<std::string> model = {"new"};
  SourceNames names = apply_assignment_map({.rules = {{"new", "old"}}}, model, {{"old", "old"}});
  names = apply_assignment_map({.rules = {{"n(.*)", R"(n\1)"}}}, model, names);
  EXPECT_EQ(names, (SourceNames{{"new", "old"}}));
}

TEST(AssignmentMap, EveryProblemIsNamed) {
  try {
    apply_assignment_map({.where = "my.gin:7: assignment_map",
                          .rules = {{"target/wi", "target/wj"}, {"nothing", std::nullopt}}},
                         {"target/wi"}, {{"target/wi", "target/wi"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    for (const char* part : {"my.gin:7", "reads target/wi from target/wj",
                             "did you mean 'target/wi'", "'nothing' matches no name"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << error.what();
  }
}

TEST(AssignmentMap, OfAWrongExpressionSaysWhere) {
  for (const char* pattern : {"(", "[a", "(?<=a)b", "(?i)a", "(?P<n", "*"})
    EXPECT_THROW(apply_assignment_map({.rules = {{pattern, std::nullopt}}}, {"a"}, {{"a", "a"}}),
                 Error)
        << pattern;
  for (const char* replacement : {R"(\3)", R"(\g<n>)", R"(\g<1)", R"(\g<99999999999999999999>)"})
    EXPECT_THROW(apply_assignment_map({.rules = {{"(a)", replacement}}}, {"a"}, {{"a", "a"}}),
                 Error)
        << replacement;
}

}  // namespace
}  // namespace quintet
