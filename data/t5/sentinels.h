#pragma once
// seqio.experimental.add_task_with_sentinels: a task whose inputs end and whose targets begin with
// sentinel ids, as in span corruption, which T5 was pretrained on.
//
//   inputs [5 6], targets [7], 200 ids -> inputs [5 6 199], targets [199 7]

#include "data/tasks/task.h"

namespace quintet::data {

struct AddSentinels final : Preprocessor {
  int32_t num_sentinels = 1;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// append_eos_after_trim that keeps the last ids and cuts before them.
struct AppendEosAfterTrimAndPreserve final : Preprocessor {
  int64_t preserve_final_n_tokens_when_trimming = 1;
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// "glue_x_1_sentinel"; before _train, _dev, _test, _eval or a dot if the name has one of them.
std::string sentinel_task_name(const std::string& task_name, int32_t num_sentinels);

/// Sentinels at the end of a task's preprocessors, before its last append_eos_after_trim, which then
/// keeps them; its postprocessor takes them off.
void add_sentinels(Task::Config& task, int32_t num_sentinels);

}  // namespace quintet::data
