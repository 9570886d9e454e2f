// fixtures/gin: what gin-config 0.5.0 made of snippets, random files, malformed files and command
// lines.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "runtime/gin/syntax/error.h"
#include "runtime/gin/syntax/parser.h"
#include "tests/gin/oraclelib.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::canonical;
using testing::encode_result;

fs::path area() { return testing::fixture_root() / "gin"; }

class GinGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(area())) GTEST_SKIP() << "no folder gin under " << testing::fixture_root();
  }
};

nlohmann::json statement_json(const gin::Statement& s) {
  nlohmann::json out = {{"line", s.where.line}};
  if (const auto* b = std::get_if<gin::BindingStatement>(&s.what)) {
    out.update(
        {{"kind", "binding"}, {"scope", b->scope}, {"selector", b->selector}, {"arg", b->arg}});
    out["value"] = nlohmann::json::parse(gin::to_json(b->value));
  } else if (const auto* block = std::get_if<gin::BlockStatement>(&s.what)) {
    out.update({{"kind", "block"}, {"scope", block->scope}, {"selector", block->selector}});
  } else if (const auto* import = std::get_if<gin::ImportStatement>(&s.what)) {
    out.update({{"kind", "import"}, {"module", import->module}, {"is_from", import->is_from}});
    out["alias"] = import->alias.empty() ? nlohmann::json() : nlohmann::json(import->alias);
  } else {
    out.update({{"kind", "include"}, {"file", std::get<gin::IncludeStatement>(s.what).file}});
  }
  return out;
}

void expect_statements(const Json& record, const std::string& text) {
  const std::vector<gin::Statement> got = gin::parse(text, "fixture");
  const std::vector<Json> want = record["statements"].items();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(canonical(statement_json(got[i])), canonical(want[i].raw()));
}

/// oraclelib, and the modules that the record's files import.
void register_modules(gin::Registry& r, const Json& record) {
  std::set<std::string> modules = {"oraclelib"};
  if (record.has("statements"))
    for (const Json& s : record["statements"].items())
      if (s["kind"].as_string() == "import" && s["module"].as_string().starts_with("oraclelib"))
        modules.insert(s["module"].as_string());
  for (const std::string& module : modules) testing::register_oraclelib(r, module);
}

void expect_roots(const gin::Config& config, const Json& record) {
  for (const auto& [root, want] : record["roots"].members())
    EXPECT_EQ(canonical(encode_result(config.call(root))), canonical(want.raw())) << root;
}

/// A written configuration has its dicts sorted; the order of keys is lost, as in gin.
nlohmann::json with_sorted_dicts(nlohmann::json j) {
  if (!j.is_structured()) return j;
  for (auto& item : j) item = with_sorted_dicts(std::move(item));
  if (j.is_object() && j.size() == 1 && j.contains("dict"))
    std::sort(j["dict"].begin(), j["dict"].end());
  return j;
}

void expect_same_roots(const gin::Config& config, const Json& record) {
  for (const auto& [root, want] : record["roots"].members())
    EXPECT_EQ(with_sorted_dicts(encode_result(config.call(root))).dump(),
              with_sorted_dicts(nlohmann::json::parse(want.raw().dump())).dump())
        << root;
}

/// Two plain imports of one module may be written either way (gin takes the first of a hash set).
bool imports_a_module_twice(const Json& record) {
  std::set<std::string> seen;
  for (const Json& s : record["statements"].items())
    if (s["kind"].as_string() == "import" && !seen.insert(s["module"].as_string()).second)
      return true;
  return false;
}

TEST_F(GinGolden, SnippetsParseResolveAndRun) {
  const Json records = Json::read(area() / "snippets.json");
  ASSERT_GT(records.size(), 0u);
  for (const Json& record : records.items()) {
    const std::string file = record["file"].as_string();
    SCOPED_TRACE(file);
    const std::string path = (area() / "snippets" / file).string();
    expect_statements(record, read_file(path));
    const std::vector<std::string> cli = record["cli"].as_strings();
    const std::vector<std::string> folders = {(area() / "snippets").string()};
    const gin::Resolved resolved = gin::resolve_files({path}, cli, gin::Finder(folders, {}));
    EXPECT_EQ(canonical(nlohmann::json::parse(gin::to_json(resolved))),
              canonical(record["resolved"].raw()));
    if (record.has("error")) continue;

    gin::Registry registry;
    register_modules(registry, record);
    gin::Config config(registry, {});
    config.load({{file}, cli, folders});
    expect_roots(config, record);
    if (imports_a_module_twice(record)) continue;
    EXPECT_EQ(config.config_str(), record["config_str"].as_string());
  }
}

TEST_F(GinGolden, WrittenConfigurationReadsBack) {
  const Json records = Json::read(area() / "snippets.json");
  for (const Json& record : records.items()) {
    SCOPED_TRACE(record["file"].as_string());
    if (record.has("error")) continue;
    gin::Registry registry;
    register_modules(registry, record);
    gin::Config again(registry, {});
    again.parse_text(record["config_str"].as_string(), "config_str");
    again.finalize();
    expect_same_roots(again, record);
    gin::Config first(registry, {});
    first.load({{record["file"].as_string()},
                record["cli"].as_strings(),
                {(area() / "snippets").string()}});
    gin::Config second(registry, {});
    second.parse_text(first.config_str(), "config_str");
    second.finalize();
    expect_same_roots(second, record);
    EXPECT_EQ(second.config_str(), first.config_str());
  }
}

TEST_F(GinGolden, RandomConfigurationsRun) {
  const std::vector<Json> records = Json::read_lines(area() / "random.jsonl");
  ASSERT_GT(records.size(), 0u);
  for (size_t i = 0; i < records.size(); ++i) {
    const Json& record = records[i];
    SCOPED_TRACE(::testing::Message() << "line " << i + 1 << "\n" << record["text"].as_string());
    if (record.has("statements")) expect_statements(record, record["text"].as_string());
    gin::Registry registry;
    testing::register_oraclelib(registry, "oraclelib");
    gin::Config config(registry, {});
    const auto run = [&] {
      config.parse_text(record["text"].as_string(), "random.gin");
      config.parse_bindings(record["cli"].as_strings());
      config.finalize();
      if (record.has("roots")) expect_roots(config, record);
    };
    if (record.has("error"))
      EXPECT_THROW(run(), Error);
    else
      run();
  }
}

/// Every quoted word of the reference's message is in ours.
void expect_same_names(const std::string& got, std::string want) {
  want = want.substr(0, want.find('\n'));
  const std::regex quoted("'([A-Za-z_][^']*)'");
  for (std::sregex_iterator it(want.begin(), want.end(), quoted), end; it != end; ++it) {
    const std::string word = (*it)[1].str();
    if (word == "DIR") continue;
    EXPECT_NE(got.find(word), std::string::npos) << word << " is missing in: " << got;
  }
}

TEST_F(GinGolden, MalformedFilesFailAtTheSamePlace) {
  const Json records = Json::read(area() / "malformed.json");
  ASSERT_GT(records.size(), 0u);
  for (const Json& record : records.items()) {
    const std::string file = record["file"].as_string();
    SCOPED_TRACE(file);
    gin::Registry registry;
    testing::register_oraclelib(registry, "oraclelib");
    gin::Config config(registry, {});
    int line = 0, column = -1;
    std::string message;
    try {
      config.load({{(area() / "snippets" / file).string()}, {}, {}});
      for (const std::string& root : record["roots"].as_strings()) config.call(root);
    } catch (const gin::ConfigError& e) {
      line = e.where().line;
      column = e.column();
      message = e.what();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      message = e.what();
    }
    if (!record.has("error")) {
      EXPECT_EQ(message, "");
      continue;
    }
    ASSERT_NE(message, "") << "no error";
    const Json want = record["error"];
    const std::string reference = want["message"].as_string();
    std::smatch at;
    if (!want["line"].is_null()) {
      EXPECT_EQ(line, want["line"].as_int()) << message;
      EXPECT_EQ(column, want["offset"].as_int()) << message;
    } else if (std::regex_search(reference, at, std::regex("gin\", line ([0-9]+)"))) {
      EXPECT_NE(message.find(file + ":" + at[1].str() + ":"), std::string::npos) << message;
      expect_same_names(message, reference);
    }
  }
}

TEST_F(GinGolden, CommandLinesAreRewritten) {
  const Json record = Json::read(area() / "cli_rewrite.json");
  for (const Json& c : record["cases"].items()) {
    const std::string argument = c[0].as_string();
    SCOPED_TRACE(argument);
    if (c[1].is_string()) {
      EXPECT_EQ(gin::rewrite_gin_argument(argument), c[1].as_string());
      continue;
    }
    try {
      gin::rewrite_gin_argument(argument);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), c[1]["message"].as_string());
    }
  }
}

}  // namespace
}  // namespace quintet
