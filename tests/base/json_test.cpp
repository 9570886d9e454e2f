// What Json refuses and keeps. What it costs: tests/e2e/json_cost_test.py; any bytes at all:
// tests/fuzz.

#include "runtime/base/formats/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"

namespace quintet {
namespace {

std::string object_of(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i)
    text += fmt::format("{}\"{:x}\":[{},{{}}]", i == 0 ? "" : ",", i, i);
  return text + "}";
}

std::string refused(const std::string& text, const JsonLimits& limits = {}) {
  try {
    Json::parse(text, "file", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "";
}

TEST(Json, KeepsTheOrderOfKeysAndEveryValue) {
  const std::string text =
      R"({"b":[1,-2,0.5,null,true,"\u00e9"],"a":{"":{},"c":[[],[{}]]},"big":18446744073709551615})";
  const Json json = Json::parse(text);
  EXPECT_EQ(json.raw(), nlohmann::ordered_json::parse(text));
  EXPECT_EQ(json.raw().dump(), nlohmann::ordered_json::parse(text).dump());
  const auto members = json.members();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].first, "b");
  EXPECT_EQ(members[1].second.path(), "json.a");
  EXPECT_EQ(json["b"][5].as_string(), "\u00e9");
  EXPECT_EQ(Json::parse("7").as_int(), 7);
}

TEST(Json, RefusesAKeyThatAppearsTwiceWhereverItIs) {
  EXPECT_EQ(refused(R"({"a":1,"b":{"c":2},"a":3})"), "file: key 'a' appears twice");
  EXPECT_EQ(refused(R"([{"x":{"k":{},"j":1,"k":[]}}])"), "file: key 'k' appears twice");
  EXPECT_EQ(refused(R"({"a":{"a":{"b":1}},"b":[{"a":1},{"a":2}]})"), "");
}

TEST(Json, StopsAtItsLimits) {
  const std::string deep(64, '['), end(64, ']');
  EXPECT_EQ(refused(deep + "1" + end), "");
  EXPECT_EQ(refused("[" + deep + end + "]"), "file: nested deeper than 64");
  EXPECT_EQ(refused(object_of(100), {.keys = 100}), "");
  EXPECT_EQ(refused(object_of(101), {.keys = 100}), "file: more than 100 keys");
  EXPECT_EQ(refused("[" + object_of(60) + "," + object_of(60) + "]", {.keys = 100}),
            "file: more than 100 keys");
}

TEST(Json, StopsWhenCancelled) {
  int left = 3;
  const JsonLimits limits{.check_stop = [&] {
    if (left-- == 0) throw std::runtime_error("enough");
  }};
  EXPECT_THROW(Json::parse(object_of(100'000), "file", limits), std::runtime_error);
  left = 1;
  EXPECT_EQ(refused("[1,2,3]", limits), "");
  left = 0;
  EXPECT_THROW(Json::parse("[1,2,3]", "file", limits), std::runtime_error);
}

TEST(Json, MessagesStayShort) {
  const std::string long_text(100'000, 'x');
  EXPECT_LT(refused("{\"" + long_text + "\":1,\"" + long_text + "\":1}").size(), 200u);
  EXPECT_LT(refused("[\"" + long_text).size(), 500u);
  const Json json = Json::parse("{\"" + long_text + "\":[1,2]}");
  EXPECT_LT(json.members()[0].second.path().size(), 200u);
}

TEST(Json, AddsMembersInOrder) {
  nlohmann::ordered_json object;
  append_member(object, "b", 1);
  append_member(object, "a", {{"c", 2}});
  EXPECT_EQ(object.dump(), R"({"b":1,"a":{"c":2}})");
}

}  // namespace
}  // namespace quintet
