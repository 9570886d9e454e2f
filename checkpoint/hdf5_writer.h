#pragma once
// The only place that calls the HDF5 library: it writes; reading needs the manifest alone.
//
// Layout, and why (measured with HDF5 1.10.8, 1,000 random bit flips each): chunked with Fletcher32
// and bounds V18-V18 let none pass unseen to other HDF5 readers, where plain datasets let through 98 %;
// newer bounds leave a file that a kill makes unreadable. The library is given chunks with their sums, which
// its filter computes at a fraction of memory's speed. Its exit handler crashes on a full
// disk, so it is switched off, space is reserved before the first byte, and files are not locked.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace quintet {

/// Starts the library: what it needs for itself is had before anything depends on it. Throws
/// ExitCode::kEnvironment.
void start_hdf5();

/// Root attributes of both kinds of file.
struct FileLabel {
  int64_t step = 0;
  std::string run_id;
  int64_t host = 0;
};

/// Bytes that a DataFile and write_state_file need at most, which they reserve first: at most
/// a quarter, and 16 KiB, above what they write.
int64_t most_data_bytes(const std::vector<TensorSlice>& slices);
int64_t most_state_bytes(const Manifest& manifest);

/// A new file of slices, a dataset each. Throws ExitCode::kDisk. Not trimmed, not synced.
///
///   DataFile file(path, slices, label);              // reserves space for them; their data is not read
///   for (const TensorSlice& slice : slices) written.push_back(file.write(slice));
///   file.close();
class DataFile {
 public:
  DataFile(std::filesystem::path path, const std::vector<TensorSlice>& slices,
           const FileLabel& label);
  ~DataFile();
  /// Scalars become one element, empty slices nothing at all. Gives dataset, extents and CRC-32C of the
  /// memory it was written from; `file` is left 0.
  ManifestSlice write(const TensorSlice& slice);
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes state.h5 into `folder`, beside the data files it refers to by relative names: one dataset a
/// tensor under the tensor's name, virtual (missing parts read as NaN, or the lowest integer), scalars
/// and empty ones in place. Not trimmed, not synced.
void write_state_file(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace quintet
