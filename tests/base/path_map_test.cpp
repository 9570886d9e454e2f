// Which folder stands for an address, and what is said when none does.

#include "runtime/base/files/path_map.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/check.h"

namespace quintet {
namespace {

PathMap of_rules(std::initializer_list<const char*> rules) {
  PathMap map;
  for (const char* rule : rules) map.add(rule, "--path_map");
  return map;
}

std::string error_of(const std::function<void()>& work, ExitCode code) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(PathMap, ALocalPathStaysAsItIs) {
  const PathMap map = of_rules({"gs://=/all"});
  for (const char* path : {"", "/a/b", "a:b//c", "a/b://c", "~/x", "-"})
    EXPECT_EQ(map.find(path), path);
  EXPECT_EQ(map.find("file:///a/b"), "/a/b");
}

TEST(PathMap, TheLongestAddressWins) {
  const PathMap map =
      of_rules({"gs://=/all", "gs://t5-data=/t5", "gs://t5-data/vocabs/=/v", "hf://google=/hub/"});
  EXPECT_EQ(map.find("gs://t5-data/vocabs/a.model"), "/v/a.model");
  EXPECT_EQ(map.find("gs://t5-data/vocabs"), "/v");
  EXPECT_EQ(map.find("gs://t5-data/vocabs/"), "/v/");
  EXPECT_EQ(map.find("gs://t5-data/x"), "/t5/x");
  EXPECT_EQ(map.find("gs://t5-data2/x"), "/all/t5-data2/x");
  EXPECT_EQ(map.find("gs://t5-data"), "/t5");
  EXPECT_EQ(map.find("s3://t5-data"), std::nullopt);
}

TEST(PathMap, ALaterRuleOfTheSameAddressWins) {
  EXPECT_EQ(of_rules({"gs://a=/one", "gs://a/=/two"}).find("gs://a/x"), "/two/x");
}

TEST(PathMap, RulesThatAreNoneAreNamed) {
  for (const char* rule : {"", "gs://a", "gs://a=", "=/a", "a=/b", "://a=/b"})
    EXPECT_NE(error_of([&] { of_rules({rule}); }, ExitCode::kUsage).find("--path_map: expected"),
              std::string::npos)
        << rule;
}

TEST(PathMap, AFolderMayBeBelowHome) {
  const char* before = std::getenv("HOME");
  const std::string home = before == nullptr ? "" : before;
  setenv("HOME", "/home/me", 1);
  const PathMap map = of_rules({"gs://a=~/data", "gs://b=~", "gs://c=~other/data"});
  setenv("HOME", home.c_str(), 1);
  EXPECT_EQ(map.find("gs://a/x"), "/home/me/data/x");
  EXPECT_EQ(map.find("gs://b/x"), "/home/me/x");
  EXPECT_EQ(map.find("gs://c/x"), "~other/data/x");
}

TEST(PathMap, AKnownVocabularyIsDescribedWhereItIsMissing) {
  constexpr const char* kModel = "gs://t5-data/vocabs/umt5.256000/sentencepiece.model";
  const auto error = [&] { return error_of([&] { local_path(kModel); }, ExitCode::kData); };
  use_path_map({});
  const std::string unmapped = error();
  use_path_map(of_rules({"gs://t5-data=/nowhere"}));
  const std::string missing = error();
  use_path_map({});
  EXPECT_NE(unmapped.find("--path_map=gs://t5-data=FOLDER"), std::string::npos) << unmapped;
  EXPECT_EQ(missing.find("/nowhere/vocabs/umt5.256000/sentencepiece.model: is not there"), 0u)
      << missing;
  for (const std::string& message : {unmapped, missing})
    EXPECT_NE(message.find("4,548,313 bytes, SHA-256 e3909a67"), std::string::npos) << message;
}

TEST(PathMap, FileAndEnvironmentAreReadInThisOrder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "path_map_test";
  std::filesystem::create_directories(folder / "quintet");
  std::ofstream(folder / "quintet" / "paths")
      << "# folders\n\n  gs://a /wrong\ngs://a=/file\r\ngs://b=/file\n";
  setenv("XDG_CONFIG_HOME", folder.c_str(), 1);
  EXPECT_NE(error_of([] { PathMap::of_environment(); }, ExitCode::kUsage).find("paths:3: expected"),
            std::string::npos);
  std::ofstream(folder / "quintet" / "paths")
      << "# folders\n\n gs://a = /file\r\ngs://b=/file  # both\n";
  setenv("QUINTET_PATH_MAP", "gs://b=/variable,s3://c=/variable", 1);
  const PathMap map = PathMap::of_environment();
  EXPECT_EQ(map.find("gs://a/x"), "/file/x");
  EXPECT_EQ(map.find("gs://b/x"), "/variable/x");
  EXPECT_EQ(map.find("s3://c/x"), "/variable/x");
  unsetenv("QUINTET_PATH_MAP");
  unsetenv("XDG_CONFIG_HOME");
}

TEST(PathMap, AnAddressWithoutARuleSaysWhichToAdd) {
  use_path_map(of_rules({"gs://other=/x"}));
  const std::string path = "gs://t5-data/vocabs/cc_all.32000/sentencepiece.model";
  const std::string message = error_of([&] { local_path(path); }, ExitCode::kData);
  EXPECT_NE(message.find(path), std::string::npos);
  EXPECT_NE(message.find("--path_map=gs://t5-data=FOLDER"), std::string::npos);
  EXPECT_NE(message.find("791,656 bytes"), std::string::npos) << "a well-known file";
  use_path_map({});
}

}  // namespace
}  // namespace quintet
