// Every gin file of a t5x checkout (QUINTET_T5X=DIR) parses; if the fixtures hold gin/repo.jsonl
// (what gin-config made of that checkout), to the same imports, includes, macros and bindings.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/gin/resolved.h"
#include "runtime/gin/syntax/error.h"
#include "runtime/gin/syntax/parser.h"
#include "tests/gin/oraclelib.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

class T5xCheckout : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("QUINTET_T5X");
    if (folder == nullptr) GTEST_SKIP() << "QUINTET_T5X names no checkout of t5x";
    root_ = folder;
    ASSERT_TRUE(fs::is_directory(root_ / "t5x")) << root_ << " is no checkout of t5x";
    for (const auto& entry : fs::recursive_directory_iterator(root_))
      if (entry.path().extension() == ".gin") files_.push_back(entry.path());
    std::sort(files_.begin(), files_.end());
    ASSERT_GT(files_.size(), 0u);
  }
  gin::Finder finder() const { return gin::Finder({root_.string()}, {}); }

  fs::path root_;
  std::vector<fs::path> files_;
};

TEST_F(T5xCheckout, EveryFileParses) {
  for (const fs::path& file : files_)
    EXPECT_NO_THROW({
      const auto statements = gin::parse(read_file(file), file.string());
      EXPECT_GT(statements.size(), 0u) << file;
    }) << file;
  RecordProperty("files", static_cast<int>(files_.size()));
}

TEST_F(T5xCheckout, EveryFileResolvesAsInGin) {
  const fs::path oracle = testing::fixture_root() / "gin" / "repo.jsonl";
  if (!fs::exists(oracle))
    GTEST_SKIP() << oracle << " is not there (oracles/gen_gin.py --variant repo)";
  size_t compared = 0;
  for (const Json& record : Json::read_lines(oracle)) {
    const fs::path file = root_ / record["file"].as_string();
    SCOPED_TRACE(file);
    if (!fs::exists(file)) continue;
    ++compared;
    if (record.has("error")) {
      EXPECT_THROW(gin::resolve_files({file.string()}, {}, finder()), Error);
      continue;
    }
    auto got =
        nlohmann::json::parse(gin::to_json(gin::resolve_files({file.string()}, {}, finder())));
    for (const auto& [key, want] : record.members()) {
      if (key == "repo" || key == "file") continue;
      EXPECT_EQ(testing::canonical(got[key]), testing::canonical(want.raw())) << key;
    }
  }
  EXPECT_GT(compared, 0u);
}

// Values written by us are read by our parser as the same values.
TEST_F(T5xCheckout, EveryValueSurvivesWriting) {
  for (const fs::path& file : files_)
    for (const gin::Statement& s : gin::parse(read_file(file), file.string())) {
      const auto* b = std::get_if<gin::BindingStatement>(&s.what);
      if (b == nullptr) continue;
      EXPECT_EQ(gin::parse_value(b->value.repr()), b->value) << s.where.str();
    }
}

// A file of ours under a path of T5X binds the same names to the same values; what we leave out and what
// we add is listed.
TEST_F(T5xCheckout, OurFilesBindWhatTheirsBind) {
  const std::set<std::string> left_out = {
      "bindings utils.DatasetConfig.use_custom_packing_ops",
      "bindings train_script.train.use_jax_array",  // T5X's train() has no such parameter any more
      "bindings train_script.precompile.partitioner",  // of a module that this file does not import
      "bindings partitioning.PjitPartitioner.backend",   // precompile's, which has no effect
      "bindings utils.RestoreCheckpointConfig.use_gda",  // which T5X itself refuses now
      "bindings export_lib.save.native_lowering"};
  // Files of contrib/gpu include the runs that T5X copied there before these were added: defaults.
  const std::map<std::string, nlohmann::json> added = {
      {"macros TRAIN_STEPS_RELATIVE", nullptr},
      {"bindings train_script.train.relative_steps", nullptr},
      {"macros EVAL_PERIOD", 1000},
      {"bindings utils.RestoreCheckpointConfig.mode", "latest"},
      {"bindings export_lib.create_inference_function.output_len", nullptr},
      {"bindings export_lib.save.create_inference_function_fn",
       {{"call", false}, {"ref", "export_lib.create_inference_function"}}},
      {"bindings export_lib.save.create_polymorphic_shapes_fn",
       {{"call", false}, {"ref", "export_lib.create_batch_polymorphic_shapes"}}}};
  const fs::path ours = fs::path(QUINTET_SOURCE_DIR) / "models" / "configs";
  size_t compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(ours / "t5x")) {
    const std::string name = fs::relative(entry.path(), ours).string();
    // T5X's mt5/tiny.gin and byt5/tiny.gin include T5 1.1's base file and so have its vocabulary.
    if (entry.path().extension() != ".gin" || name.ends_with("t5/tiny.gin") ||
        !fs::exists(root_ / name))
      continue;
    // Those of umT5 include pretrain_deterministic.gin, which T5X lacks: what it binds here is ours.
    if (name.find("/umt5/pretrain_") != std::string::npos ||
        name.ends_with("/umt5/runs/pretraining_common.gin"))
      continue;
    SCOPED_TRACE(name);
    ++compared;
    const auto got = nlohmann::json::parse(gin::to_json(
        gin::resolve_files({entry.path().string()}, {}, gin::Finder({ours.string()}, {}))));
    const auto want = nlohmann::json::parse(
        gin::to_json(gin::resolve_files({(root_ / name).string()}, {}, finder())));
    for (const char* part : {"macros", "bindings"}) {
      for (const auto& [key, value] : want[part].items()) {
        if (left_out.contains(std::string(part) + " " + key)) continue;
        EXPECT_EQ(got[part].value(key, nlohmann::json("nothing")).dump(), value.dump()) << key;
      }
      for (const auto& [key, value] : got[part].items()) {
        const auto known = added.find(std::string(part) + " " + key);
        EXPECT_TRUE(want[part].contains(key) || (known != added.end() && known->second == value))
            << key << " = " << value;
      }
    }
  }
  EXPECT_GT(compared, 90u);
}

}  // namespace
}  // namespace quintet
