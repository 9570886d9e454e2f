#include "data/tasks/infer_task.h"

#include "data/examples/md5.h"
#include "data/examples/tf_example.h"
#include "data/preprocessors/text_preprocessors.h"

namespace quintet::data {
namespace {

DataSourcePtr source_of(const InferTaskConfig& config) {
  const SplitToFiles files{{"infer", config.paths}};
  std::vector<std::string> keys{config.inputs_key};
  if (!config.targets_key.empty()) keys.push_back(config.targets_key);
  if (config.file_type == "jsonl") return std::make_shared<JsonlDataSource>(files, keys);
  QT_CHECK(config.file_type == "tfrecord",
           "create_task_from_tfexample_file.file_type: '{}'; expected 'tfrecord' or 'jsonl'",
           config.file_type);
  std::vector<FeatureSpec> specs;
  for (const std::string& key : keys) specs.push_back({.name = key, .dtype = "string"});
  return std::make_shared<TFExampleDataSource>(files, specs);
}

}  // namespace

ProviderPtr infer_task(const InferTaskConfig& config) {
  std::vector<std::string> named = config.paths;
  named.insert(named.end(), {config.inputs_key, config.targets_key});
  const std::string id = config.task_id.empty()
                             ? md5_hex(fmt::format("{}", fmt::join(named, ":"))).substr(0, 10)
                             : config.task_id;
  auto rekey = std::make_shared<Rekey>();
  rekey->key_map = {{"inputs", config.inputs_key}, {"targets", config.targets_key}};
  auto tokenize = std::make_shared<Tokenize>();
  tokenize->with_eos = true;
  auto task = std::make_shared<const Task>(Task::Config{.name = "infer_" + id,
                                                        .source = source_of(config),
                                                        .preprocessors = {rekey, tokenize},
                                                        .output_features = config.features});
  task->contents({.split = "infer"});  // a missing file is an error here
  return task;
}

}  // namespace quintet::data
