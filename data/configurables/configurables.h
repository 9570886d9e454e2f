#pragma once
// What gin files may name in data/, and the tasks a configuration adds.
//
//   gin::Registry names;
//   data::register_data(names);
//   gin::Config config(names, {});  ...
//   const data::TaskRegistry tasks = data::make_task_registry(config);

#include "data/batches/batches.h"
#include "data/tasks/task.h"
#include "data/workers/worker_functions.h"
#include "runtime/gin/config.h"

namespace quintet::data {

/// Vocabularies, sources, preprocessors, noise functions, metrics, tasks, t5x.utils.DatasetConfig.
void register_data(gin::Registry& registry, bool allow_commands = true);
/// Parts of it.
void register_vocabularies(gin::Registry& registry);
void register_feature_converters(gin::Registry& registry);
void register_tasks(gin::Registry& registry);
/// Functions in processes of the user's own. Without `allow_commands` those that files bind are
/// refused when they are to start.
void register_workers(gin::Registry& registry, bool allow_commands);

/// What @quintet.data.ProcessFunction gives. Throws a usage error that says `other`, what else the parameter takes.
WorkersPtr own_process(const gin::Value& value, const gin::Where& where, const std::string& other);

/// The built-in tasks and those of seqio.TaskRegistry.tasks and seqio.MixtureRegistry.mixtures.
TaskRegistry make_task_registry(const gin::Config& config);

}  // namespace quintet::data
