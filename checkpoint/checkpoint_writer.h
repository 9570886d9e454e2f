#pragma once
// What writes the tensors of a checkpoint in one format, one tensor at a time, on one host or on several
// together: the counterpart of CheckpointReader. checkpoint/write/formats.h has a row for each format,
// checkpoint/write/copy_checkpoint.h runs them.
//
//   const auto writer = format_named("t5x").make({.folder = folder, .tensors = tensors});
//   writer->begin();                                     // first host; the others wait
//   for (name of mine) writer->write(name, array);       // each tensor by one host
//   writer->finish_share();                              // each host
//   writer->join(hosts);                                 // all of them together; then the first:
//   writer->finish();
//   sync_file_system(folder);                            // each host: nothing need be durable before

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "runtime/base/host_array.h"

namespace quintet {

using StoredTensors = std::map<std::string, StoredTensor>;

class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;

  /// The first host makes the files and folders that all write into, and reserves their space. All of
  /// these throw ExitCode::kDisk with path, bytes needed and free.
  virtual void begin() = 0;
  /// One of the tensors that were announced, of that dtype and shape.
  virtual void write(const std::string& name, const HostArray& tensor) = 0;
  /// This host's tensors are written, all of its files closed.
  virtual void finish_share() {}
  /// All hosts, when each has finished: the first learns of the others' shares what it does not know.
  virtual void join(HostGroup&) {}
  /// The first host, when all have finished their shares: writes what tells of all tensors.
  virtual void finish() = 0;
};

/// A piece of work that hosts do together: runs it on this host and agrees with the others on whether it went
/// well. Rethrows what it threw here, throws ExitCode::kDisk where it failed elsewhere. All hosts call it.
void stage(HostGroup& hosts, const std::function<void()>& work);

}  // namespace quintet
