#pragma once
// What of a training run is in a checkpoint beside its arrays: a small JSON document.
//
//   checkpoints.save(step, to_slices(trainer, "float32").slices, to_json(state));
//   RunState state = run_state_from_json(reader.state_json(), ...);

#include <map>
#include <string>

#include "apps/config/actions.h"
#include "checkpoint/lora/adapter.h"
#include "data/examples/vocabulary_record.h"
#include "runtime/trainer/trainer.h"

namespace quintet {

/// The part of a run that is not an array. Equal states and equal arrays mean an equal future.
struct RunState {
  int64_t step = 0;             // batches seen
  int64_t first_step = 0;       // where the run began; periods are counted from it
  int64_t skipped_updates = 0;  // of all steps: gradients that were not finite
  int64_t skipped_in_a_row = 0;
  int64_t evaluated_step = -1;  // the last step whose evaluations are done
  int64_t metrics_bytes = 0;    // length of metrics.jsonl when this was saved
  int64_t seed = 0;
  std::string data_position;                   // data::Batches::position
  Metrics window;                              // metrics since the last summary
  std::map<std::string, ActionState> actions;  // action_states()
  data::VocabularyRecords vocabularies;        // vocabularies_of()
  std::optional<AdapterRecord> lora;           // of a run that trains adapters alone
};
std::string to_json(const RunState& state);
/// Throws kData naming the missing member.
RunState run_state_from_json(const std::string& json, const std::string& where);

}  // namespace quintet
