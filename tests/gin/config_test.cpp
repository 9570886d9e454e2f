// Calls, scopes, macros, includes, completeness: what a Config does with its bindings.

#include "runtime/gin/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/gin/syntax/error.h"

namespace quintet::gin {
namespace {

struct T5Config {
  int64_t vocab_size = 0, emb_dim = 512;
  std::string dtype = "float32";
  std::vector<std::string> mlp_activations = {"relu"};
  std::optional<double> z_loss;
};
struct Network {
  T5Config config;
};
struct Vocabulary {
  int64_t size;
};

std::vector<std::pair<std::string, std::optional<std::string>>> axis_rules(
    int64_t dims, std::optional<int64_t> extra) {
  return {{"batch", "data"},
          {"embed", dims == 2 ? std::optional<std::string>("model") : std::nullopt},
          {"extra", extra ? std::optional(std::to_string(*extra)) : std::nullopt}};
}

class GinConfig : public ::testing::Test {
 protected:
  GinConfig() {
    registry.add_struct<T5Config>("t5x.examples.t5.network.T5Config")
        .required("vocab_size", &T5Config::vocab_size)
        .arg("emb_dim", &T5Config::emb_dim)
        .arg("dtype", &T5Config::dtype)
        .arg("mlp_activations", &T5Config::mlp_activations)
        .arg("z_loss", &T5Config::z_loss)
        .accepted("remat");
    registry.add_function(
        "t5x.examples.t5.network.Transformer",
        [](const T5Config& config) { return std::make_shared<Network>(Network{config}); },
        {"config"});
    registry.add_function("t5x.partitioning.standard_logical_axis_rules", axis_rules,
                          {{"dims", 1}, "extra"});
    registry.add_function(
        "seqio.Vocabulary",
        [](int64_t size) { return std::make_shared<Vocabulary>(Vocabulary{size}); },
        {{"size", 10}});
    registry.add("lib.identity", {"x"}, [](const Arguments& a) { return a.value("x"); });
    registry.add("lib.scope", {},
                 [](const Arguments& a) -> Value { return to_value(a.config().current_scope()); });
    registry.add("lib.add", {"a", {"b", 1}, {"c", 0}}, [](const Arguments& a) -> Value {
      return a.get<int64_t>("a") + 10 * a.get<int64_t>("b") + 100 * a.get<int64_t>("c");
    });
    registry.add("lib.kwargs", {"**"},
                 [](const Arguments& a) -> Value { return to_value(a.names()); });
    registry.add("lib.apply", {"fn", "values"}, [](const Arguments& a) -> Value {
      const auto fn = a.get<std::function<int64_t(int64_t)>>("fn");
      List out;
      for (int64_t v : a.get<std::vector<int64_t>>("values")) out.push_back(fn(v));
      return out;
    });
    registry.add("t5x.models.Model", {"module"},
                 [](const Arguments& a) { return a.value("module"); });
    registry.add_method("t5x.models.Model.predict", {{"num_decodes", 1}, "alpha"});
    registry.add_constant("lib.enums.Layout.MIXED", 7);
  }

  Value run(const std::string& text, const std::string& root,
            std::vector<std::string> bindings = {}) {
    Config config(registry, {});
    config.parse_text(text, "x.gin");
    config.parse_bindings(bindings);
    config.finalize();
    return config.call(root);
  }
  std::string error(const std::string& text, const std::string& root = "",
                    std::vector<std::string> bindings = {}) {
    try {
      Config config(registry, {});
      config.parse_text(text, "x.gin");
      config.parse_bindings(bindings);
      config.finalize();
      if (!root.empty()) config.call(root);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  static bool has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return true;
    ADD_FAILURE() << "'" << part << "' is missing in:\n" << text;
    return false;
  }

  Registry registry;
};

TEST_F(GinConfig, BuildsStructsWithTheirDefaults) {
  Config config(registry, {});
  config.parse_text(
      "T5Config.vocab_size = 32128\nT5Config.mlp_activations = ('gelu', 'linear')\nT5Config.z_loss "
      "= 1e-4\n"
      "T5Config.remat = 'full'\nTransformer.config = @T5Config()\n",
      "x.gin");
  config.finalize();
  const auto network = config.call_as<std::shared_ptr<Network>>("network.Transformer");
  EXPECT_EQ(network->config.vocab_size, 32128);
  EXPECT_EQ(network->config.emb_dim, 512);
  EXPECT_EQ(network->config.mlp_activations, (std::vector<std::string>{"gelu", "linear"}));
  EXPECT_EQ(network->config.z_loss, 1e-4);
}

TEST_F(GinConfig, CallsFunctionsWithNamedAndOptionalParameters) {
  EXPECT_EQ(run("standard_logical_axis_rules.dims = 2", "standard_logical_axis_rules").repr(),
            "[('batch', 'data'), ('embed', 'model'), ('extra', None)]");
  EXPECT_EQ(run("standard_logical_axis_rules.extra = 5", "standard_logical_axis_rules").repr(),
            "[('batch', 'data'), ('embed', None), ('extra', '5')]");
}

TEST_F(GinConfig, ListsAllThatIsMissingAtACall) {
  EXPECT_TRUE(has(error("", "T5Config"),
                  "Required bindings for `t5x.examples.t5.network.T5Config` not provided in "
                  "config: vocab_size"));
  EXPECT_TRUE(has(error("", "lib.apply"), "fn, values"));
  EXPECT_TRUE(
      has(error("identity.x = @s/T5Config()", "identity"), "s/t5x.examples.t5.network.T5Config"));
}

TEST_F(GinConfig, NamesThePlaceOfAWrongType) {
  const std::string text =
      error("\nT5Config.vocab_size = 'many'\nTransformer.config = @T5Config()", "Transformer");
  EXPECT_TRUE(
      has(text,
          "x.gin:2: t5x.examples.t5.network.T5Config.vocab_size: expected int, found str 'many'"));
  EXPECT_TRUE(has(text, "In call to configurable 't5x.examples.t5.network.Transformer'"));
  EXPECT_TRUE(
      has(error("Transformer.config = @Vocabulary()", "Transformer"), "made by seqio.Vocabulary"));
}

TEST_F(GinConfig, ExplicitArgumentsWinOverBindings) {
  Config config(registry, {});
  config.parse_text("add.a = 1\nadd.b = 2\ns/add.c = 3", "x.gin");
  EXPECT_EQ(config.call("add"), Value(21));
  EXPECT_EQ(config.call("add", {{"b", 5}}), Value(51));
  EXPECT_EQ(config.call("s/add"), Value(321));
  EXPECT_THROW(config.call("add", {{"d", 5}}), Error);
}

TEST_F(GinConfig, InnerScopesWin) {
  const std::string text = "add.a = 1\na/add.a = 2\na/b/add.a = 3\nb/add.a = 4\n";
  EXPECT_EQ(
      run(text + "identity.x = [@add(), @a/add(), @a/b/add(), @b/add(), @c/a/add()]", "identity")
          .repr(),
      "[11, 12, 13, 14, 11]");
}

TEST_F(GinConfig, AReferenceWithAScopeReplacesTheScope) {
  EXPECT_EQ(run("identity.x = @scope()", "a/identity").repr(), "['a']");
  EXPECT_EQ(run("identity.x = @b/c/scope()", "a/identity").repr(), "['b', 'c']");
  EXPECT_EQ(run("identity.x = %M\nM = @scope()", "a/identity").repr(),
            "['M']");  // as gin: a macro is a scope
}

TEST_F(GinConfig, UncalledReferencesAreFunctions) {
  EXPECT_EQ(run("apply.fn = @s/add\napply.values = [1, 2]\ns/add.b = 3", "apply").repr(),
            "[31, 32]");
  EXPECT_EQ(run("apply.fn = @add\napply.values = [1]\nadd.b = 4\nadd.a = 9", "apply").repr(),
            "[41]");
  EXPECT_EQ(run("apply.fn = @add\napply.values = [1]\ns/add.b = 5", "s/apply").repr(), "[51]");
  EXPECT_TRUE(has(error("apply.fn = @add()\napply.values = [1]\nadd.a = 1", "apply"), "@name"));
}

TEST_F(GinConfig, EveryUseOfACallMakesANewObject) {
  Config config(registry, {});
  config.parse_text(
      "V = @Vocabulary()\nS = @one/singleton()\none/singleton.constructor = @Vocabulary\n"
      "identity.x = [%V, %V, %S, %S]",
      "x.gin");
  config.finalize();
  const auto v = config.call_as<std::vector<std::shared_ptr<Vocabulary>>>("identity");
  EXPECT_NE(v[0], v[1]);
  EXPECT_EQ(v[2], v[3]);
}

TEST_F(GinConfig, MethodsReadTheirParameters) {
  Config config(registry, {});
  config.parse_text(
      "models.Model.predict.num_decodes = 4\nbeam/Model.predict.alpha = 0.6\nModel.module = 1",
      "x.gin");
  config.finalize();
  EXPECT_EQ(config.arguments("beam/t5x.models.Model.predict").get<int64_t>("num_decodes"), 4);
  EXPECT_EQ(config.arguments("beam/t5x.models.Model.predict").get<double>("alpha"), 0.6);
  EXPECT_THROW(config.arguments("t5x.models.Model.predict"), Error);  // alpha
  EXPECT_THROW(config.call("t5x.models.Model.predict", {{"alpha", 1.0}}), Error);
  EXPECT_NE(config.config_str().find("# Parameters for Model.predict:"), std::string::npos);
}

TEST_F(GinConfig, TakesAnyNameWhereThereAreKwargs) {
  EXPECT_EQ(run("kwargs.one = 1\nkwargs.two = 2", "kwargs").repr(), "['one', 'two']");
}

TEST_F(GinConfig, ConstantsAreFoundBySuffix) {
  EXPECT_EQ(run("identity.x = [%Layout.MIXED, %lib.enums.Layout.MIXED]", "identity").repr(),
            "[7, 7]");
}

TEST_F(GinConfig, HelpersOfT5xWork) {
  EXPECT_EQ(run("sum_fn.var1 = 2\nsum_fn.var2 = 0.5", "sum_fn"), Value(2.5));
  EXPECT_EQ(run("sum_fn.var1 = 'a'\nsum_fn.var2 = 'b'", "sum_fn"), Value("ab"));
  EXPECT_EQ(run("bool_fn.var1 = []", "bool_fn"), Value(false));
  EXPECT_EQ(
      run("string_split_fn.text = 'a:b:c'\nstring_split_fn.separator = ':'", "string_split_fn")
          .repr(),
      "['a', 'b', 'c']");
  EXPECT_EQ(run("string_split_fn.text = 'a:b:c'\nstring_split_fn.separator = "
                "':'\nstring_split_fn.index = -1\n"
                "string_split_fn.maxsplit = 1",
                "string_split_fn"),
            Value("b:c"));
}

TEST_F(GinConfig, OneErrorListsAllProblems) {
  const std::string text = error(
      "A = %gin.REQUIRED\nadd.a = %gin.REQUIRED\nadd.b = [%NOE]\nONE = 1\nNOPE = 2\n"
      "add.d = 3\nad.a = 3\nidentity.x = @scop()\nlib.kwarg:\n  x = 1\n  y = 2\n");
  EXPECT_TRUE(has(text, "x.gin:1: A set to `%gin.REQUIRED` but not subsequently overridden"));
  EXPECT_TRUE(has(text, "x.gin:2: lib.add.a set to `%gin.REQUIRED`"));
  EXPECT_TRUE(
      has(text,
          "x.gin:3: lib.add.b uses the macro %NOE, which nothing defines; give it a value, e.g. "
          "--gin.NOE=...; did you mean 'ONE'?") ||
      has(text, "did you mean 'NOPE'?"));
  EXPECT_TRUE(has(text, "x.gin:6: Configurable 'add' doesn't have a parameter named 'd'"));
  EXPECT_TRUE(has(text, "x.gin:7: No configurable matching 'ad'; did you mean 'add'?"));
  EXPECT_TRUE(has(
      text,
      "x.gin:8: No configurable matching 'scop'; did you mean 'scope'? in reference '@scop()'"));
  EXPECT_TRUE(
      has(text, "x.gin:9: No configurable matching 'lib.kwarg'; did you mean 'lib.kwargs'?"));
}

TEST_F(GinConfig, UnknownNamesCanBeSkipped) {
  Config config(registry, {.skip_unknown = true});
  config.parse_text(
      "import nothing.known\nnothing.known.f.x = 1\nadd.a = 1\nidentity.x = @missing()", "x.gin");
  config.finalize();
  EXPECT_EQ(config.call("add"), Value(11));
  EXPECT_EQ(config.unknown().size(), 2u);
  EXPECT_THROW(config.call("identity"), Error);
}

TEST_F(GinConfig, EndlessConfigurationsAreErrors) {
  EXPECT_TRUE(has(error("A = %B\nB = [%A]\nidentity.x = %A", "identity"), "%A -> %B -> %A"));
  EXPECT_TRUE(has(error("identity.x = @identity()", "identity"), "maximum recursion depth"));
  EXPECT_TRUE(has(error("identity.x = %M\nM = @identity()", "identity"), "macros without end"));
}

TEST_F(GinConfig, MacrosThatMultiplyAreBounded) {
  std::string text = "M0 = 1\nidentity.x = %M40\n";
  for (int i = 1; i <= 40; ++i) {
    const std::string previous = "%M" + std::to_string(i - 1);
    text += "M" + std::to_string(i) + " = [" + previous + ", " + previous + "]\n";
  }
  EXPECT_TRUE(has(error(text, "identity"), "expands to more than"));
  EXPECT_EQ(run("identity.x = [%M, %M]\nM = [1, 2]", "identity").repr(), "[[1, 2], [1, 2]]");
}

TEST_F(GinConfig, BindingsOfTheCommandLineComeLast) {
  EXPECT_EQ(run("N = 1\nadd.a = %N", "add", {"N = 2", "N = 3", "lib.add.b = 0"}), Value(3));
  const std::string text = error("NAME = 'x'", "", {"NAME = abc"});
  EXPECT_TRUE(has(text, "binding \"NAME = abc\":1"));
  EXPECT_TRUE(has(text, "a string needs quotes of its own"));
}

TEST_F(GinConfig, TellsWhatWasNeverRead) {
  Config config(registry, {});
  config.parse_text("add.a = %N\nN = 1\nUNUSED = 2\ns/add.a = 3\nscope/kwargs.x = 1", "x.gin");
  config.finalize();
  config.call("add");
  EXPECT_EQ(config.unused(), (std::vector<std::string>{"x.gin:3: UNUSED", "x.gin:4: s/lib.add.a",
                                                       "x.gin:5: scope/lib.kwargs.x"}));
}

TEST_F(GinConfig, WritesWhatCallsUsed) {
  Config config(registry, {});
  config.parse_text("add.a = %N\nN = 1\nUNUSED = 2\nT5Config.vocab_size = 5\nT5Config.emb_dim = 8",
                    "x.gin");
  config.finalize();
  config.call("add", {{"c", 2}});
  const std::string rule = "# " + std::string(78, '=') + "\n";
  EXPECT_EQ(
      config.operative_config_str(),
      "# Macros:\n" + rule + "N = 1\n\n# Parameters for add:\n" + rule + "add.a = %N\nadd.b = 1\n");
  EXPECT_EQ(
      Config::markdown(config.operative_config_str()),
      "#### Macros:\n\n    N = 1\n    \n#### Parameters for add:\n\n    add.a = %N\n    add.b = 1");
}

TEST_F(GinConfig, QueriesBindingsAsWrittenAndEvaluated) {
  Config config(registry, {});
  config.parse_text("N = 3\ns/add.a = [%N]", "x.gin");
  EXPECT_EQ(config.query("s/add.a")->repr(), "[%N]");
  EXPECT_EQ(config.evaluate("s/add.a").repr(), "[3]");
  EXPECT_EQ(config.query("N")->repr(), "3");
  EXPECT_EQ(config.query("add.a"), nullptr);
  EXPECT_THROW(config.evaluate("M"), Error);
}

TEST_F(GinConfig, CanBeCalledFromManyThreads) {
  Config config(registry, {});
  config.parse_text(
      "add.a = %N\nN = 1\na/add.b = 2\nS = @one/singleton()\none/singleton.constructor = "
      "@Vocabulary\n"
      "identity.x = %S",
      "x.gin");
  config.finalize();
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<Vocabulary>> made(8);
  for (size_t t = 0; t < made.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        EXPECT_EQ(config.call(t % 2 == 0 ? "add" : "a/add"), Value(t % 2 == 0 ? 11 : 21));
      made[t] = config.call_as<std::shared_ptr<Vocabulary>>("identity");
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& v : made) EXPECT_EQ(v, made[0]);
}

class GinFiles : public GinConfig {
 protected:
  GinFiles()
      : folder(std::filesystem::path(::testing::TempDir()) / ("gin_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder / "shipped" / "t5x");
  }
  ~GinFiles() override { std::filesystem::remove_all(folder); }
  std::string write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }
  std::filesystem::path folder;
};

TEST_F(GinFiles, AreFoundOnSearchPathsThenBesideThenAmongOurs) {
  write("shipped/t5x/base.gin", "add.a = 1\n");
  write("user/t5x/base.gin", "add.a = 2\n");
  const std::string main = write("run/main.gin", "include 't5x/base.gin'\ninclude 'near.gin'\n");
  write("run/near.gin", "add.b = 0\n");
  const std::vector<ConfigRoot> roots = {{"t5x", folder / "shipped" / "t5x"}};
  Config ours(registry, {.roots = roots});
  ours.load({{main}, {}, {}});
  EXPECT_EQ(ours.call("add"), Value(1));
  Config theirs(registry, {.roots = roots});
  theirs.load({{main}, {}, {(folder / "user").string()}});
  EXPECT_EQ(theirs.call("add"), Value(2));
  Config direct(registry, {.roots = roots});
  direct.parse_file("t5x/base.gin");
  EXPECT_EQ(direct.call("add"), Value(11));
}

TEST_F(GinFiles, TellTheChainOfIncludes) {
  write("c.gin", "x = \n");
  write("b.gin", "\ninclude 'c.gin'\n");
  const std::string a = write("a.gin", "include 'b.gin'\n");
  try {
    Config(registry, {}).parse_file(a);
    FAIL();
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "c.gin:1: Unable to parse value."));
    EXPECT_TRUE(has(e.what(), "included from " + (folder / "b.gin").string() + ":2"));
    EXPECT_TRUE(has(e.what(), "included from " + a + ":1"));
  }
}

TEST_F(GinFiles, MustExistAndNotIncludeThemselves) {
  const std::string a = write("a.gin", "include 'b.gin'\n");
  write("b.gin", "include 'a.gin'\n");
  EXPECT_THROW(Config(registry, {}).parse_file(a), Error);
  EXPECT_THROW(Config(registry, {}).parse_file("nowhere.gin"), Error);
  EXPECT_THROW(Config(registry, {}).parse_file(folder.string()), Error);
  EXPECT_THROW(Config(registry, {}).parse_file(""), Error);
}

TEST_F(GinFiles, StandForPythonModules) {
  write("my/tasks.gin", "add.a = 4\n");
  const std::string main = write("main.gin", "from my import tasks\nadd.b = 0\n");
  Config config(registry, {});
  config.load({{main}, {}, {folder.string()}});
  EXPECT_EQ(config.call("add"), Value(4));
  const std::string missing = write("missing.gin", "import my.other_tasks\n");
  try {
    Config other(registry, {});
    other.load({{missing}, {}, {folder.string()}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "missing.gin:1: No module named 'my.other_tasks'"));
    EXPECT_TRUE(has(e.what(), "my/other_tasks.gin"));
  }
}

TEST(GinCommandLine, TakesOurFlagsAndLeavesTheRest) {
  std::vector<std::string> args = {"--gin_file=a.gin",
                                   "pos",
                                   "--gin.X=1=2",
                                   "--gin_file",
                                   "b.gin",
                                   "--model_dir=/m",
                                   "--gin_bindings=Y = 'z'",
                                   "--gin_search_paths=p,q",
                                   "--",
                                   "--gin.Z=1"};
  const CommandLine line = extract_command_line(args);
  EXPECT_EQ(line.files, (std::vector<std::string>{"a.gin", "b.gin"}));
  EXPECT_EQ(line.bindings, (std::vector<std::string>{"X = 1=2", "Y = 'z'"}));
  EXPECT_EQ(line.search_paths, (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(args, (std::vector<std::string>{"pos", "--model_dir=/m", "--", "--gin.Z=1"}));
  std::vector<std::string> cut = {"--gin_file"};
  EXPECT_THROW(extract_command_line(cut), Error);
}

}  // namespace
}  // namespace quintet::gin
