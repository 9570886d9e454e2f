// What the fixtures leave open about gin's grammar: limits, encodings, odd literals, places of
// errors.

#include "runtime/gin/syntax/parser.h"

#include <gtest/gtest.h>

#include "runtime/gin/syntax/error.h"

namespace quintet::gin {
namespace {

Value value_of(const std::string& text) { return parse_value(text); }

std::string error_of(const std::string& text) {
  try {
    parse(text, "x.gin");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "no error: " << text;
  return {};
}

BindingStatement binding_of(const std::string& text) {
  const std::vector<Statement> statements = parse(text, "x.gin");
  EXPECT_EQ(statements.size(), 1u);
  return std::get<BindingStatement>(statements.at(0).what);
}

TEST(Parser, ReadsIntegersOfAnySize) {
  EXPECT_EQ(value_of("9223372036854775807"), Value(int64_t{9223372036854775807}));
  EXPECT_EQ(value_of("-9223372036854775808"), Value(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(value_of("9223372036854775808"), Value(BigInt{"9223372036854775808"}));
  EXPECT_EQ(value_of("-0x1_0000_0000_0000_0000"), Value(BigInt{"-18446744073709551616"}));
  EXPECT_EQ(value_of("0b11"), Value(3));
  EXPECT_EQ(value_of("0o777"), Value(511));
  EXPECT_EQ(value_of("0_0"), Value(0));
  EXPECT_NE(error_of("x = 012"), "");
  EXPECT_NE(error_of("x = 1__0"), "");
  EXPECT_NE(error_of("x = " + std::string(5000, '7')).find("limit"), std::string::npos);
}

TEST(Parser, ReadsFloatsAsPythonDoes) {
  EXPECT_EQ(value_of("1_0.2_5e-1_0"), Value(10.25e-10));
  EXPECT_EQ(value_of("1."), Value(1.0));
  EXPECT_EQ(value_of("012.5"), Value(12.5));
  EXPECT_EQ(value_of("-0.0").repr(), "-0.0");
  EXPECT_EQ(value_of("1e400").repr(), "inf");
  EXPECT_EQ(value_of("- 2"), Value(-2));
  EXPECT_EQ(value_of("2j").repr(), "2j");
}

TEST(Parser, ReadsEscapes) {
  EXPECT_EQ(value_of(R"('\x41\101\u00e9\U0001f642\a\0')"),
            Value(std::string("AA\u00e9\U0001f642\a\0", 10)));
  EXPECT_EQ(value_of(R"('\q\8')"), Value("\\q\\8"));
  EXPECT_EQ(value_of("'a\\\nb'"), Value("ab"));
  EXPECT_EQ(value_of(R"(rb'\x00' b'\xff')"), Value(Bytes{"\\x00\xff"}));
  EXPECT_NE(error_of(R"(x = '\x4')").find("hexadecimal"), std::string::npos);
  EXPECT_NE(error_of(R"(x = '\U00110000')").find("U+10FFFF"), std::string::npos);
  EXPECT_NE(error_of(R"(x = '\N{DASH}')").find("not supported"), std::string::npos);
  EXPECT_NE(error_of("x = b'\u00e9'").find("ASCII"), std::string::npos);
  EXPECT_NE(error_of("x = 'a' b'b'").find("mix"), std::string::npos);
  EXPECT_NE(error_of("x = f'{a}'").find("f-string"), std::string::npos);
}

TEST(Parser, KeepsThePlaceAndTheLastValueOfARepeatedKey) {
  EXPECT_EQ(value_of("{1: 'a', 'x': 'b', 1.0: 'c', True: 'd'}").repr(), "{1: 'd', 'x': 'b'}");
  EXPECT_NE(error_of("x = {[1]: 2}").find("cannot be a key"), std::string::npos);
}

TEST(Parser, TakesAllLineEndsAndAByteOrderMark) {
  EXPECT_EQ(parse("\xEF\xBB\xBF"
                  "a.b = 1\r\nc.d = 2\re.f = 3",
                  "x")
                .size(),
            3u);
  EXPECT_EQ(parse("a:\n\tb = 1\n\tc = 2\n", "x").size(), 3u);
  EXPECT_EQ(parse("a:\n  b = 1\n  c = 2", "x").size(), 3u);  // no newline at the end
  EXPECT_TRUE(parse("", "x").empty());
  EXPECT_TRUE(parse("\n  \n# nothing\n   # here", "x").empty());
}

TEST(Parser, ContinuesLinesByBackslashAndWithinBrackets) {
  EXPECT_EQ(binding_of("a.b = \\\n  \\\n  3\n").value, Value(3));
  EXPECT_EQ(binding_of("a.b = (1\n,# x\n2)\n").value, tuple_of({1, 2}));
  EXPECT_EQ(binding_of("a.b = @s/f(\n)\n").value.repr(), "@s/f()");
}

TEST(Parser, RefusesWhatIsNotText) {
  EXPECT_NE(error_of("a.b = 1\nc.d = '\xff'\n").find("x.gin:2: byte 0xff"), std::string::npos);
  EXPECT_NE(error_of(std::string("a.b = 1\0", 8)).find("byte 0x00"), std::string::npos);
  EXPECT_NE(error_of("a = '\xed\xa0\x80'").find("UTF-8"), std::string::npos);  // a surrogate
}

TEST(Parser, RefusesNestingWithoutEnd) {
  const auto nested = [](size_t n) { return "x = " + std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(parse(nested(kMaxDepth - 1), "x").size(), 1u);
  EXPECT_NE(error_of(nested(1'000'000)).find("nested more than"), std::string::npos);
  EXPECT_NE(error_of("x = " + std::string(100'000, '(')).find("nested more than"),
            std::string::npos);
  std::string indented;
  for (size_t i = 1; i < 500; ++i) indented += std::string(i, ' ') + "a.b = 1\n";
  EXPECT_NE(error_of(indented).find("too deeply"), std::string::npos);
}

TEST(Parser, ReadsLargeFilesInLinearTime) {
  std::string text = "x.y = {";
  for (int i = 0; i < 100'000; ++i) text += "'key" + std::to_string(i) + "': [1, 2.5, 'a b c'],\n";
  const BindingStatement binding = binding_of(text + "}");
  EXPECT_EQ(binding.value.get_if<Dict>()->items.size(), 100'000u);
}

TEST(Parser, SaysWhereAndWhat) {
  EXPECT_EQ(error_of("a.b = 1\nc.d = foo\n"),
            "x.gin:2: Failed to parse 'foo': 'foo' is not a value; strings need quotes ('foo'), "
            "references an @, "
            "macros a %\n    c.d = foo\n          ^");
  EXPECT_NE(error_of("a.b = 'abc\n").find("x.gin:1"), std::string::npos);
  EXPECT_NE(error_of("a.b = '''abc\n\n").find("triple-quoted"), std::string::npos);
  EXPECT_NE(error_of("a.b = [1,\n").find("end of file within"), std::string::npos);
  EXPECT_NE(error_of("a.b = 1 \\").find("Expected newline"), std::string::npos);
  EXPECT_NE(error_of("from a b\n").find("'import'"), std::string::npos);
  EXPECT_NE(error_of("include 3\n").find("file path"), std::string::npos);
  EXPECT_NE(error_of("a.b = -@x\n").find("must be followed by a number"), std::string::npos);
  EXPECT_NE(error_of("a.b = @x(1)\n").find("Expected ')'"), std::string::npos);
  EXPECT_NE(error_of("x/y.z/a.b = 1\n").find("Malformatted"), std::string::npos);
  EXPECT_NE(error_of("a:\n  b.c = 1\n").find("Expected '='"), std::string::npos);
}

TEST(Parser, WritesImportsBack) {
  for (const char* text : {"import a", "import a.b.c", "import a.b as c", "from a import b",
                           "from a.b import c as d"}) {
    const auto s = std::get<ImportStatement>(parse(std::string(text) + "\n", "x").at(0).what);
    EXPECT_EQ(s.format(), text);
  }
}

}  // namespace
}  // namespace quintet::gin
