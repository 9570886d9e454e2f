#pragma once
// What of a training run is in a checkpoint, and how a run takes it over: parameters and optimizer state
// as arrays, everything else as a small JSON document.
//
//   save: checkpoints.save(step, to_slices(trainer, "float32").slices, to_json(progress));
//   load: load_arrays(reader, trainer);  RunState state = run_state_from_json(reader.state_json(), ...);

#include <string>

#include "apps/config/actions.h"
#include "apps/config/checkpoint_config.h"
#include "checkpoint/region_reader.h"
#include "data/vocabularies/vocabulary_record.h"
#include "runtime/mesh/collectives.h"
#include "runtime/trainer.h"

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
};
std::string to_json(const RunState& state);
/// Throws kData naming the missing member.
RunState run_state_from_json(const std::string& json, const std::string& where);

/// Blocks of the trainer's arrays, and the copies that some of them point to.
struct StateSlices {
  std::vector<TensorSlice> slices;
  std::vector<HostArray> copies;
};
/// target/... as `dtype` ("float32" or "bfloat16"), state/param_states/... as they are, state/step.
StateSlices to_slices(Trainer& trainer, const std::string& dtype);
/// Leaves those that this rank writes: of a block that several ranks hold one writes it, in turn.
void keep_own(std::vector<TensorSlice>& slices, const Group& ranks);

/// A run's own checkpoint: every array must be there with its shape. Throws kData listing all that differ.
void load_arrays(const CheckpointReader& checkpoint, Trainer& trainer);

/// Another run's checkpoint, as RestoreCheckpointConfig says: assignment rules, strictness, arrays that
/// keep their initial value. Throws kData listing all names that do not fit.
void load_arrays(const CheckpointReader& checkpoint, const RestoreCheckpointConfig& config,
                 Trainer& trainer);

/// Parameters only, for evaluation and generation.
void load_parameters(const CheckpointReader& checkpoint, Parameters& parameters);

/// The checkpoint folders a configuration means, in order of step: one, or for mode 'all' every one.
/// Throws kData if there is none.
std::vector<std::filesystem::path> checkpoint_folders(const RestoreCheckpointConfig& config);

}  // namespace quintet
