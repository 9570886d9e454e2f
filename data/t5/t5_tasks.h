#pragma once
// The tasks and mixtures that T5 itself brings (t5.data.tasks, t5.data.mixtures), under its names:
// C4, Wikipedia, GLUE, SuperGLUE, SQuAD, TriviaQA, CNN/Daily Mail, WMT. They read data sets that
// TFDS has prepared; preprocessors and metrics take what gin binds to them.
//
//   register_t5_tasks(registry, config);            // nothing is opened yet
//   registry.get("glue_cola_v002")->stream(..)      // reads <tfds_data_dir>/glue/cola/1.0.0

#include "data/tasks/task.h"
#include "runtime/gin/config.h"

namespace quintet::data {

/// t5.data.get_default_vocabulary: the vocabulary of T5's tasks. Without a bound file it is
/// %VOCABULARY, if the configuration has that macro.
void register_t5_defaults(gin::Registry& registry);

/// `config` must outlive the registry: tasks are made when they are asked for.
void register_t5_tasks(TaskRegistry& registry, const gin::Config& config);
/// Mixtures of those tasks.
void register_t5_mixtures(TaskRegistry& registry, const gin::Config& config);

}  // namespace quintet::data
