#pragma once
// The vocabularies of a run: recorded in its checkpoints, copied to MODEL_DIR/vocabularies, and
// compared wherever a checkpoint is read. Ids mean nothing under another vocabulary, and nothing
// else would notice: an embedding has rows for any id.
//
//   use_copies_of(model_dir);                          // before gin files make vocabularies
//   check_ids(*model);
//   check_recorded(reader, vocabularies_of(*model));   // exit 3 with both
//   copy_vocabularies(model_dir, vocabularies_of(*model));

#include <filesystem>
#include <optional>

#include "checkpoint/checkpoint_reader.h"
#include "data/batches/batches.h"
#include "data/examples/vocabulary_record.h"
#include "models/configurables.h"

namespace quintet {

/// The model's as "model.input_vocabulary" and "model.output_vocabulary", and those of a task's
/// features by their names. A model whose ids are no text has none.
data::VocabularyRecords vocabularies_of(const ConfiguredModel& model,
                                        const data::Features& features = {});

/// Throws a usage error if a vocabulary of the model has more ids than the model's vocab_size:
/// these would lie outside of the embedding. Fewer are fine (T5 pads 32,100 to 32,128).
void check_ids(const ConfiguredModel& model);
/// The same for the features that the model gets from a data set.
void check_ids(const ConfiguredModel& model, const data::Provider& provider,
               const data::DatasetConfig& dataset);

/// t5x.utils.verify_matching_vocabs: throws a usage error unless the task's inputs and targets have
/// the model's vocabularies; of a task that lacks one of the two, all its features.
void verify_matching_vocabs(const ConfiguredModel& model, const data::Provider& provider);
/// What the checkpoint says; none: it was saved before vocabularies were recorded.
std::optional<data::VocabularyRecords> recorded_vocabularies(const CheckpointReader& checkpoint);
/// Throws kData naming both if a vocabulary is another than the checkpoint's of the same name;
/// `advice` is what else the message says to do. A checkpoint without a record is warned of, if
/// `speaks`.
void check_recorded(const CheckpointReader& checkpoint, const data::VocabularyRecords& now,
                    bool speaks = true, const std::string& advice = "");

/// The bytes of the vocabularies' files, by the names of their copies. Throws kData unless they still are what was read.
std::map<std::string, std::string> vocabulary_files(const data::VocabularyRecords& now);
/// Copies the vocabularies' files, which must still be what was read, and writes the record of
/// them.
void copy_vocabularies(const std::filesystem::path& model_dir, const data::VocabularyRecords& now);
/// From now on vocabularies whose files are not at their paths are read from the copies of this
/// model directory; those of a bundle (checkpoint/bundle) from it, whatever lies at their paths. Nothing happens if there
/// are none.
void use_copies_of(const std::filesystem::path& model_dir);
/// The same for the model directory that `binding`, a RestoreCheckpointConfig, restores from.
void use_copies_of(const gin::Config& config, const std::string& binding);

}  // namespace quintet
