// Mutated snippets never crash the parser or a Config, and what they write reads back.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fuzz/wall_limit.h"
#include "tests/gin/gin_input.h"
#include "tests/gin/random_gin.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

std::vector<std::string> corpus() {
  std::vector<std::string> out;
  const std::filesystem::path folder = testing::fixture_root() / "gin" / "snippets";
  if (!std::filesystem::is_directory(folder)) return out;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    out.push_back(read_file(entry.path()));
  std::sort(out.begin(), out.end());
  return out;
}

std::string mutate(testing::RandomGin& random, const std::vector<std::string>& texts) {
  static const std::vector<std::string> tokens = {"'",
                                                  "\"",
                                                  "'''",
                                                  "\\",
                                                  "\n",
                                                  "\\\n",
                                                  "  ",
                                                  "\t",
                                                  "#",
                                                  "%",
                                                  "@",
                                                  "(",
                                                  ")",
                                                  "[",
                                                  "]",
                                                  "{",
                                                  "}",
                                                  ",",
                                                  ":",
                                                  "=",
                                                  ".",
                                                  "/",
                                                  "-",
                                                  "1e9",
                                                  "0x",
                                                  "None",
                                                  "r'",
                                                  "import",
                                                  "from",
                                                  "as",
                                                  "a/",
                                                  "@f()",
                                                  "%M",
                                                  "$",
                                                  "\f",
                                                  "\xff",
                                                  "\u00e9",
                                                  "%gin.REQUIRED",
                                                  "singleton",
                                                  "@train()",
                                                  "oraclelib.",
                                                  "\r\n",
                                                  "9999999999999999999"};
  std::string text = random.pick(texts);
  for (size_t n = 1 + random.below(4); n > 0; --n) {
    const size_t at = random.below(text.size() + 1);
    if (random.chance(0.5)) {
      text.insert(at, random.pick(tokens));
    } else if (random.chance(0.5)) {
      text.erase(at, 1 + random.below(10));
    } else {
      const std::string& other = random.pick(texts);
      const size_t from = random.below(other.size());
      text.insert(at, other.substr(from, random.below(40)));
    }
  }
  return text;
}

TEST(GinMutation, GivesValuesOrErrorsOnly) {
  const std::vector<std::string> texts = corpus();
  if (texts.empty()) GTEST_SKIP() << "no gin snippets under " << testing::fixture_root();
  gin::Registry registry;
  testing::register_oraclelib(registry, "oraclelib");
  testing::RandomGin random(20);
  size_t parsed = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string text = mutate(random, texts);
    SCOPED_TRACE(text);
    const testing::WallLimit limit(text, std::chrono::minutes(1));
    ASSERT_NO_THROW(parsed += testing::run_gin_input(registry, text) ? 1 : 0);
  }
  EXPECT_GT(parsed, 500u);  // both sides are exercised
  EXPECT_LT(parsed, 4500u);
}

TEST(GinMutation, ValuesWithoutALiteralAreLeftOutOfWhatReadsBack) {
  gin::Registry registry;
  testing::register_oraclelib(registry, "oraclelib");
  for (const char* text : {"optimizer.betas = (0.9, 1e999)\ntrain.model = @optimizer()\n",
                           "M = 1e999\ntrain.ds = @dataset()\n",
                           "train.ds = @dataset()\ndataset.lengths = {'a': 1e999}\n"}) {
    SCOPED_TRACE(text);
    ASSERT_NO_THROW(EXPECT_TRUE(testing::run_gin_input(registry, text)));
  }
}

}  // namespace
}  // namespace quintet
