// The gin files we ship: they parse, resolve against everything registered, have the published
// sizes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/config/gin_session.h"
#include "apps/config/ineffective.h"
#include "models/modules.h"
#include "runtime/gin/resolved.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
const fs::path kConfigs = fs::path(QUINTET_SOURCE_DIR) / "models" / "configs";

std::vector<std::string> shipped(const std::string& below) {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs / below))
    if (entry.path().extension() == ".gin")
      out.push_back(fs::relative(entry.path(), kConfigs).string());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(ShippedGin, ParsesAndFindsItsIncludes) {
  const gin::Finder finder({}, {{"", kConfigs}});
  for (const std::string& file : shipped("")) {
    SCOPED_TRACE(file);
    const gin::Resolved resolved = gin::resolve_files({file}, {}, finder);
    EXPECT_TRUE(resolved.missing_includes.empty());
    EXPECT_FALSE(resolved.bindings.items().empty() && resolved.macros.items().empty());
  }
}

/// What a user has to say for a run.
const std::map<std::string, std::string> kValues = {
    {"DROPOUT_RATE", "0.1"},
    {"MIXTURE_OR_TASK_NAME", "'number_words'"},
    {"TASK_FEATURE_LENGTHS", "{'inputs': 16, 'targets': 16}"},
    {"TRAIN_STEPS", "3"},
    {"BATCH_SIZE", "8"},
    {"MODEL_DIR", "'/tmp/run'"},
    {"INITIAL_CHECKPOINT_PATH", "'/tmp/run/checkpoint_3'"},
    {"CHECKPOINT_PATH", "'/tmp/run/checkpoint_3'"},
    {"EVAL_OUTPUT_DIR", "'/tmp/eval'"},
    {"INFER_OUTPUT_DIR", "'/tmp/infer'"}};

/// The files, and a value for each macro that they leave open. Some use BATCH_SIZE,
/// INITIAL_CHECKPOINT_PATH and MIXTURE_OR_TASK_NAME without asking for them, as T5X's do.
gin::CommandLine complete(const std::vector<std::string>& files) {
  const gin::Resolved parsed = gin::resolve_files(files, {}, gin::Finder({}, {{"", kConfigs}}));
  gin::CommandLine line{files, {}, {}};
  for (const auto& [name, value] : parsed.macros.items())
    if (value == gin::Value(gin::Macro{"gin.REQUIRED"}))
      line.bindings.push_back(name + " = " +
                              (kValues.contains(name) ? kValues.at(name) : "'text'"));
  const auto is_read = [&](const std::string& name) {
    const auto& items = parsed.bindings.items();
    return std::any_of(items.begin(), items.end(), [&](const auto& binding) {
      return binding.second == gin::Value(gin::Macro{name});
    });
  };
  for (const char* name : {"BATCH_SIZE", "INITIAL_CHECKPOINT_PATH", "MIXTURE_OR_TASK_NAME"})
    if (parsed.macros.find(name) == nullptr && is_read(name))
      line.bindings.push_back(std::string(name) + " = " + kValues.at(name));
  return line;
}

bool is_example(const std::string& file) {
  return fs::path(file).parent_path().filename() == "examples";
}

/// Resolves, and what `quintet train` writes into config.gin reads back as the same.
void expect_resolves(const std::vector<std::string>& files) {
  GinSession session(complete(files));
  const std::string written = session.config().config_str();
  gin::Config again(session.registry(), {.roots = config_roots()});
  again.parse_text(written, "config.gin");
  again.finalize();
  EXPECT_EQ(again.config_str(), written);
}

/// Neither an example, which includes a run of its own, nor what is included behind a model.
bool is_model(const std::string& file) {
  const auto macros = gin::resolve_files({file}, {}, gin::Finder({}, {{"", kConfigs}})).macros;
  return !is_example(file) && macros.find("MODEL") != nullptr;
}

void expect_models_resolve(const std::string& models, const std::string& runs) {
  size_t pairs = 0;
  for (const std::string& model : shipped(models)) {
    if (!is_model(model)) continue;
    for (const std::string& run : shipped(runs)) {
      SCOPED_TRACE(model + " with " + run);
      expect_resolves({model, run});
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 100u);
}

TEST(ShippedGin, ModelsResolveWithEveryRun) {
  expect_models_resolve("t5x/examples", "t5x/configs/runs");
  expect_models_resolve("t5x/contrib/gpu/t5", "t5x/contrib/gpu/t5/configs/runs");
}

TEST(ShippedGin, ExamplesResolveAndNameKnownTasks) {
  size_t examples = 0;
  for (const std::string& file : shipped("t5x")) {
    if (!is_example(file)) continue;
    SCOPED_TRACE(file);
    ++examples;
    expect_resolves({file});
    gin::CommandLine line = complete({file});
    line.bindings.push_back(
        "seqio.SentencePieceVocabulary.sentencepiece_model_file = '" +
        (testing::fixture_root() / "seqio/vocab/bpe_nofallback.model").string() + "'");
    GinSession session(line);
    EXPECT_NO_THROW(session.task(gin::as<std::string>(
        session.config().evaluate("MIXTURE_OR_TASK_NAME"), {"MIXTURE_OR_TASK_NAME"})));
  }
  EXPECT_EQ(examples, 40u);
}

TEST(ShippedGin, AsksForNothingThatIsNotDone) {
  std::vector<std::vector<std::string>> runs;
  for (const std::string& file : shipped("quintet"))
    if (file != "quintet/switch_tiny.gin") runs.push_back({file});
  for (const std::string& file : shipped("t5x"))
    if (is_example(file)) runs.push_back({file});
  for (const std::string& run : shipped("t5x/configs/runs"))
    for (const char* model :
         {"t5x/examples/t5/t5_1_1/small.gin", "flaxformer/t5x/configs/t5/models/t5_1_1_small.gin"})
      runs.push_back({model, run});
  for (const std::string& run : shipped("t5x/contrib/moe/configs/runs"))
    runs.push_back({"flaxformer/t5x/configs/moe/models/switch_base.gin", run});
  for (const auto& files : runs) {
    SCOPED_TRACE(files.back());
    GinSession session(complete(files));
    for (const auto& b : gin::ineffective_bindings(session.config(), ineffective_parameters()))
      EXPECT_TRUE(b.name == "t5x.train.train.use_hardware_rng" ||
                  b.name == "t5x.export_lib.create_preprocessor_from_task.task_name")
          << b.name;
  }
}

// A macro that a file asks for may be given, used or not.
TEST(ShippedGin, LocalTinyShrinksAModelAndItsRun) {
  EXPECT_NO_THROW(
      expect_resolves({"t5x/examples/t5/t5_1_1/small.gin", "t5x/configs/runs/pretrain.gin",
                       "t5x/examples/t5/local_tiny.gin"}));
}

TEST(ShippedGin, LocalTinyShrinksARun) {
  for (const std::string folder : {"t5x/examples/t5", "t5x/contrib/gpu/t5"}) {
    SCOPED_TRACE(folder);
    const std::vector<std::string> files = {folder + "/t5_1_1/examples/small_c4_pretrain.gin",
                                            folder + "/local_tiny.gin"};
    expect_resolves(files);
    GinSession session(complete(files));
    const auto bound = [&](const std::string& name) {
      return gin::as<int64_t>(session.config().evaluate(name), {name});
    };
    const std::string network =
        folder == "t5x/examples/t5" ? "t5x.examples.t5" : "t5x.contrib.gpu.t5";
    EXPECT_EQ(bound(network + ".network.T5Config.emb_dim"), 8);
    EXPECT_EQ(bound("TRAIN_STEPS"), 3);
    EXPECT_NO_THROW(session.config().call("t5x.trainer.Trainer"));
  }
}

TEST(ShippedGin, ModelsWithExpertsResolveWithEveryRun) {
  for (const std::string& model : shipped("flaxformer/t5x/configs/moe/models"))
    for (const std::string& run : shipped("t5x/contrib/moe/configs/runs")) {
      if (model.ends_with("/base_model.gin")) continue;  // what all families share is not a model
      SCOPED_TRACE(model + " with " + run);
      EXPECT_NO_THROW(GinSession session(complete({model, run})));
    }
}

TEST(ShippedGin, OurOwnRunsResolve) {
  for (const std::string& file : shipped("quintet")) {
    if (file == "quintet/switch_tiny.gin")
      continue;  // replaces the model of the run that includes it
    SCOPED_TRACE(file);
    EXPECT_NO_THROW(GinSession session(complete({file})));
  }
}

struct Size {
  std::string file;
  int64_t vocab, emb, heads, encoder, decoder, head, mlp;
};

// arXiv:1910.10683, 2002.05202 (T5 1.1), 2010.11934 (mT5), 2105.13626 (ByT5).
const std::vector<Size> kSizes = {{"t5_1_0/small", 32128, 512, 8, 6, 6, 64, 2048},
                                  {"t5_1_0/base", 32128, 768, 12, 12, 12, 64, 3072},
                                  {"t5_1_0/large", 32128, 1024, 16, 24, 24, 64, 4096},
                                  {"t5_1_0/3B", 32128, 1024, 32, 24, 24, 128, 16384},
                                  {"t5_1_0/11B", 32128, 1024, 128, 24, 24, 128, 65536},
                                  {"t5_1_1/small", 32128, 512, 6, 8, 8, 64, 1024},
                                  {"t5_1_1/base", 32128, 768, 12, 12, 12, 64, 2048},
                                  {"t5_1_1/large", 32128, 1024, 16, 24, 24, 64, 2816},
                                  {"t5_1_1/xl", 32128, 2048, 32, 24, 24, 64, 5120},
                                  {"t5_1_1/xxl", 32128, 4096, 64, 24, 24, 64, 10240},
                                  {"mt5/small", 250112, 512, 6, 8, 8, 64, 1024},
                                  {"mt5/base", 250112, 768, 12, 12, 12, 64, 2048},
                                  {"mt5/large", 250112, 1024, 16, 24, 24, 64, 2816},
                                  {"mt5/xl", 250112, 2048, 32, 24, 24, 64, 5120},
                                  {"mt5/xxl", 250112, 4096, 64, 24, 24, 64, 10240},
                                  {"byt5/small", 384, 1472, 6, 12, 4, 64, 3584},
                                  {"byt5/base", 384, 1536, 12, 18, 6, 64, 3968},
                                  {"byt5/large", 384, 1536, 16, 36, 12, 64, 3840},
                                  {"byt5/xl", 384, 2560, 32, 36, 12, 64, 6720},
                                  {"byt5/xxl", 384, 4672, 64, 36, 12, 64, 12352}};

TEST(ShippedGin, ModelsHaveThePublishedSizes) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.file);
    GinSession session(complete({"t5x/examples/t5/" + size.file + ".gin"}));
    const auto bound = [&](const std::string& name) {
      return gin::as<int64_t>(session.config().evaluate("t5x.examples.t5.network.T5Config." + name),
                              {name});
    };
    EXPECT_EQ(bound("vocab_size"), size.vocab);
    EXPECT_EQ(bound("emb_dim"), size.emb);
    EXPECT_EQ(bound("num_heads"), size.heads);
    EXPECT_EQ(bound("num_encoder_layers"), size.encoder);
    EXPECT_EQ(bound("num_decoder_layers"), size.decoder);
    EXPECT_EQ(bound("head_dim"), size.head);
    EXPECT_EQ(bound("mlp_dim"), size.mlp);
  }
}

TEST(ShippedGin, FlaxformersDenseModelsAreThoseOfT5x) {
  const std::string folder = "flaxformer/t5x/configs/t5/models";
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.file);
    const size_t slash = size.file.find('/');
    const std::string family = size.file.substr(0, slash);
    const std::string file = fmt::format("{}/{}_{}.gin", folder, family == "t5_1_0" ? "t5" : family,
                                         size.file.substr(slash + 1));
    GinSession session(complete({file}));
    const auto module =
        gin::as<T5Module>(session.config().evaluate("ARCHITECTURE"), {"ARCHITECTURE"});
    const T5Config& c = module.config;
    EXPECT_EQ((std::vector{c.vocab_size, c.emb_dim, c.num_heads, c.num_encoder_layers,
                           c.num_decoder_layers, c.head_dim, c.mlp_dim}),
              (std::vector{size.vocab, size.emb, size.heads, size.encoder, size.decoder, size.head,
                           size.mlp}));
    EXPECT_EQ(c.logits_via_embedding, family == "t5_1_0");
    EXPECT_EQ(c.mlp_activations.size(), family == "t5_1_0" ? 1U : 2U);
    EXPECT_TRUE(c.masks_padding);
  }
  EXPECT_EQ(shipped(folder).size(), kSizes.size() + 1);  // and what all families share
  expect_resolves({folder + "/byt5_small.gin", "t5x/configs/runs/pretrain.gin"});
}

struct SparseSize {
  std::string file;
  int64_t emb, heads, head, mlp, layers, sparse, experts, chosen;
  bool tied, extra_mlp;
};

// arXiv:2101.03961 (Switch), 2202.08906 (ST-MoE), 2202.09368 (expert choice); flaxformer's files.
const std::vector<SparseSize> kSparseSizes = {
    {"switch_base", 768, 12, 64, 3072, 12, 6, 128, 1, true, false},
    {"switch_large", 1024, 16, 64, 4096, 24, 12, 128, 1, true, false},
    {"switch_xxl", 4096, 64, 64, 10240, 24, 12, 128, 1, false, false},
    {"switch_c", 2080, 30, 64, 6144, 15, 15, 2048, 1, false, false},
    {"st_moe_base", 768, 12, 64, 2048, 12, 3, 16, 2, false, true},
    {"st_moe_32b", 5120, 64, 128, 20480, 24, 6, 64, 2, false, true},
    {"tokens_choose_base", 768, 12, 64, 2048, 12, 3, 64, 2, false, false},
    {"tokens_choose_xxl", 4096, 64, 64, 10240, 24, 6, 64, 2, false, false},
    {"experts_choose_base", 768, 12, 64, 2048, 12, 6, 64, 2, false, false}};

TEST(ShippedGin, ModelsWithExpertsHaveThePublishedSizes) {
  for (const SparseSize& size : kSparseSizes) {
    SCOPED_TRACE(size.file);
    GinSession session(complete({"flaxformer/t5x/configs/moe/models/" + size.file + ".gin"}));
    const T5Config c =
        gin::as<T5Module>(session.config().evaluate("ARCHITECTURE"), {"ARCHITECTURE"}).config;
    EXPECT_EQ(c.vocab_size, 32128);
    EXPECT_EQ((std::vector{c.emb_dim, c.num_heads, c.head_dim, c.num_encoder_layers,
                           c.num_decoder_layers}),
              (std::vector{size.emb, size.heads, size.head, size.layers, size.layers}));
    for (const StackConfig* stack : {&c.encoder, &c.decoder}) {
      const SparseStack& sparse = stack->sparse;
      EXPECT_EQ((std::vector{sparse.num_sparse_layers, sparse.moe.num_experts, sparse.moe.mlp_dim}),
                (std::vector{size.sparse, size.experts, size.mlp}));
      EXPECT_EQ(stack->sparse_layers.extra_mlp, size.extra_mlp);
    }
    EXPECT_EQ(c.decoder.sparse.moe.router.num_selected_experts, size.chosen);
    EXPECT_EQ(c.encoder.sparse.moe.router.kind == Router::experts_choose,
              size.file.starts_with("experts_choose"));
    EXPECT_EQ(c.logits_via_embedding, size.tied);
    EXPECT_EQ(c.init_scale, 0.1);
  }
}

/// What files of t5x name that this version does not have: Mesh TensorFlow's operative
/// configurations, and what later issues bring. A new entry needs a reason; one that is no longer
/// met should go.
const std::vector<std::string> kUnknown = {
    "mtf_tiny_t5",
    "'t5.data.mixtures'",
    "'t5x.checkpoints'",
    "scripts_gpu.seqio_tasks'",
    "'t5x.contrib.moe.",
    "'moe_partitioning.",
    "'infer_script.",
    "'train_script.precompile': 'train_script' was not provided",
    "'dummy_wikipedia_seqio'",
    "'scale_attn_logits'",
    "'scan_layers'",
    "'remat_policy'",
    "umt5/tydiqa_base.gin",
    "umt5/architectures/encoder_decoder.gin"};  // wrong alone in T5X too

/// Full names and values of a file and of what it includes from `roots` or `search_paths`.
nlohmann::json resolved(const gin::Registry& registry, const std::string& file,
                        gin::Config::Options options) {
  gin::Config config(registry, std::move(options));
  config.parse_file(file);
  return nlohmann::json::parse(gin::to_json(gin::resolve(config)));
}

// gin_t5x_test compares the names as written; this, what the imports make of them.
TEST(ShippedGin, NamesOfOurFilesMeanWhatT5xsMean) {
  const char* root = std::getenv("QUINTET_T5X");
  if (root == nullptr) GTEST_SKIP() << "QUINTET_T5X names no checkout of t5x";
  gin::Registry registry;
  register_everything(registry);
  size_t compared = 0;
  for (const std::string& file : shipped("t5x")) {
    if (!fs::exists(fs::path(root) / file) || file.ends_with("t5/tiny.gin")) continue;
    // Those of umT5 include pretrain_deterministic.gin, which T5X lacks, or bind a module that they do not import.
    if (file.find("/umt5/pretrain_") != std::string::npos ||
        file.ends_with("/umt5/tydiqa_base.gin") ||
        file.ends_with("/umt5/runs/pretraining_common.gin"))
      continue;
    SCOPED_TRACE(file);
    const auto ours = resolved(registry, (kConfigs / file).string(), {.roots = config_roots()});
    const auto theirs = resolved(registry, (fs::path(root) / file).string(),
                                 {.search_paths = {root}, .skip_unknown = true});
    ++compared;
    for (const auto& [name, value] : theirs["bindings"].items()) {
      if (name.ends_with("save.native_lowering")) continue;  // without effect here
      if (ours["bindings"].contains(name))
        EXPECT_EQ(ours["bindings"][name], value) << name;
      else
        EXPECT_TRUE(name.ends_with("use_custom_packing_ops") || name.ends_with("use_jax_array") ||
                    name.ends_with("PjitPartitioner.backend") || name.ends_with("use_gda"))
            << name;
    }
  }
  EXPECT_GT(compared, 90u);
}

TEST(ShippedGin, FilesOfT5xResolveButForListedNames) {
  const char* root = std::getenv("QUINTET_T5X");
  if (root == nullptr) GTEST_SKIP() << "QUINTET_T5X names no checkout of t5x";
  gin::Registry registry;
  register_everything(registry);
  size_t files = 0, complete_files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".gin") continue;
    SCOPED_TRACE(entry.path());
    ++files;
    gin::Config config(registry, {.search_paths = {root}, .skip_unknown = true});
    try {
      config.parse_file(entry.path().string());
    } catch (const Error& e) {  // the one include that t5x itself lacks
      EXPECT_NE(std::string(e.what()).find("pretrain_deterministic.gin"), std::string::npos)
          << e.what();
      continue;
    }
    complete_files += config.unknown().empty() ? 1 : 0;
    for (const std::string& unknown : config.unknown())
      EXPECT_TRUE(std::any_of(kUnknown.begin(), kUnknown.end(), [&](const std::string& known) {
        return unknown.find(known) != std::string::npos;
      })) << unknown;
  }
  std::printf("%zu files of t5x, %zu with no unknown name\n", files, complete_files);
  EXPECT_GT(complete_files, 50u);
}

}  // namespace
}  // namespace quintet
