// Names: imports of a file decide with dynamic registration, suffixes without it.

#include <gtest/gtest.h>

#include <set>

#include "runtime/gin/config.h"
#include "runtime/gin/syntax/error.h"

namespace quintet::gin {
namespace {

class GinNames : public ::testing::Test {
 protected:
  GinNames() {
    for (const char* name :
         {"t5x.examples.t5.network.T5Config", "t5x.contrib.gpu.t5.network.T5Config",
          "t5x.utils.DatasetConfig", "t5x.train.train", "t5x.infer.infer", "seqio.Feature",
          "t5x.models.EncoderDecoderModel", "seqio.preprocessors.rekey"})
      registry.add(name, {{"x", 0}}, [name](const Arguments& a) -> Value {
        return std::string(name) + "=" + a.value("x").repr();
      });
    registry.add_alias("seqio.dataset_providers.Feature", "seqio.Feature");
    registry.add_alias("t5.data.preprocessors.rekey", "seqio.preprocessors.rekey");
    registry.add_module("t5.data.mixtures", [this] { ++mixtures; });
  }
  /// Names that `text` binds, one a line, sorted.
  std::string resolve(const std::string& text, std::vector<std::string> bindings = {},
                      std::vector<std::string> mains = {"t5x.train"}) {
    Config config(registry, {.main_modules = std::move(mains)});
    config.parse_text(text, "x.gin");
    config.parse_bindings(bindings);
    config.finalize();
    written = config.config_str();
    std::set<std::string> names;
    for (const std::string& line : config.unused()) names.insert(line.substr(line.find(": ") + 2));
    std::string out;
    for (const std::string& name : names) out += name + "\n";
    return out;
  }
  std::string error(const std::string& text) {
    try {
      resolve(text);
    } catch (const Error& e) {
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  Registry registry;
  int mixtures = 0;
  std::string written;
  const std::string dynamic = "from __gin__ import dynamic_registration\n";
};

TEST_F(GinNames, ImportsGiveTheirAliases) {
  EXPECT_EQ(resolve(dynamic + "from t5x import utils\nutils.DatasetConfig.x = 1"),
            "t5x.utils.DatasetConfig.x\n");
  EXPECT_EQ(resolve(dynamic + "from t5x import utils as u\nu.DatasetConfig.x = 1"),
            "t5x.utils.DatasetConfig.x\n");
  EXPECT_EQ(resolve(dynamic + "import t5x.utils\nt5x.utils.DatasetConfig.x = 1"),
            "t5x.utils.DatasetConfig.x\n");
  EXPECT_EQ(resolve(dynamic + "import t5x.utils as u\ns/u.DatasetConfig.x = 1"),
            "s/t5x.utils.DatasetConfig.x\n");
  EXPECT_EQ(
      resolve(dynamic + "from seqio import dataset_providers\ndataset_providers.Feature.x = 1"),
      "seqio.Feature.x\n");
  EXPECT_EQ(resolve(dynamic + "from t5x.contrib.gpu.t5 import network\nnetwork.T5Config.x = 1"),
            "t5x.contrib.gpu.t5.network.T5Config.x\n");
}

TEST_F(GinNames, MainIsTheVerbThatRuns) {
  const std::string text = dynamic + "import __main__ as script\n";
  EXPECT_EQ(resolve(text + "script.train.x = 1"), "t5x.train.train.x\n");
  EXPECT_EQ(resolve(text + "script.infer.x = 1", {}, {"t5x.train", "t5x.infer"}),
            "t5x.infer.infer.x\n");
  EXPECT_NE(error(text + "script.infer.x = 1").find("No configurable matching 'script.infer'"),
            std::string::npos);
  EXPECT_EQ(resolve(text + "script.train.x = 1", {"script.train.x = 2", "train.x = 3"}),
            "t5x.train.train.x\n");
  EXPECT_NE(written.find("import __main__ as script\n"), std::string::npos);
  EXPECT_NE(written.find("script.train.x = 3"), std::string::npos);
}

TEST_F(GinNames, DynamicFilesNeedTheirImports) {
  EXPECT_NE(error(dynamic + "utils.DatasetConfig.x = 1")
                .find("'utils' was not provided by an import statement in this "
                      "file; add `from t5x import utils`"),
            std::string::npos);
  EXPECT_NE(error(dynamic + "from t5x import utils\nutils.DatsetConfig.x = 1")
                .find("did you mean 'utils.DatasetConfig'?"),
            std::string::npos);
  EXPECT_NE(error("import seqio\n" + dynamic).find("before any other modules"), std::string::npos);
  EXPECT_NE(error(dynamic + "import seqio as gin\n").find("reserved"), std::string::npos);
  EXPECT_NE(error("from __gin__ import other\n").find("Unrecognized __gin__ feature"),
            std::string::npos);
}

TEST_F(GinNames, SuffixesMustBeUnique) {
  EXPECT_EQ(resolve("utils.DatasetConfig.x = 1\nDatasetConfig.x = 2"),
            "t5x.utils.DatasetConfig.x\n");
  EXPECT_EQ(resolve("rekey.x = 1\nt5.data.preprocessors.rekey.x = 2"),
            "seqio.preprocessors.rekey.x\n");
  const std::string text = error("network.T5Config.x = 1");
  EXPECT_NE(text.find("Ambiguous selector 'network.T5Config', matches"), std::string::npos) << text;
  EXPECT_NE(text.find("t5x.contrib.gpu.t5.network.T5Config"), std::string::npos) << text;
}

TEST_F(GinNames, ImportsAndUseDecideBetweenEqualSuffixes) {
  EXPECT_EQ(resolve("from t5x.contrib.gpu.t5 import network\nnetwork.T5Config.x = 1"),
            "t5x.contrib.gpu.t5.network.T5Config.x\n");
  EXPECT_EQ(resolve(dynamic + "from t5x.examples.t5 import network\nnetwork.T5Config.x = 1",
                    {"network.T5Config.x = 2"}),
            "t5x.examples.t5.network.T5Config.x\n");
}

TEST_F(GinNames, AnUnknownModuleIsReportedOnce) {
  const std::string text =
      error(dynamic + "from elsewhere import network\nnetwork.T5Config.x = 1\nnetwork.Other.x = 2");
  EXPECT_NE(text.find("No module named 'elsewhere.network'"), std::string::npos);
  EXPECT_EQ(text.find("problems"), std::string::npos) << text;
  Config config(registry, {.skip_unknown = true});
  config.parse_text(dynamic + "from elsewhere import network\nnetwork.T5Config.x = 1", "base.gin");
  config.parse_text("network.T5Config.x = 2\nnetwork.Other.x = 3",
                    "small.gin");  // by suffix: that same network
  EXPECT_EQ(config.unknown().size(), 1u);
}

TEST_F(GinNames, ModulesAreKnownByWhatTheyHold) {
  resolve(
      "import t5.data.mixtures\nfrom t5.data import mixtures\nimport t5x\nimport "
      "t5x.examples.t5\nimport seqio.preprocessors");
  EXPECT_EQ(mixtures, 2);
  EXPECT_NE(error("import t5x.util").find("No module named 't5x.util'"), std::string::npos);
}

TEST_F(GinNames, WrittenNamesReadBack) {
  for (const std::string& text :
       {dynamic +
            "from t5x.examples.t5 import network\nfrom t5x.contrib.gpu.t5 import network as gpu\n"
            "import seqio\nimport t5x.models\nnetwork.T5Config.x = "
            "@gpu.T5Config()\nseqio.Feature.x = @seqio.preprocessors.rekey\n"
            "t5x.models.EncoderDecoderModel.x = 1",
        std::string(
            "t5x.examples.t5.network.T5Config.x = 1\ngpu.t5.network.T5Config.x = @Feature()\n")}) {
    const std::string names = resolve(text), first = written;
    EXPECT_EQ(resolve(first), names) << first;
    EXPECT_EQ(written, first);
  }
}

TEST_F(GinNames, TwoModulesOfOneNameAreKeptApart) {
  Config config(registry, {});
  config.parse_text(dynamic + "from t5x.examples.t5 import network\nnetwork.T5Config.x = 1",
                    "a.gin");
  config.parse_text(dynamic + "from t5x.contrib.gpu.t5 import network\nnetwork.T5Config.x = 2",
                    "b.gin");
  config.finalize();
  Config again(registry, {});
  again.parse_text(config.config_str(), "c.gin");
  again.finalize();
  EXPECT_EQ(again.call("t5x.examples.t5.network.T5Config"),
            Value("t5x.examples.t5.network.T5Config=1"));
  EXPECT_EQ(again.call("t5x.contrib.gpu.t5.network.T5Config"),
            Value("t5x.contrib.gpu.t5.network.T5Config=2"));
}

}  // namespace
}  // namespace quintet::gin
