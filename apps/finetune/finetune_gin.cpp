#include "apps/finetune/finetune_gin.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "apps/finetune/finetune_metrics.h"
#include "apps/finetune/finetune_tasks.h"
#include "data/preprocessors/text_preprocessors.h"
#include "runtime/base/check.h"
#include "runtime/gin/syntax/value.h"

namespace quintet {
namespace {

constexpr const char* kImports = R"(from __gin__ import dynamic_registration

import __main__ as train_script
from flax import traverse_util
import optax
import seqio
from quintet import data
from t5.evaluation import metrics
from t5x import adafactor
from t5x import checkpoints
from t5x import optimizers
from t5x import trainer
from t5x import utils
)";

std::string braced(const std::string& field) { return "{" + field + "}"; }

/// `text` as part of a format: braces doubled.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += std::string(c == '{' || c == '}' ? 2 : 1, c);
  return out;
}

std::string inputs_format(const FinetuneFlags& flags) {
  return escaped(flags.source_prefix) + (flags.format.empty() ? braced(flags.input) : flags.format);
}

/// Source and task, in the scope of the task's name.
std::string task_text(const FinetuneTask& task, const FinetuneFlags& flags,
                      const std::string& metric_fns) {
  const std::string scope = task.name + "/";
  const std::string source =
      task.format == ".jsonl" ? "data.JsonlDataSource" : "data.CsvDataSource";
  std::string text = fmt::format("\n{}{}:\n  split_to_filepattern = {{'train': {}", scope, source,
                                 gin_repr(task.train));
  if (!task.validation.empty())
    text += fmt::format(", 'validation': {}", gin_repr(task.validation));
  text += "}\n";
  if (task.format == ".jsonl") {
    std::vector<std::string> fields = data::FormatPair::fields_of(inputs_format(flags));
    fields.push_back(flags.target);
    text += fmt::format("  fields = {}\n", gin_repr(fields));
  } else if (task.format == ".tsv") {
    text += "  delimiter = '\\t'\n  quoted = False\n";
  }
  if (task.validation.empty())
    text += fmt::format("{0}data.HoldOutDataSource.source = @{0}{1}()\n", scope, source);
  return text + fmt::format(R"({0}seqio.Task:
  name = '{1}'
  source = @{0}{2}()
  preprocessors = [@data.format_pair, @seqio.preprocessors.tokenize, @seqio.preprocessors.append_eos_after_trim]
  output_features = {{'inputs': @inputs/seqio.Feature(), 'targets': @targets/seqio.Feature()}}
  metric_fns = [{3}]
)",
                            scope, task.name,
                            task.validation.empty() ? "data.HoldOutDataSource" : source,
                            metric_fns);
}

std::string vocabularies_text(const FinetuneModel& model) {
  if (model.has_vocabulary_macro)
    return "inputs/seqio.Feature.vocabulary = %VOCABULARY\n"
           "targets/seqio.Feature.vocabulary = %VOCABULARY\n";
  return "inputs/seqio.Feature.vocabulary = @models.get_input_vocabulary()\n"
         "targets/seqio.Feature.vocabulary = @models.get_output_vocabulary()\n"
         "models.get_input_vocabulary.model = %MODEL\n"
         "models.get_output_vocabulary.model = %MODEL\n";
}

std::string tasks_text(const FinetuneFlags& flags, const FinetuneModel& model,
                       const FinetunePlan& plan) {
  std::string text = "\n# The examples.\n" + vocabularies_text(model);
  text += fmt::format("data.format_pair:\n  inputs_format = {}\n  targets_format = {}\n",
                      gin_repr(inputs_format(flags)), gin_repr(braced(flags.target)));
  std::vector<std::string> metric_fns, tasks, names;
  for (const std::string& name : plan.metrics)
    metric_fns.push_back("@" + finetune_metric(name).function);
  if (!plan.labels.empty()) {
    metric_fns.emplace_back("@data.confusion_matrix");
    text += fmt::format("data.confusion_matrix.classes = {}\n", gin_repr(plan.labels));
  }
  for (const FinetuneTask& task : finetune_tasks(flags)) {
    text += task_text(task, flags, fmt::format("{}", fmt::join(metric_fns, ", ")));
    tasks.push_back(fmt::format("@{}/seqio.Task()", task.name));
    names.push_back(task.name);
  }
  text += fmt::format("seqio.TaskRegistry.tasks = [{}]\n", fmt::join(tasks, ", "));
  if (tasks.size() == 1) return text + "seqio.MixtureRegistry.mixtures = []\n";
  return text + fmt::format(R"(seqio.MixtureRegistry.mixtures = [@{0}/seqio.Mixture()]
{0}/seqio.Mixture:
  name = '{0}'
  tasks = {1}
  default_rate = @seqio.mixing_rate_num_examples
)",
                            kFinetuneTask, gin_repr(names));
}

/// What the run trains on: the one task, or the mixture of all.
std::string trained_name(const FinetuneFlags& flags) {
  const std::vector<FinetuneTask> tasks = finetune_tasks(flags);
  return tasks.size() == 1 ? tasks.front().name : kFinetuneTask;
}

/// Which checkpoint is kept, and what ends the run early.
std::string best_text(const FinetuneFlags& flags, const FinetunePlan& plan) {
  const bool is_loss = plan.best_metric == "loss";
  const std::string task = is_loss ? trained_name(flags) : finetune_tasks(flags).front().name;
  const std::string value =
      is_loss ? "loss_per_nonpadding_target_token" : finetune_metric(plan.best_metric).value;
  const char* mode = is_loss ? "min" : "max";
  std::string text = fmt::format(
      R"(
# The best checkpoint is kept, and the newest.
utils.SaveCheckpointConfig:
  period = %EVAL_PERIOD
  keep = 1
  checkpointer_cls = @checkpoints.SaveBestCheckpointer
checkpoints.SaveBestCheckpointer:
  metric_name_to_monitor = '{}/{}/{}{}'
  metric_mode = '{}'
  keep_checkpoints_without_metrics = False
)",
      is_loss ? "training_eval" : "inference_eval", task, is_loss ? "" : "eval/", value, mode);
  text += fmt::format(
      "utils.SaveCheckpointConfig.copies = {}\n",
      flags.output_format == "native" ? "()" : fmt::format("('{}',)", flags.output_format));
  if (flags.patience == 0) return text + "train_script.train.actions = None\n";
  return text + fmt::format(
                    R"(train_script.train.actions = {{'{}': [@trainer.EarlyStoppingAction()]}}
trainer.EarlyStoppingAction:
  metric = ('{}', '{}')
  mode = '{}'
  patience = {}
  atol = 0.0
  rtol = 0.0
  compare_with_best = True
)",
                    is_loss ? "TRAIN_EVAL" : "INFER_EVAL", task, value, mode, flags.patience);
}

std::string run_text(const FinetuneFlags& flags, const FinetuneModel& model,
                     const FinetunePlan& plan) {
  return fmt::format(
      R"(
# The run.
MODEL_DIR = {}
INITIAL_CHECKPOINT_PATH = {}
MIXTURE_OR_TASK_NAME = '{}'
TASK_FEATURE_LENGTHS = {{'inputs': {}, 'targets': {}}}
USE_CACHED_TASKS = False
BATCH_SIZE = {}
TRAIN_STEPS = {}
EVAL_PERIOD = {}
EVAL_STEPS = {}
RANDOM_SEED = {}
DROPOUT_RATE = {}
train_script.train.stats_period = {}
train/utils.DatasetConfig.seed = %RANDOM_SEED
trainer.Trainer.num_microbatches = {}
# The model's parameters are restored; steps and the optimizer's state begin anew.
utils.RestoreCheckpointConfig:
  assignment_map = [('state/.*', None)]
  fallback_to_scratch = True
)",
      gin_repr(absolute_file(flags.output_dir)), gin_repr(model.checkpoint), trained_name(flags),
      plan.input_length, plan.target_length, plan.batch_size, plan.steps, plan.eval_period,
      plan.eval_steps, flags.seed, flags.dropout, std::max<int64_t>(1, plan.eval_period / 10),
      plan.microbatches);
}

std::string lora_text(const FinetuneFlags& flags, const FinetuneModel& model,
                      const std::string& model_class) {
  const std::optional<LoraConfig> lora = flags.lora.lora();
  if (!lora)  // a run with adapters may be the base of another, which reads it merged
    return model.trained.model->lora ? fmt::format("\n{}.lora = None\n", model_class) : "";
  return fmt::format(R"(
# Adapters are trained, and nothing else.
{}.lora = @lora.LoraConfig()
lora.LoraConfig:
  rank = {}
  alpha = {}
  dropout_rate = {}
  targets = {}
  base_dtype = '{}'
)",
                     model_class, lora->rank, lora->alpha, lora->dropout_rate,
                     gin_repr(lora->targets), lora->base_dtype);
}

std::string loss_text(const FinetuneFlags& flags, const FinetuneModel& model,
                      const FinetunePlan& plan, const std::string& model_class) {
  std::string text = fmt::format(
      R"(
# The loss and the optimizer.
{}.label_smoothing = {}
trainer.Trainer.learning_rate_fn = @optax.warmup_cosine_decay_schedule()
optax.warmup_cosine_decay_schedule:
  init_value = 0.0
  peak_value = {}
  warmup_steps = {}
  decay_steps = %TRAIN_STEPS
  end_value = 0.0
)",
      model_class, flags.label_smoothing,
      flags.peak_learning_rate(model.trained.model->model->spec().emb_dim()), plan.warmup_steps);
  if (!flags.precision.empty())
    text += fmt::format("{} = '{}'\n", model.precision_binding(), flags.precision);
  return text + finetune_optimizer_gin(flags, model, model_class);
}

}  // namespace

std::string gin_repr(const std::string& text) { return gin::Value(text).repr(); }

std::string gin_repr(const std::vector<std::string>& texts) {
  gin::List list;
  for (const std::string& text : texts) list.emplace_back(text);
  return gin::Value(std::move(list)).repr();
}

std::string finetune_gin(const FinetuneFlags& flags, const FinetuneModel& model,
                         const FinetunePlan& plan) {
  // t5x.models.EncoderDecoderModel: a package, a module and a class.
  const size_t dot = model.class_name.rfind('.'), last = model.class_name.rfind('.', dot - 1);
  const std::string model_class = "models" + model.class_name.substr(dot);
  std::string text =
      kImports + fmt::format("from {} import {}{}\n", model.class_name.substr(0, last),
                             model.class_name.substr(last + 1, dot - last - 1),
                             model.class_name.substr(last + 1, dot - last - 1) == "models"
                                 ? ""
                                 : " as models");
  if (flags.lora.rank) text += "from quintet import lora\n";
  text += model.precision_import(flags.precision) + "\n";
  for (const std::string& file : model.includes)
    text += fmt::format("include {}\n", gin_repr(file));
  text += "include 't5x/configs/runs/finetune.gin'\n";
  return text + tasks_text(flags, model, plan) + run_text(flags, model, plan) +
         lora_text(flags, model, model_class) + loss_text(flags, model, plan, model_class) +
         best_text(flags, plan);
}

}  // namespace quintet
