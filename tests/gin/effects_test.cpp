// Bindings that nothing reads: told, refused, or met; and what acts since.

#include <gtest/gtest.h>

#include <set>

#include "apps/config/decoding_config.h"
#include "apps/config/evaluation_config.h"
#include "apps/config/gin_session.h"
#include "apps/config/ineffective.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

using Verdict = gin::Ineffective::Verdict;

/// A configuration of bindings alone.
class Effects : public ::testing::Test {
 protected:
  Effects() { register_everything(registry_); }
  std::unique_ptr<gin::Config> config(const std::string& text, bool lenient = false) {
    auto made =
        std::make_unique<gin::Config>(registry_, gin::Config::Options{.skip_unknown = lenient});
    made->parse_text(text, "my.gin");
    return made;
  }
  /// What check_effects prints; its error goes through.
  static std::string warnings(const gin::Config& config, const std::string& trained = "") {
    ::testing::internal::CaptureStderr();
    try {
      check_effects(config, trained);
    } catch (...) {
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    return ::testing::internal::GetCapturedStderr();
  }
  std::string warnings(const std::string& text) { return warnings(*config(text)); }
  std::string error(const std::string& text) {
    try {
      warnings(text);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return e.what();
    }
    return "no error";
  }
  gin::Registry registry_;
};

TEST_F(Effects, EveryRowOfTheTableNamesAParameter) {
  EXPECT_GT(ineffective_parameters().size(), 60u);
  for (const auto& [name, why] : ineffective_parameters()) {
    const size_t dot = name.rfind('.');
    const gin::Configurable* target = registry_.find(name.substr(0, dot));
    ASSERT_NE(target, nullptr) << name;
    EXPECT_NE(target->find(name.substr(dot + 1)), nullptr) << name;
    EXPECT_FALSE(why.reason.empty()) << name;
  }
}

TEST_F(Effects, OtherValuesThanTheDefaultAreReportedWithFileAndLine) {
  EXPECT_EQ(warnings("\ntrain.use_hardware_rng = True\n"),
            "warning: my.gin:2: t5x.train.train.use_hardware_rng = True has no effect: random "
            "numbers are Threefry's on every machine\n");
  EXPECT_EQ(warnings("train.use_hardware_rng = False\n"), "");
  EXPECT_NE(warnings("RNG = True\ntrain.use_hardware_rng = %RNG\n").find("= True has no effect"),
            std::string::npos);
  EXPECT_EQ(warnings("RNG = False\ntrain.use_hardware_rng = %RNG\n"), "");
}

TEST_F(Effects, WhatHappensAnywayIsNotReported) {
  EXPECT_EQ(warnings("train.summarize_config_fn = @gin_utils.summarize_gin_config\n"
                     "train.get_dataset_fn = @t5x.utils.get_dataset\n"
                     "SaveCheckpointConfig.save_dataset = True\n"
                     "SaveCheckpointConfig.state_transformation_fns = ()\n"
                     "utils.DatasetConfig.module = 't5.data.mixtures'\n"),
            "");
}

TEST_F(Effects, WhatWouldChangeResultsIsRefused) {
  for (const std::string binding :
       {"RestoreCheckpointConfig.checkpoint_manager_cls = @seqio.Task",
        "train.get_dataset_fn = @seqio.Task", "utils.DatasetConfig.module = 'my_tasks'",
        "evaluate.train_eval_get_dataset_fn = @seqio.Task",
        "TfdsDataSource.tfds_builder_kwargs = {}",
        "SaveCheckpointConfig.state_transformation_fns = [@seqio.Task]"})
    EXPECT_NE(error(binding).find("my.gin:1: "), std::string::npos) << binding;
}

TEST_F(Effects, WhatT5xHasNoMoreIsRefusedWithAnyValue) {
  EXPECT_NE(error("RestoreCheckpointConfig.use_gda = False").find("delete the line"),
            std::string::npos);
  EXPECT_NE(error("train.prepare_train_iter_fn = None").find("delete the line"), std::string::npos);
}

TEST_F(Effects, PartsOfFlaxformerAreComparedWithWhatTheNetworkHas) {
  const std::string parts = "flaxformer.components.", norm = parts + "layer_norm.T5LayerNorm",
                    stack = "flaxformer.architectures.moe.moe_architecture.SparseEncoder.";
  EXPECT_EQ(warnings(norm + ".epsilon = 1e-6\n" + parts + "dense.MlpBlock.dtype = 'float32'\n" +
                     parts + "embedding.Embed.axes = ('vocab', 'embed')\n" + stack +
                     "layer_norm_factory = @" + norm + "\n"),
            "");
  EXPECT_NE(error(norm + ".epsilon = 1e-5\n").find("is 1e-6"), std::string::npos);
  EXPECT_NE(error(stack + "layer_norm_factory = @seqio.Task\n").find("layer_norm.T5LayerNorm is"),
            std::string::npos);
  const std::string told =
      warnings("flaxformer.architectures.t5.t5_architecture.EncoderDecoder.dtype = 'float32'\n" +
               parts + "dense.MlpBlock.dtype = 'bfloat16'\n");
  EXPECT_NE(
      told.find("dtype = 'bfloat16' has no effect: the dtype of t5_architecture.EncoderDecoder"),
      std::string::npos)
      << told;
}

TEST_F(Effects, AllRefusedAreListedAndALenientReaderIsWarned) {
  const std::string both = "RestoreCheckpointConfig.use_gda = True\ntrain.use_jax_array = True\n";
  EXPECT_NE(error(both).find("use_jax_array"), std::string::npos);
  const std::string text = warnings(*config(both, true));
  EXPECT_NE(text.find("use_gda"), std::string::npos);
  EXPECT_NE(text.find("use_jax_array"), std::string::npos);
}

TEST_F(Effects, ARunsOwnFileIsNotWarnedOfAgain) {
  const auto bound = config("train.gc_period = 7\n");
  EXPECT_NE(warnings(*bound, "other.gin").find("my.gin:1"), std::string::npos);
  EXPECT_EQ(warnings(*bound, "my.gin"), "");
}

TEST_F(Effects, DecoderParamsWinOverTheDecodeFunctions) {
  const auto bound = config(
      "decoding.beam_search.alpha = 0.5\n"
      "models.EncoderDecoderModel.predict_batch_with_aux.decoder_params = {'alpha': 0.25}\n");
  ConfiguredModel model;
  model.name = "t5x.models.EncoderDecoderModel";
  model.config = bound.get();
  EXPECT_EQ(std::get<decoding::BeamOptions>(configured_decode_fn(model, false)).alpha, 0.25f);
  const auto wrong =
      config("models.EncoderDecoderModel.predict_batch_with_aux.decoder_params = {'alfa': 0.25}\n");
  model.config = wrong.get();
  EXPECT_THROW(configured_decode_fn(model, false), Error);
}

/// An evaluation of the tiny byte model with one more binding.
void read_evaluation(const std::string& binding) {
  EntryPoints bodies;
  bodies.evaluate = [](const gin::Arguments& args) -> gin::Value {
    evaluation_config_from(args);
    return {};
  };
  GinSession session({{"t5x/examples/t5/byt5/tiny.gin", "t5x/configs/runs/eval.gin"},
                      {"DROPOUT_RATE = 0.0", "MIXTURE_OR_TASK_NAME = 'number_words'",
                       "CHECKPOINT_PATH = '/tmp/none'", "EVAL_OUTPUT_DIR = '/tmp/none'", binding},
                      {}},
                     std::move(bodies), {});
  session.config().call("t5x.eval.evaluate");
}

std::string error_of(const std::string& binding) {
  try {
    read_evaluation(binding);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Evaluation, IsGivenWhatItReads) {
  EXPECT_NO_THROW(read_evaluation("utils.RestoreCheckpointConfig.strict = True"));
  EXPECT_NO_THROW(read_evaluation("utils.RestoreCheckpointConfig.assignment_map = [('a', 'b')]"));
  EXPECT_NO_THROW(read_evaluation("utils.RestoreCheckpointConfig.dtype = 'float16'"));
  EXPECT_NE(error_of("utils.RestoreCheckpointConfig.dtype = 'int8'").find("found 'int8'"),
            std::string::npos);
  EXPECT_NE(error_of("utils.RestoreCheckpointConfig.fallback_to_scratch = True")
                .find("wants an assignment_map"),
            std::string::npos);
  ::testing::internal::CaptureStderr();
  read_evaluation("utils.RestoreCheckpointConfig.restore_dataset = True");
  const std::string warned = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warned.find("restore_dataset = True has no effect"), std::string::npos);
}

/// What SaveCheckpointConfig() makes of bindings.
SaveCheckpointConfig saving(const std::string& text) {
  gin::Registry registry;
  register_everything(registry);
  gin::Config config(registry, gin::Config::Options{});
  config.parse_text(
      "from __gin__ import dynamic_registration\nfrom t5x import checkpoints\n"
      "from t5x import state_utils\nfrom t5x import utils\n" +
          text,
      "my.gin");
  config.finalize();
  auto made = config.call_as<SaveCheckpointConfig>("t5x.utils.SaveCheckpointConfig");
  apply_manager_bindings(made, config);
  return made;
}

TEST(Saving, CopiesAreChosenByNameOrByT5xsClass) {
  using Formats = std::vector<std::string>;
  const std::string by_class =
      "utils.SaveCheckpointConfig.checkpointer_cls = @checkpoints.Checkpointer\n";
  const std::string by_name = "utils.SaveCheckpointConfig.copies = ['hf', 't5x']\n";
  EXPECT_EQ(saving("").copies, Formats());
  EXPECT_EQ(saving(by_class).copies, Formats({"t5x"}));
  EXPECT_EQ(saving(by_name).copies, Formats({"hf", "t5x"}));
  EXPECT_EQ(saving(by_class + by_name).copies, Formats({"t5x", "hf"}));
  EXPECT_EQ(saving("utils.SaveCheckpointConfig.checkpointer_cls = "
                   "@checkpoints.SaveBestCheckpointer\n")
                .copies,
            Formats());
  for (const std::string wrong : {"'native'", "'h5'", "''"})
    EXPECT_THROW(saving("utils.SaveCheckpointConfig.copies = [" + wrong + "]\n"), Error) << wrong;
}

TEST(Saving, TheClassesThatKeepTheBestAreRead) {
  const std::string best =
      "utils.SaveCheckpointConfig.checkpointer_cls = "
      "@checkpoints.SaveBestCheckpointer\n";
  EXPECT_EQ(saving("").best.metric, "");
  EXPECT_EQ(
      saving("utils.SaveCheckpointConfig.checkpointer_cls = @checkpoints.Checkpointer").best.metric,
      "");
  const BestCheckpoints by_default = saving(best).best;
  EXPECT_EQ(by_default.metric, "train/accuracy");
  EXPECT_EQ(by_default.mode, "max");
  EXPECT_TRUE(by_default.keep_checkpoints_without_metrics);
  const BestCheckpoints bound = saving(best +
                                       "checkpoints.SaveBestCheckpointer:\n"
                                       "  metric_name_to_monitor = 'train/loss'\n"
                                       "  metric_mode = 'min'\n"
                                       "  keep_checkpoints_without_metrics = False\n"
                                       "  force_keep_period = 100\n")
                                    .best;
  EXPECT_EQ(bound.metric, "train/loss");
  EXPECT_EQ(bound.mode, "min");
  EXPECT_FALSE(bound.keep_checkpoints_without_metrics);
  EXPECT_EQ(bound.force_keep_period, 100);
  const std::string manager =
      "checkpoints.OrbaxCheckpointManagerInterface.force_keep_period = 10\n";
  EXPECT_EQ(saving(manager).best.force_keep_period, 10);
  EXPECT_EQ(saving(manager + "utils.SaveCheckpointConfig.checkpoint_manager_cls = "
                             "@checkpoints.OrbaxCheckpointManagerInterface")
                .best.force_keep_period,
            10);
  EXPECT_EQ(saving(manager + best).best.force_keep_period, 0);
  for (const std::string wrong : {"checkpoints.SaveBestCheckpointer.metric_mode = 'most'",
                                  "checkpoints.SaveBestCheckpointer.force_keep_period = 0"})
    EXPECT_THROW(saving(best + wrong), Error) << wrong;
  EXPECT_THROW(
      saving("utils.SaveCheckpointConfig.checkpointer_cls = @state_utils.apply_assignment_map"),
      Error);
}

}  // namespace
}  // namespace quintet
