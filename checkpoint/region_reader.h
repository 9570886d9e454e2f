#pragma once
// Reads parts of the tensors of one native checkpoint into memory that is there already, with a megabyte
// of its own: any mesh reads what any other wrote, each rank what it needs.
//
//   NativeCheckpointReader reader(folder);                 // manifest, presence and sizes of files
//   reader.verify(rank, ranks);                            // checksums, shared among the ranks
//   reader.read({"target/x", {0, 8}, {4, 8}}, pointer);    // of the dtype in the checkpoint

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {

class NativeCheckpointReader final : public CheckpointReader {
 public:
  /// Throws ExitCode::kData as read_checkpoint does, but for what only the checksums show.
  explicit NativeCheckpointReader(std::filesystem::path folder);
  /// The same for all hosts, of which the first looks at the folder and tells the others. All call it.
  static std::shared_ptr<const NativeCheckpointReader> open_together(std::filesystem::path folder,
                                                                     HostGroup& hosts);

  int64_t file_bytes() const override;
  int64_t step() const override { return manifest_.step; }
  const std::string& state_json() const override { return manifest_.state_json; }
  bool is_native() const override { return true; }
  using CheckpointReader::verify;
  NotFinite verify(int part, int parts) const override;

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override;

 private:
  NativeCheckpointReader(std::filesystem::path folder, Manifest manifest);
  /// A file of the manifest, opened by the first that reads from it.
  std::shared_ptr<const File> file(size_t index) const;

  Manifest manifest_;
  mutable std::mutex mutex_;
  mutable std::map<size_t, std::shared_ptr<const File>> open_;
};

}  // namespace quintet
