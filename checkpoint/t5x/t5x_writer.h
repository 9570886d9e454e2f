#pragma once
// Writes a checkpoint as T5X's Checkpointer does: parameters and the optimizer's large arrays as zarr folders
// named by their path with dots, the rest in a msgpack file `checkpoint`, which refers to those folders.
//
//   t5x::Writer writer(model_dir / "checkpoint_1000", tensors, rank);
//
// Source: t5x/checkpoints.py, version 3.

#include "checkpoint/checkpoint_writer.h"

namespace quintet::t5x {

class Writer final : public CheckpointWriter {
 public:
  /// Throws ExitCode::kUsage for names that are not paths.
  Writer(std::filesystem::path folder, StoredTensors tensors, int host);

  void begin() override;
  void write(const std::string& name, const HostArray& tensor) override;
  void finish() override;

 private:
  /// Where a host leaves an array for the msgpack file, which the first host writes.
  std::filesystem::path inline_path(const std::string& name) const;
  HostArray take_inline(const std::string& name) const;

  std::filesystem::path folder_;
  StoredTensors tensors_;
  int host_;
};

/// Whether T5X puts an array into the msgpack file: the optimizer's scalars, placeholders and factored second
/// moments.
bool is_inline(const std::string& name, const StoredTensor& tensor);

}  // namespace quintet::t5x
