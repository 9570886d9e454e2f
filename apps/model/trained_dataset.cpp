#include "apps/model/trained_dataset.h"

#include <algorithm>
#include <array>

#include "apps/config/gin_flags.h"
#include "apps/flags/command_line.h"

namespace quintet {

std::optional<data::DatasetConfig> dataset_of_run(const gin::Config& config, bool to_train) {
  std::array names = {"infer_eval_dataset_cfg", "train_dataset_cfg"};
  if (to_train) std::ranges::reverse(names);
  for (const char* name : names) {
    const std::string binding = std::string("t5x.train.train.") + name;
    if (config.query(binding) == nullptr) continue;
    if (const gin::Value value = config.evaluate(binding); !value.is_none())
      return gin::as<data::DatasetConfig>(value, {name});
  }
  return std::nullopt;
}

void add_adapter_flag(CLI::App& app, std::string& adapter) {
  app.add_option("--adapter", adapter,
                 "a LoRA adapter of this model, merged into it: a PEFT directory, or a run of "
                 "quintet finetune --lora_rank")
      ->transform(mapped_path);
}

void TrainedDatasetFlags::add_to(CLI::App& app, bool is_positional) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  app.add_option(is_positional ? "MODEL,--model_dir,--model" : "--model_dir,--model", model_dir,
                 "the directory of a training run, a checkpoint, or a Hugging Face directory")
      ->transform(mapped_path);
  add_adapter_flag(app, adapter);
  app.add_option("--checkpoint", checkpoint, "latest, all, or a step");
  app.add_option("--task", task, "a task or mixture; default: the run's own");
  app.add_option("--split", split, "split of the task; default: the run's own, else validation");
  app.add_option("--batch_size", batch_size, "examples per batch; default: the run's own")
      ->check(positive);
}

data::DatasetConfig TrainedDatasetFlags::dataset_of(const TrainedModel& trained,
                                                    const std::string& verb, bool has_task) const {
  const gin::Config& config = trained.session->config();
  data::DatasetConfig dataset;
  for (const char* name : {"infer_eval_dataset_cfg", "train_eval_dataset_cfg"}) {
    const gin::Value value = config.evaluate(std::string("t5x.train.train.") + name);
    if (value.is_none()) continue;
    dataset = gin::as<data::DatasetConfig>(value, {name});
    break;
  }
  if (dataset.batch_size == 0) dataset.batch_size = 32;
  if (dataset.split.empty() || dataset.split == "train") dataset.split = "validation";
  dataset.pack = dataset.shuffle = false;
  if (!task.empty()) {
    dataset.mixture_or_task = nullptr;
    dataset.mixture_or_task_name = task;
  }
  QT_CHECK(has_task || dataset.mixture_or_task || !dataset.mixture_or_task_name.empty(),
           "{}: the run has no evaluation set of its own; name a task with --task", verb);
  if (!split.empty()) dataset.split = split;
  if (batch_size > 0) dataset.batch_size = batch_size;
  return dataset;
}

bool TrainedDatasetFlags::verifies_vocabs(const TrainedModel& trained) const {
  return quintet::verifies_vocabs(trained.session->config());
}

RestoreCheckpointConfig TrainedDatasetFlags::restore_of(const TrainedModel& trained) const {
  const std::filesystem::path path = model_dir;
  RestoreCheckpointConfig restore;
  restore.adapter = adapter;
  restore.path = {trained.model_dir.string()};
  if (std::filesystem::weakly_canonical(path) !=
      std::filesystem::weakly_canonical(trained.model_dir)) {
    restore.path = {path.string()};
    restore.mode = "specific";
  } else if (checkpoint == "all") {
    restore.mode = "all";
  } else if (checkpoint != "latest") {
    QT_CHECK(checkpoint.find_first_not_of("0123456789") == std::string::npos,
             "--checkpoint={}: expected latest, all, or a step", checkpoint);
    restore.path = {(trained.model_dir / ("checkpoint_" + checkpoint)).string()};
    restore.mode = "specific";
  }
  return restore;
}

}  // namespace quintet
