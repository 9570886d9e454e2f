// `quintet config` as a user runs it.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
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

/// A gin file that lasts as long as the test.
class GinFile {
 public:
  GinFile(const std::string& name, const std::string& text)
      : path_(::testing::TempDir() + "/config_verb_test_" + name) {
    std::ofstream(path_) << text;
  }
  ~GinFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const nlohmann::json* named(const nlohmann::json& all, const std::string& name) {
  for (const auto& one : all)
    if (one["name"] == name) return &one;
  ADD_FAILURE() << "no " << name;
  return nullptr;
}

TEST(ConfigVerb, ExplainsWhereValuesComeFrom) {
  const GinFile mine("mine.gin",
                     "include 't5x/examples/t5/t5_1_1/small.gin'\n"
                     "from t5x.examples.t5 import network\n"
                     "network.T5Config.emb_dim = 64\n"
                     "LEFT_OVER = 3\n");
  const std::vector<std::string> args = {mine.path(), "--explain", "--gin.DROPOUT_RATE=0.25",
                                         "--gin.network.T5Config.emb_dim=32"};
  const std::string text = run(args);
  EXPECT_NE(text.find("T5Config.emb_dim = 32\n    --gin.network.T5Config.emb_dim=32\n"
                      "    instead of 64 of " +
                      mine.path() + ":3\n    instead of 512 of "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("T5Config.dropout_rate = %DROPOUT_RATE = 0.25\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n# Nothing uses:\nLEFT_OVER = 3\n    " + mine.path() + ":4\n"),
            std::string::npos)
      << text;
}

TEST(ConfigVerb, ExplainsAHuggingFaceDirectory) {
  const std::string folder = std::string(QUINTET_SOURCE_DIR) + "/tests/fixtures/huggingface/t5_1_1";
  EXPECT_NE(run({"--explain", folder}).find("T5Config.emb_dim"), std::string::npos);
}

TEST(ConfigVerb, ExplainsAsJson) {
  const GinFile mine("mine.gin",
                     "include 't5x/configs/runs/infer.gin'\n"
                     "from t5x import utils\n"
                     "utils.RestoreCheckpointConfig.dtype = 'float16'\n"
                     "from t5x import infer\n"
                     "infer.infer.keep_aux_as_numpy = True\n"
                     "elsewhere/utils.DatasetConfig.pack = True\n");
  const auto all = nlohmann::json::parse(run({mine.path(), "--explain", "--format=json"}));
  const auto* dtype = named(all, "t5x.utils.RestoreCheckpointConfig.dtype");
  ASSERT_NE(dtype, nullptr);
  EXPECT_EQ(dtype->at("place"), mine.path() + ":3");
  EXPECT_EQ(dtype->at("shadowed").at(0).at("value"), "'bfloat16'");
  EXPECT_FALSE(dtype->contains("without_effect"));
  const auto* aux = named(all, "t5x.infer.infer.keep_aux_as_numpy");
  ASSERT_NE(aux, nullptr);
  EXPECT_NE(aux->at("without_effect").get<std::string>().find("numbers"), std::string::npos);
  EXPECT_EQ(dtype->at("used"), true);
  const auto* unused = named(all, "elsewhere/t5x.utils.DatasetConfig.pack");
  ASSERT_NE(unused, nullptr);
  EXPECT_EQ(unused->at("used"), false);
}

TEST(ConfigVerb, PrintsTheValuesThatDiffer) {
  const GinFile a("a.gin",
                  "include 't5x/examples/t5/t5_1_1/small.gin'\nDROPOUT_RATE = 0.0\nONE = 1\n");
  const GinFile b("b.gin", "include 't5x/examples/t5/t5_1_1/base.gin'\nDROPOUT_RATE = 0.0\n");
  const std::string text = run({"--diff", a.path(), b.path()});
  EXPECT_NE(text.find("-t5x.examples.t5.network.T5Config.emb_dim = 512\n"
                      "+t5x.examples.t5.network.T5Config.emb_dim = 768\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("-ONE = 1\n"), std::string::npos);
  const std::string other =
      run({"--diff", a.path(), "t5x/examples/t5/byt5/small.gin", "--gin.DROPOUT_RATE=0.0"});
  EXPECT_NE(other.find("-VOCABULARY = @seqio.vocabularies.SentencePieceVocabulary()\n"
                       "+VOCABULARY = @seqio.vocabularies.ByteVocabulary()\n"),
            std::string::npos)
      << other;
  EXPECT_EQ(text.find("vocab_size"), std::string::npos) << text;
  EXPECT_EQ(text.find("DROPOUT_RATE"), std::string::npos) << text;
  const std::string folder = ::testing::TempDir() + "/config_verb_test_run";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(a.path(), folder + "/config.gin",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(run({"--diff", "--format=json", a.path(), folder}), "{}\n");
  EXPECT_EQ(run({folder}), run({a.path()}));
  std::filesystem::remove_all(folder);
}

TEST(ConfigVerb, MarksWhatHasNoEffect) {
  const std::vector<std::string> args = {
      "t5x/examples/t5/t5_1_1/small.gin", "--gin.DROPOUT_RATE=0.25",
      "--gin.utils.DatasetConfig.pack=True",
      "--gin.partitioning.PjitPartitioner.params_on_devices=False"};
  ::testing::internal::CaptureStderr();
  const std::string text = run(args);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "--gin.partitioning.PjitPartitioner.params_on_devices=False: "),
            std::string::npos);
  EXPECT_NE(
      text.find(
          "# Without effect:\n# t5x.partitioning.PjitPartitioner.params_on_devices = False: "),
      std::string::npos)
      << text;
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
