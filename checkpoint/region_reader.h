#pragma once
// Reads parts of the tensors of one checkpoint into memory that is there already, with a megabyte
// of its own: any mesh reads what any other wrote, each rank what it needs.
//
//   CheckpointReader reader(folder);                       // manifest, presence and sizes of files
//   reader.verify(rank, ranks);                            // checksums, shared among the ranks
//   reader.read({"target/x", {0, 8}, {4, 8}}, pointer);    // of the dtype in the checkpoint

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/finite.h"
#include "checkpoint/manifest.h"

namespace quintet {

class CheckpointReader {
 public:
  /// Throws ExitCode::kData as read_checkpoint does, but for what only the checksums show.
  explicit CheckpointReader(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t step() const { return manifest_.step; }
  const std::string& state_json() const { return manifest_.state_json; }
  const std::map<std::string, ManifestTensor>& tensors() const { return manifest_.tensors; }

  /// Every `parts`-th file from number `part` on, front to back against its checksums. Throws
  /// ExitCode::kData naming the first damaged tensor or file. Gives what in them is not finite.
  NotFinite verify(int part = 0, int parts = 1) const;
  /// Copies a region, row-major and dense, to `target`. Throws ExitCode::kData if there is no such
  /// tensor, a usage error if the region is not inside it.
  void read(const TensorRegion& region, std::byte* target) const;

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
};

}  // namespace quintet
