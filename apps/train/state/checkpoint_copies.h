#pragma once
// Copies of a run's checkpoints in formats of other programs, beside them: MODEL_DIR/t5x/checkpoint_<step>,
// MODEL_DIR/hf/checkpoint_<step>.
//
//   CheckpointCopies copies(model_dir, {"t5x"}, *configured, {config_text, vocabularies});
//   options.after_save = [&](int64_t step, HostGroup& hosts, auto& warnings) {
//     copies.follow(step, hosts, warnings);
//   };

#include "apps/huggingface/directory.h"
#include "checkpoint/write/formats.h"
#include "data/examples/vocabulary_record.h"
#include "models/configurables.h"

namespace quintet {

class CheckpointCopies {
 public:
  /// What lies beside checkpoints in a folder that is a run's directory of its own.
  struct RunFiles {
    std::string config_text;
    data::VocabularyRecords vocabularies;
  };
  /// `formats`: names of write_formats(). Throws a usage error for a model that one has no place for.
  CheckpointCopies(std::filesystem::path model_dir, const std::vector<std::string>& formats,
                   const ConfiguredModel& model, RunFiles run_files);

  /// Copies the checkpoint of `step` and removes copies whose checkpoint is gone, but for those with a
  /// file PINNED. All hosts call it. Each copy appears whole or not at all; one that cannot be written is
  /// a warning, whatever the reason but for a lost peer, which throws ExitCode::kPeer. Needs memory for
  /// two of the largest tensor.
  void follow(int64_t step, HostGroup& hosts, std::vector<std::string>& warnings);
  /// At the start of a run, on the first host: removes what a killed run left unfinished or unremoved.
  void tidy() const;
  /// Whether the checkpoint of `step` lacks a copy: the run ended before it was written, or asked for none.
  bool lacks(int64_t step) const;

 private:
  struct Copies {
    const WriteFormat* format;
    std::filesystem::path folder;
    std::optional<HuggingFaceDirectory> directory = {};  // of each, hf
    std::optional<t5x::Stacking> stacking = {};          // t5x
    bool is_prepared = false;
  };
  void prepare(Copies& copies) const;
  void write(const Copies& copies, int64_t step, HostGroup& hosts) const;
  void remove_surplus(const Copies& copies) const;

  std::filesystem::path model_dir_;
  RunFiles run_files_;
  std::vector<Copies> formats_;
};

}  // namespace quintet
