#pragma once
// Writes native checkpoints: each host's slices as HDF5, read back and compared, and of all hosts together
// state.h5 and the manifest; one save: written beside, synced, renamed, the folder synced
// (docs/reference/faults.md, C1 to C4).

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/hdf5_writer.h"
#include "checkpoint/manifest.h"

namespace quintet {

/// The files of one checkpoint in a folder that the first host makes.
class NativeCheckpointWriter final : public CheckpointWriter {
 public:
  /// `slices`: what this host will write, in that order; their data need not be there yet. `label` and
  /// `hosts` are the same on all hosts, but for label.host. Throws ExitCode::kUsage for names that cannot
  /// be, ExitCode::kDisk if they surely do not fit.
  NativeCheckpointWriter(std::filesystem::path folder, std::vector<TensorSlice> slices,
                         FileLabel label, int hosts, std::string state_json);

  void begin() override;
  void write(const std::string& name, const HostArray& tensor) override;
  void write(const TensorSlice& slice);
  void finish_share() override;
  void join(HostGroup& hosts) override;
  void finish() override;
  /// Of this host's file, once its share is finished.
  int64_t bytes() const { return share_.files.at(0).bytes; }

 private:
  std::filesystem::path data_path() const;
  DataFile& data_file();

  std::filesystem::path folder_;
  std::vector<TensorSlice> slices_;
  FileLabel label_;
  std::string state_json_;
  std::optional<DataFile> file_;
  std::vector<ManifestSlice> written_;
  Manifest
      share_;  // this host's, as a manifest of one file; after join() that of hosts after it, too
};

/// Of all hosts the shares come to the first, in the order of hosts, up a tree: in each round every other
/// host that is left hands what it has to the one before it. The first hears log2 n times, of each share
/// once.
void join_shares(Manifest& share, HostGroup& hosts);

/// Writes `checkpoint_<step>/` with the other hosts and returns the bytes of this host's file. On any
/// failure, here or on another host, throws and leaves nothing behind that was not there before.
///
/// Order: temporary folder; each host's data file, read back and compared, synced; host 0: state.h5,
/// manifest, sync of files and folder, rename, sync of the model directory.
int64_t write_checkpoint(const std::filesystem::path& model_dir, int64_t step,
                         const std::string& run_id, const std::vector<TensorSlice>& slices,
                         const std::string& state_json, HostGroup& hosts);

}  // namespace quintet
