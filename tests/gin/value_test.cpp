// Values: how they print, and how they become C++ values.

#include <gtest/gtest.h>

#include "runtime/gin/registry/convert.h"
#include "runtime/gin/syntax/error.h"
#include "runtime/gin/syntax/parser.h"
#include "runtime/gin/syntax/pretty.h"

namespace quintet::gin {
namespace {

const Where kHere{"run.gin:3: x.y"};

template <typename T>
T convert(const std::string& text) {
  return as<T>(parse_value(text), kHere);
}

template <typename T>
std::string error_of(const Value& value) {
  try {
    as<T>(value, kHere);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

struct Shape {
  virtual ~Shape() = default;
  virtual int corners() const = 0;
};
struct Named {
  std::string name = "box";
};
struct Box final : Named, Shape {  // Shape is not at offset 0
  int corners() const override { return 4; }
};

TEST(Value, PrintsAsPythonDoes) {
  EXPECT_EQ(Value(1e16).repr(), "1e+16");
  EXPECT_EQ(Value(123456789012345680.0).repr(), "1.2345678901234568e+17");
  EXPECT_EQ(Value(0.0001).repr(), "0.0001");
  EXPECT_EQ(Value(0.00001).repr(), "1e-05");
  EXPECT_EQ(Value(5e-324).repr(), "5e-324");
  EXPECT_EQ(Value("it's").repr(), "\"it's\"");
  EXPECT_EQ(Value("'\"").repr(), "'\\'\"'");
  EXPECT_EQ(Value("\x7f\u00a0\u200b\u00e9\U0001f642").repr(),
            "'\\x7f\\xa0\\u200b\u00e9\U0001f642'");
  EXPECT_EQ(tuple_of({1}).repr(), "(1,)");
  EXPECT_EQ(Value().repr(), "None");
}

TEST(Value, BreaksLongValuesAsPprintDoes) {
  const Value text = std::string(30, 'a') + " " + std::string(30, 'b') + " " + std::string(30, 'c');
  EXPECT_EQ(pretty(text, 76), "('" + std::string(30, 'a') + " " + std::string(30, 'b') + " '\n '" +
                                  std::string(30, 'c') + "')");
  EXPECT_EQ(pretty(dict_of({{"b", 1}, {"a", list_of({"x", "y"})}}), 12),
            "{'a': ['x',\n       'y'],\n 'b': 1}");
  EXPECT_EQ(pretty(dict_of({{"b", 1}, {10, 2}, {9, 3}}), 76), "{9: 3, 10: 2, 'b': 1}");
}

TEST(Convert, TakesNumbersAsTheyAre) {
  EXPECT_EQ(convert<int64_t>("1_000"), 1000);
  EXPECT_EQ(convert<double>("3"), 3.0);
  EXPECT_EQ(convert<float>("0.5"), 0.5f);
  EXPECT_EQ(error_of<int64_t>(Value("abc")), "run.gin:3: x.y: expected int, found str 'abc'");
  EXPECT_EQ(error_of<int64_t>(Value(1e6)),
            "run.gin:3: x.y: expected int (write 1000000), found float 1000000.0");
  EXPECT_EQ(error_of<int64_t>(Value(true)), "run.gin:3: x.y: expected int, found bool True");
  EXPECT_EQ(error_of<int32_t>(Value(int64_t{1} << 40)),
            "run.gin:3: x.y: expected int from -2147483648 to 2147483647, found int 1099511627776");
  EXPECT_EQ(error_of<uint32_t>(Value(-1)),
            "run.gin:3: x.y: expected int from 0 to 4294967295, found int -1");
  EXPECT_EQ(error_of<bool>(Value(1)), "run.gin:3: x.y: expected bool (True or False), found int 1");
  EXPECT_EQ(error_of<double>(Value()), "run.gin:3: x.y: expected float, found None");
}

TEST(Convert, TakesContainers) {
  EXPECT_EQ(convert<std::vector<int64_t>>("(1, 2)"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ((convert<std::map<std::string, int64_t>>("{'b': 2, 'a': 1}")),
            (std::map<std::string, int64_t>{{"a", 1}, {"b", 2}}));
  using Pairs = std::vector<std::pair<std::string, std::optional<std::string>>>;
  const Pairs want = {{"batch", "data"}, {"embed", std::nullopt}};
  EXPECT_EQ(convert<Pairs>("[('batch', 'data'), ('embed', None)]"), want);
  EXPECT_EQ(convert<Pairs>("{'batch': 'data', 'embed': None}"), want);
  EXPECT_EQ((convert<std::tuple<int, std::string>>("(1, 'a')")),
            (std::tuple<int, std::string>{1, "a"}));
  EXPECT_EQ((convert<std::array<int, 3>>("[1, 2, 3]")), (std::array<int, 3>{1, 2, 3}));
  EXPECT_EQ(error_of<std::vector<int64_t>>(parse_value("[1, 'x']")),
            "run.gin:3: x.y[1]: expected int, found str 'x'");
  EXPECT_EQ((error_of<std::map<std::string, double>>(parse_value("{'a': None}"))),
            "run.gin:3: x.y['a']: expected float, found None");
  EXPECT_NE((error_of<std::array<int, 3>>(parse_value("[1]"))).find("tuple of 3"),
            std::string::npos);
  EXPECT_NE(error_of<std::vector<int64_t>>(Value("abc")).find("list of int"), std::string::npos);
}

TEST(Convert, FindsObjectsAndTheirBases) {
  const Value value = Value::object(std::make_shared<Box>(), "shapes.Box");
  const auto shape = as<std::shared_ptr<Shape>>(value, kHere);
  EXPECT_EQ(shape->corners(), 4);
  EXPECT_EQ(shape.get(), as<std::shared_ptr<Box>>(value, kHere).get());
  EXPECT_EQ(as<std::shared_ptr<const Named>>(value, kHere)->name, "box");
  EXPECT_EQ(as<Named>(value, kHere).name, "box");
  EXPECT_EQ(as<std::shared_ptr<Shape>>(Value(), kHere), nullptr);
  EXPECT_NE(error_of<std::shared_ptr<std::string>>(value).find("made by shapes.Box"),
            std::string::npos);
  EXPECT_NE(error_of<std::shared_ptr<Shape>>(Value(3)).find("found int 3"), std::string::npos);
}

TEST(Convert, CarriesCppFunctions) {
  using F = std::function<double(int64_t)>;
  const Value value = to_value(F([](int64_t step) { return 0.5 * static_cast<double>(step); }));
  EXPECT_EQ(as<F>(value, kHere)(3), 1.5);
  EXPECT_FALSE(as<F>(Value(), kHere));
  EXPECT_NE(error_of<F>(Value(1)).find("@name"), std::string::npos);
}

TEST(Convert, GoesBothWays) {
  EXPECT_EQ(to_value(std::vector<int>{1, 2}).repr(), "[1, 2]");
  EXPECT_EQ(to_value(std::optional<std::string>()).repr(), "None");
  EXPECT_EQ((to_value(std::map<std::string, std::pair<int, bool>>{{"a", {1, true}}})).repr(),
            "{'a': (1, True)}");
}

}  // namespace
}  // namespace quintet::gin
