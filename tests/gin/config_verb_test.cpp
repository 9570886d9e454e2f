// `quintet config` as a user runs it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/cli/verbs.h"
#include "runtime/base/check.h"
#include "tests/gin/oraclelib.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

std::string run(std::vector<std::string> args) {
  std::vector<char*> pointers;
  for (std::string& arg : args) pointers.push_back(arg.data());
  ::testing::internal::CaptureStdout();
  int code = -1;
  try {
    code = run_config(pointers);
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  EXPECT_EQ(code, 0);
  return ::testing::internal::GetCapturedStdout();
}

std::string error(const std::vector<std::string>& args) {
  try {
    run(args);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(ConfigVerb, PrintsWhatTheFixturesResolve) {
  const auto area = testing::fixture_root() / "gin";
  if (!std::filesystem::exists(area))
    GTEST_SKIP() << "no folder gin under " << testing::fixture_root();
  const Json records = Json::read(area / "snippets.json");
  for (const Json& record : records.items()) {
    SCOPED_TRACE(record["file"].as_string());
    std::vector<std::string> args = {
        "--format=json", "--parse_only",
        "--gin_file=" + (area / "snippets" / record["file"].as_string()).string()};
    for (const std::string& binding : record["cli"].as_strings())
      args.push_back("--gin_bindings=" + binding);
    EXPECT_EQ(testing::canonical(nlohmann::json::parse(run(args))),
              testing::canonical(record["resolved"].raw()));
  }
}

TEST(ConfigVerb, ResolvesNamesInFull) {
  const auto got = nlohmann::json::parse(
      run({"--format=json", "t5x/examples/t5/t5_1_1/small.gin", "--gin.DROPOUT_RATE=0.25"}));
  EXPECT_EQ(got["bindings"]["t5x.examples.t5.network.T5Config.dropout_rate"], 0.25);
  EXPECT_EQ(got["bindings"]["t5x.examples.t5.network.T5Config.num_heads"], 6);
  EXPECT_EQ(got["macros"]["OPTIMIZER"]["ref"], "t5x.adafactor.Adafactor");
  const auto kept =
      nlohmann::json::parse(run({"--format=json", "--keep_macros",
                                 "t5x/examples/t5/t5_1_1/small.gin", "--gin.DROPOUT_RATE=0.25"}));
  EXPECT_EQ(kept["bindings"]["t5x.examples.t5.network.T5Config.dropout_rate"]["macro"],
            "DROPOUT_RATE");
}

TEST(ConfigVerb, PrintsGinThatReadsBack) {
  const std::string text = run({"t5x/examples/t5/t5_1_1/small.gin", "--gin.DROPOUT_RATE=0.25"});
  EXPECT_NE(text.find("network.T5Config.emb_dim = 512\n"), std::string::npos) << text;
  const std::string file = ::testing::TempDir() + "/config_verb_test.gin";
  std::FILE* out = std::fopen(file.c_str(), "w");
  ASSERT_NE(out, nullptr);
  std::fputs(text.c_str(), out);
  std::fclose(out);
  EXPECT_EQ(run({"--gin_file", file}), text);
  std::remove(file.c_str());
}

TEST(ConfigVerb, TellsWhatIsWrong) {
  EXPECT_NE(error({"t5x/examples/t5/t5_1_1/small.gin"}).find("DROPOUT_RATE set to `%gin.REQUIRED`"),
            std::string::npos);
  EXPECT_NE(error({}).find("name a gin file"), std::string::npos);
  EXPECT_NE(error({"nowhere.gin"}).find("Unable to open file: nowhere.gin"), std::string::npos);
  EXPECT_NE(error({"nowhere.gin", "--format=xml"}).find("xml"), std::string::npos);
  EXPECT_NE(
      error({"--gin.utils.DatasetConfg.pack=True"}).find("did you mean 'utils.DatasetConfig'?"),
      std::string::npos);
  EXPECT_NE(error({"--gin.X"}).find("must be of the form"), std::string::npos);
}

}  // namespace
}  // namespace quintet
