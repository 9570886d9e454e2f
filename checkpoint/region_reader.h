#pragma once
// Reads parts of the tensors of one native checkpoint into memory that is there already, with a megabyte
// of its own: any mesh reads what any other wrote, each rank what it needs.
//
//   NativeCheckpointReader reader(folder);                 // manifest, presence and sizes of files
//   reader.verify(rank, ranks);                            // checksums, shared among the ranks
//   reader.read({"target/x", {0, 8}, {4, 8}}, pointer);    // of the dtype in the checkpoint

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"

namespace quintet {

class NativeCheckpointReader final : public CheckpointReader {
 public:
  /// Throws ExitCode::kData as read_checkpoint does, but for what only the checksums show.
  explicit NativeCheckpointReader(std::filesystem::path folder);

  int64_t file_bytes() const override;
  int64_t step() const override { return manifest_.step; }
  const std::string& state_json() const override { return manifest_.state_json; }
  bool is_native() const override { return true; }
  using CheckpointReader::verify;
  NotFinite verify(int part, int parts) const override;

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override;

 private:
  Manifest manifest_;
};

}  // namespace quintet
