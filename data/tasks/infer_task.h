#pragma once
// A task made of files to be answered: t5x.infer's create_task_from_tfexample_file, and the same
// for JSON lines.
//
//   const ProviderPtr task = infer_task({.paths = {"q.jsonl"}, .file_type = "jsonl",
//                                        .features = model_features});
//   task->splits()                               // {"infer"}

#include "data/tasks/task.h"

namespace quintet::data {

struct InferTaskConfig {
  std::vector<std::string> paths;      // files or patterns
  std::string file_type = "tfrecord";  // of tf.Example; or "jsonl"
  std::string inputs_key = "inputs";
  std::string targets_key = {};  // empty: there are none
  Features features;             // "inputs", "targets"
  std::string task_id = {};      // empty: a hash of paths and keys, T5X's own
};

/// Task "infer_<task_id>" with the split "infer": inputs and targets tokenized, with EOS. Throws
/// kUsage for another file type, kData where no file is.
ProviderPtr infer_task(const InferTaskConfig& config);

}  // namespace quintet::data
