// No parameter of T5X, flaxformer, seqio or t5 is accepted in silence: a gin file's binding of it acts, is told
// of, or is refused. tests/gin/t5x_parameters.txt has all their names (tests/oracles/list_gin_parameters.py).
// That a parameter acts shows a value that nothing expects: whoever reads it says so.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "apps/config/decoding_config.h"
#include "apps/config/evaluation_config.h"
#include "apps/config/gin_flags.h"
#include "apps/config/gin_session.h"
#include "apps/config/ineffective.h"
#include "apps/config/inference_config.h"
#include "apps/config/train_config.h"
#include "apps/export/export_source.h"
#include "apps/input/run_data.h"
#include "apps/input/run_vocabularies.h"
#include "apps/plan/precompile.h"
#include "data/configurables/configurables.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

struct Unexpected {};

/// Tasks to be made of sources and preprocessors, and what else the files leave open.
constexpr const char* kBound = R"(
DROPOUT_RATE = 0.0
MIXTURE_OR_TASK_NAME = 'number_words'
TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}
TRAIN_STEPS = 3
BATCH_SIZE = 8
MODEL_DIR = '/tmp/run'
INITIAL_CHECKPOINT_PATH = '/tmp/run'
CHECKPOINT_PATH = '/tmp/run'
EVAL_OUTPUT_DIR = '/tmp/eval'
INFER_OUTPUT_DIR = '/tmp/infer'
MODEL_OUTPUT_DIR = '/tmp/export/1'
MODEL_NAME = 'a'
VOCABULARY = @seqio.ByteVocabulary()
utils.RestoreCheckpointConfig.fallback_to_scratch = True
utils.RestoreCheckpointConfig.assignment_map = [('a', None)]
t5x.eval.evaluate.fallback_init_rng = 1
t5x.infer.infer.fallback_init_rng = 1
utils.get_training_eval_datasets.eval_steps = 1
t5x.eval.evaluate.training_evaluator_cls = @t5x.trainer.Trainer
adafactor.HParamMap.rules = ()
gin_utils.sum_fn.var1 = 1
gin_utils.sum_fn.var2 = 1
gin_utils.bool_fn.var1 = 1
gin_utils.string_split_fn.text = 'a,b'
gin_utils.string_split_fn.separator = ','
infer.create_task_from_tfexample_file.paths = '/tmp/a'
infer.create_task_from_tfexample_file.file_type = 'tfrecord'
infer.create_task_from_tfexample_file.inputs_key = 'inputs'
infer.create_task_from_tfexample_file.targets_key = None
infer.create_task_from_tfexample_file.features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
seqio.Feature.vocabulary = %VOCABULARY
t5x.utils.DatasetConfig:
  split = 'train'
  batch_size = 8
  shuffle = False
  seed = 0
models.get_input_vocabulary.model = %MODEL
models.get_output_vocabulary.model = %MODEL
t5x.models.DecoderOnlyModel.module = @t5x.examples.decoder_only.network.DecoderWrapper()
t5x.models.DecoderOnlyModel.vocabulary = %VOCABULARY
t5x.models.DecoderOnlyModel.optimizer_def = %OPTIMIZER
t5x.examples.decoder_only.network.DecoderWrapper.config = @t5x.examples.decoder_only.network.TransformerConfig()
t5x.examples.decoder_only.network.TransformerConfig.vocab_size = 384
t5x.examples.scalable_t5.network.T5Config.vocab_size = 384
t5x.examples.scalable_t5.network.Transformer.config = @t5x.examples.scalable_t5.network.T5Config()
t5x.contrib.gpu.t5.network.T5Config.vocab_size = 384
t5x.contrib.gpu.t5.network.Transformer.config = @t5x.contrib.gpu.t5.network.T5Config()
t5x.contrib.moe.checkpoints.UpcycleCheckpointer.num_experts = 2
t5x.contrib.moe.trainer.MoeTrainer.num_expert_partitions = 1
t5x.optimizers.chain.transformations = []
seqio.metrics.LegacyMetric.empty.metric_fn = @t5.evaluation.metrics.squad
seqio.metrics.PassthroughLegacyMetric.from_metric_fn.metric_fn = @t5.evaluation.metrics.squad
t5x.optimizers.OptaxWrapper.optax_optimizer = @optax.identity()
t5x.optimizers.MultiOptimizer.traversals_and_optimizers = []
trainer.EarlyStoppingAction.metric = ('a', 'loss')
trainer.EarlyStoppingAction.mode = 'min'
trainer.TerminateOnNanAction.task = 'train'
)";
/// Of seqio and t5: what the others of a configurable's parameters must be for it to be called.
constexpr const char* kDataBound = R"(
seqio.FunctionDataSource.dataset_fn = @quintet.data.NumberWordsDataSource
seqio.FunctionDataSource.splits = ['train']
seqio.FileDataSource.read_file_fn = @tf.data.TextLineDataset
seqio.FileDataSource.split_to_filepattern = {'train': '/tmp/a'}
seqio.TextLineDataSource.split_to_filepattern = {'train': '/tmp/a'}
seqio.TFExampleDataSource.split_to_filepattern = {'train': '/tmp/a'}
seqio.TFExampleDataSource.feature_description = None
seqio.ProtoDataSource.split_to_filepattern = {'train': '/tmp/a'}
seqio.ProtoDataSource.decode_proto_fn = @quintet.data.ProcessDecoder()
quintet.data.ProcessDecoder.command = ['a']
seqio.Task.name = 'a'
seqio.Task.source = @seqio.FunctionDataSource()
seqio.Task.output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
seqio.Mixture.name = 'm'
seqio.Mixture.tasks = ['number_words']
seqio.Mixture.default_rate = 1.0
seqio.MixtureRegistry.mixtures = [@seqio.Mixture()]
seqio.helpers.mixture_or_task_with_new_vocab.mixture_or_task = 'number_words'
seqio.helpers.mixture_or_task_with_new_vocab.new_mixture_or_task_name = 'new'
seqio.helpers.mixture_or_task_with_new_vocab.new_vocab = @seqio.ByteVocabulary()
seqio.helpers.mixture_or_task_with_truncated_data.mixture_or_task = 'number_words'
seqio.helpers.mixture_or_task_with_truncated_data.new_mixture_or_task_name = 'new'
seqio.helpers.mixture_or_task_with_truncated_data.split_sizes = {'train': 1}
seqio.helpers.mixture_with_missing_task_splits_removed.mixture_name = 'number_words'
seqio.helpers.mixture_with_missing_task_splits_removed.split = 'train'
seqio.helpers.mixture_with_missing_task_splits_removed.new_mixture_name = 'new'
seqio.helpers.TruncatedDatasetProvider.child = @seqio.FunctionDataSource()
seqio.helpers.TruncatedDatasetProvider.split_sizes = {'train': 1}
seqio.experimental.add_fully_cached_task.task_name = 'number_words'
seqio.experimental.add_fully_cached_task.sequence_length = {'inputs': 8}
seqio.experimental.add_fully_cached_mixture.mixture_name = 'number_words'
seqio.experimental.add_fully_cached_mixture.sequence_length = {'inputs': 8}
seqio.experimental.add_task_with_sentinels.task_name = 'number_to_words'
seqio.experimental.FewshotDataSource.original_source = @seqio.FunctionDataSource()
seqio.experimental.FewshotDataSource.num_shots = 1
seqio.TfdsSplit.dataset = 'a'
seqio.TfdsSplit.split = 'train'
seqio.preprocessors.preprocess_tensorflow_examples.inputs_format = 'a'
seqio.preprocessors.preprocess_tensorflow_examples.targets_format = 'a'
seqio.mixing_rate_num_examples.task = @seqio.Task()
seqio.mixing_rate_num_characters.task = @seqio.Task()
seqio.PassThroughVocabulary.size = 8
seqio.UnigramVocabulary.unigrams = ['a']
seqio.SentencePieceVocabulary.sentencepiece_model_file = '/tmp/a'
seqio.PartialCodepointVocabulary.codepoints = [97]
seqio.vocabularies.PartialCodepointVocabulary.create_from_file.vocab_file = '/tmp/a'
seqio.BertWordPieceVocabulary.vocab_lookup_table = '/tmp/a'
t5.data.postprocessors.string_label_to_class_id.label_classes = ['a']
t5.data.preprocessors.translate.source_language = 'a'
t5.data.preprocessors.translate.target_language = 'a'
t5.data.preprocessors.multi_translate.source_language = 'a'
t5.data.preprocessors.multi_translate.target_language = 'a'
t5.data.preprocessors.summarize.article_key = 'a'
t5.data.preprocessors.summarize.summary_key = 'a'
t5.data.preprocessors.glue.benchmark_name = 'a'
t5.data.preprocessors.glue.label_names = ['a']
t5.data.preprocessors.rank_classification.inputs_fn = @quintet.data.texts_of
t5.data.preprocessors.rank_classification.targets_fn = @quintet.data.texts_of
t5.data.preprocessors.rank_classification.is_correct_fn = @quintet.data.one_hot_of
quintet.data.texts_of.key = 'a'
quintet.data.one_hot_of.key = 'a'
quintet.data.one_hot_of.num_classes = 2
t5.data.preprocessors.split_tokens.max_tokens_per_segment = 8
t5.data.preprocessors.random_spans_helper:
  inputs_length = 8
  noise_density = 0.1
  mean_noise_span_length = 3.0
  extra_tokens_per_span_inputs = 1
  extra_tokens_per_span_targets = 1
t5.data.preprocessors.denoise:
  noise_density = 0.1
  noise_mask_fn = @t5.data.preprocessors.iid_noise_mask
  inputs_fn = @t5.data.preprocessors.drop_noise_tokens
t5.data.rate_num_examples.task = @seqio.Task()
t5.data.rate_unsupervised.task = @seqio.Task()
t5.evaluation.metrics.deduplicate_metric.metric_fn = @t5.evaluation.metrics.accuracy
t5.evaluation.metrics.mean_group_metric.metric_fn = @t5.evaluation.metrics.accuracy
t5.evaluation.metrics.sklearn_metrics_wrapper.metric_str = 'matthews_corrcoef'
t5.evaluation.metrics.mean_multiclass_f1.num_classes = 2
)";
constexpr const char* kMoeBound = R"(
flaxformer.components.dense.DenseGeneral.features = 8
flaxformer.architectures.moe.moe_layers.MoeLayer.router = @flaxformer.architectures.moe.routing.TokensChooseMaskedRouter()
flaxformer.architectures.moe.routing.TokensChooseMaskedRouter.batch_prioritized_routing = False
flaxformer.architectures.moe.routing.TokensChooseScatterRouter:
  router_weights = @flaxformer.architectures.moe.routing.RouterWeights()
  jitter_noise = 0.0
  dtype = 'float32'
  ignore_padding_tokens = False
  num_selected_experts = 1
  batch_prioritized_routing = False
flaxformer.architectures.moe.routing.ExpertsChooseMaskedRouter:
  router_weights = @flaxformer.architectures.moe.routing.RouterWeights()
  jitter_noise = 0.0
  dtype = 'float32'
  ignore_padding_tokens = False
flaxformer.components.attention.dense_attention.MultiQueryDotProductAttention:
  num_heads = 2
  head_dim = 4
flaxformer.architectures.t5.parallel_fused_decoder.ParallelFusedDecoderLayer:
  self_attention = @fused/flaxformer.components.attention.dense_attention.MultiQueryDotProductAttention()
  mlp = @fused/flaxformer.components.dense.MlpBlock()
fused/flaxformer.components.attention.dense_attention.MultiQueryDotProductAttention.out_features = 8
fused/flaxformer.components.dense.MlpBlock.precomputed_intermediates = True
flaxformer.architectures.t5.t5_architecture.Encoder:
  num_layers = 1
  layer_factory = @flaxformer.architectures.t5.t5_architecture.EncoderLayer
flaxformer.architectures.t5.t5_architecture.Decoder:
  num_layers = 1
  layer_factory = @flaxformer.architectures.t5.t5_architecture.DecoderLayer
  shared_relative_position_bias_factory = @flaxformer.components.relative_position_biases.RelativePositionBiases
  token_embedder_factory = @flaxformer.components.embedding.Embed
flaxformer.architectures.t5.t5_architecture.DecoderOnly.decoder_factory = @only/flaxformer.architectures.t5.t5_architecture.Decoder
only/flaxformer.architectures.t5.t5_architecture.DecoderLayer.encoder_decoder_attention = None
t5x.contrib.moe.models.MoeDecoderOnlyModel.module = @t5x.examples.decoder_only.network.DecoderWrapper()
t5x.contrib.moe.models.MoeDecoderOnlyModel.vocabulary = %VOCABULARY
t5x.contrib.moe.models.MoeDecoderOnlyModel.optimizer_def = %OPTIMIZER
)";

/// Files whose bindings a call of a configurable may need, by the beginning of its name.
std::string files_for(const std::string& name) {
  const std::string byt5 = "include 't5x/examples/t5/byt5/tiny.gin'\n";
  if (name.starts_with("flaxformer.") || name.starts_with("t5x.contrib.moe."))
    return "include 'flaxformer/t5x/configs/moe/models/switch_tiny.gin'\n"
           "include 't5x/contrib/moe/configs/runs/pretrain.gin'\n";
  if (name.starts_with("t5x.eval.")) return byt5 + "include 't5x/configs/runs/eval.gin'\n";
  if (name.starts_with("t5x.infer.")) return byt5 + "include 't5x/configs/runs/infer.gin'\n";
  for (const char* run : {"export", "precompile"})
    if (name.starts_with(std::string("t5x.") + run))
      return byt5 + fmt::format("include 't5x/configs/runs/{}.gin'\n", run);
  return byt5 + "include 't5x/configs/runs/finetune.gin'\n";
}

struct Names {
  std::string configurable;
  std::vector<std::string> parameters;
};

std::vector<Names> names_of_t5x() {
  std::ifstream file(std::string(QUINTET_SOURCE_DIR) + "/tests/gin/t5x_parameters.txt");
  std::vector<Names> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Names names;
    words >> names.configurable;
    names.configurable.pop_back();  // the colon
    for (std::string word; words >> word;) names.parameters.push_back(word);
    all.push_back(std::move(names));
  }
  return all;
}

EntryPoints readers() {
  EntryPoints bodies;
  bodies.train = [](const gin::Arguments& args) -> gin::Value {
    train_config_from(args);
    return {};
  };
  bodies.evaluate = [](const gin::Arguments& args) -> gin::Value {
    evaluation_config_from(args);
    return {};
  };
  bodies.infer = [](const gin::Arguments& args) -> gin::Value {
    inference_config_from(args);
    return {};
  };
  bodies.save = [](const gin::Arguments& args) -> gin::Value {
    export_config_from(args);
    return {};
  };
  bodies.precompile = [](const gin::Arguments& args) -> gin::Value {
    precompile_config_from(args);
    return {};
  };
  return bodies;
}

/// What a run reads of a model that it was given.
void read_model(const gin::Config& config, const std::string& name) {
  const auto model = gin::as<std::shared_ptr<ConfiguredModel>>(config.call(name), {name});
  const bool decoder_only = model->model->spec().decoder_only();
  vocabularies_of(*model);
  converter_for(*model, {});
  configured_decode_fn(*model, decoder_only);
  const gin::Arguments predict = config.arguments(name + ".predict_batch_with_aux");
  predict.get<std::optional<bool>>("return_all_decodes");
  if (!decoder_only) predict.get<bool>("prompt_with_targets");
  config.arguments(name + ".score_batch").get<bool>("return_intermediates");
}

/// Reads all that a run reads of a configurable.
void read(const gin::Config& config, const gin::Configurable& target) {
  const std::string& name = target.name;
  if (name.starts_with("t5x.decoding.")) {
    ConfiguredModel model;
    model.name = "t5x.models.EncoderDecoderModel";
    model.config = &config;
    configured_decode_fn(model, name.ends_with(".temperature_sample"));
  } else if (name == "t5x.infer.write_inferences_to_file") {
    config.call("t5x.infer.infer");
  } else if (const size_t at = name.find("Model."); at != std::string::npos) {
    read_model(config, name.substr(0, at + 5));
  } else if (name.ends_with("Model")) {
    read_model(config, name);
  } else if (name == "seqio.loggers.JSONLogger") {
    config.call("seqio.evaluation.Evaluator");
  } else if (name == "t5.data.preprocessors.sentinel_id") {
    config.call("t5.data.preprocessors.noise_token_to_sentinel");
  } else if (name == "seqio.dataset_providers.Mixture") {
    data::make_task_registry(config);
  } else if (name != "t5x.checkpoints.Checkpointer") {
    config.call(name);
  }
  if (name == "t5x.train.train" || name == "t5x.infer.infer") verifies_vocabs(config, name);
}

class AcceptedNames : public ::testing::Test {
 protected:
  AcceptedNames() {
    register_everything(registry_, readers());
    registry_.add("tests.unexpected", {}, [](const gin::Arguments&) {
      return gin::Value::object(std::make_shared<Unexpected>(), "tests.unexpected");
    });
  }
  /// What reading a configurable says if one more thing is bound; empty: nothing.
  std::string error(const gin::Configurable& target, const std::string& binding) {
    gin::Config config(registry_, gin::Config::Options{.roots = config_roots()});
    const std::string files = files_for(target.name);
    config.parse_text(files + kBound + kDataBound +
                          (files.find("moe") != std::string::npos ? kMoeBound : "") + binding,
                      "my.gin");
    config.finalize();
    try {
      read(config, target);
    } catch (const Bug&) {
      throw;
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  gin::Registry registry_;
};

TEST_F(AcceptedNames, ActOrAreInTheTable) {
  int unknown = 0, refused = 0, listed = 0, act = 0;
  for (const auto& [name, parameters] : names_of_t5x()) {
    const gin::Configurable* target = registry_.find(name);
    // Of bool_fn any value is one.
    if (target == nullptr || name == "t5x.gin_utils.bool_fn") {
      ++unknown;
      continue;
    }
    for (const std::string& parameter : parameters) {
      if (!target->accepts(parameter)) {
        ++refused;
      } else if (ineffective_parameters().contains(target->name + "." + parameter)) {
        ++listed;
      } else {
        ++act;
        const std::string said =
            error(*target, fmt::format("{}.{} = @tests.unexpected()\n", target->name, parameter));
        EXPECT_NE(said.find(parameter), std::string::npos)
            << target->name << "." << parameter << " is bound in silence: " << said;
      }
    }
    EXPECT_EQ(error(*target, "").find("Required bindings"), std::string::npos) << name;
  }
  EXPECT_GT(unknown, 400);
  EXPECT_GT(refused, 100);
  EXPECT_GT(listed, 120);
  EXPECT_GT(act, 300);
}

TEST_F(AcceptedNames, RequiredObjectsAreNotNone) {
  const std::string train = "t5x.train.train", rates = "seqio.utils.mixing_rate_num_",
                    data = "seqio.dataset_providers.";
  const std::vector<std::pair<std::string, std::string>> objects = {
      {train, "model"},
      {train, "train_dataset_cfg"},
      {train, "checkpoint_cfg"},
      {train, "partitioner"},
      {train, "trainer_cls"},
      {train, "total_steps"},
      {train, "eval_steps"},
      {"t5x.trainer.Trainer", "learning_rate_fn"},
      {"t5x.models.EncoderDecoderModel", "module"},
      {"t5x.examples.t5.network.Transformer", "config"},
      {data + "Task", "source"},
      {data + "Task", "output_features"},
      {data + "Feature", "vocabulary"},
      {rates + "examples", "task"},
      {rates + "characters", "task"},
      {"t5.data.utils.rate_num_examples", "task"},
      {"t5.data.preprocessors.denoise", "noise_mask_fn"},
  };
  const auto expect = [this](const std::string& name, const std::string& parameter,
                             const std::string& value) {
    const std::string path = name + "." + parameter;
    const std::string said = error(*registry_.find(name), fmt::format("{} = {}\n", path, value));
    EXPECT_TRUE(said.starts_with("my.gin:")) << path << ": " << said;
    EXPECT_NE(said.find(path), std::string::npos) << said;
    EXPECT_NE(said.find("found None"), std::string::npos) << said;
  };
  for (const auto& [name, parameter] : objects) expect(name, parameter, "None");
  // Of what a training needs and an evaluation does not.
  for (const std::string path : {"t5x.models.EncoderDecoderModel.optimizer_def",
                                 "train/t5x.utils.DatasetConfig.task_feature_lengths",
                                 "train_eval/t5x.utils.DatasetConfig.task_feature_lengths"}) {
    const std::string said = error(*registry_.find(train), path + " = None\n");
    EXPECT_TRUE(said.starts_with("my.gin:")) << path << ": " << said;
    EXPECT_NE(said.find(", found "), std::string::npos) << said;
  }
  expect(data + "Task", "preprocessors", "[None]");
}

}  // namespace
}  // namespace quintet
