#pragma once
// Native checkpoints: `checkpoint_<step>/` exists whole or not at all, whatever kills us when.
//
//   FolderLock lock(model_dir);
//   CheckpointManager checkpoints(lock, {.keep = 3});       // removes leftovers of a killed run
//   if (const auto latest = checkpoints.latest_whole())
//     load(*latest);
//   ...
//   checkpoints.save_async(step, slices, state_json);       // copies, writes in the background
//   checkpoints.poll();                                      // each step: surfaces failed saves
//   checkpoints.finish();                                    // at the end: waits, throws if lost
//
// Reading needs no manager and no lock: list_checkpoints, read_checkpoint. Knows nothing of models,
// meshes or optimizers: tensors are names and blocks. HDF5 stays behind checkpoint/hdf5_writer.h.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/files/folder_lock.h"
#include "runtime/base/host_array.h"

namespace quintet {

class CheckpointReader;

/// A block of a tensor held by this host. The blocks of all hosts tile the tensor, each element once.
struct TensorSlice {
  std::string name;  // T5X's parameter path: "target/decoder/logits_dense/kernel"
  DType dtype = DType::f32;
  std::vector<int64_t> global_shape;  // of the whole tensor; empty: a scalar
  std::vector<int64_t> origin;        // of the block in it
  std::vector<int64_t> sizes;         // of the block
  const std::byte* data = nullptr;    // row-major, not owned
};

/// A whole tensor as one slice; keeps a pointer into `array`.
TensorSlice whole_slice(std::string name, const HostArray& array);

/// The hosts that write one checkpoint together. One process is the default.
class HostGroup {
 public:
  virtual ~HostGroup() = default;
  virtual int index() const { return 0; }
  virtual int count() const { return 1; }
  /// Waits for all hosts; true if every one of them said `ok`.
  virtual bool all_ok(bool ok) { return ok; }
  /// The first host's text; all hosts call it.
  virtual std::string of_first(const std::string& text) { return text; }
  /// A text from one host to another, which calls hear() for it.
  virtual void tell(int host, const std::string& text);
  virtual std::string hear(int host);
};

/// One that no other run has: from time and process.
std::string make_run_id();

struct CheckpointOptions {
  int keep = 1;  // newest steps kept; 0: all. A step with a file PINNED is never removed
  /// Instead of all but the newest `keep`: of all steps, ascending but the one just saved last, those that
  /// go. Neither that one nor PINNED ones do. Called by the thread that saved; adds warnings.
  std::function<std::vector<int64_t>(const std::vector<int64_t>& steps,
                                     std::vector<std::string>& warnings)>
      choose_removed = {};
  /// Called by the thread that saved, on all hosts, when a checkpoint is there and old ones are gone; adds
  /// warnings. What it throws is as if the save had failed.
  std::function<void(int64_t step, HostGroup& hosts, std::vector<std::string>& warnings)>
      after_save = {};
  int save_failures_max = 3;  // background saves that may fail in a row before poll() throws
  std::string run_id = {};    // written into every file; empty: made from time, host and pid
  std::shared_ptr<HostGroup> hosts = {};              // null: this process alone
  std::function<void(const std::string&)> warn = {};  // null: "warning: ..." on stderr
};

/// What a checkpoint holds.
struct Checkpoint {
  int64_t step = 0;
  std::string run_id;
  HostArrays arrays;
  std::string state_json;  // data position and other small state, as given to save
};

/// crc: every byte is checked against the manifest. size: only presence and sizes of the files.
enum class Verify { crc, size };

/// Part of a tensor to be read: any mesh reads what any other wrote.
struct TensorRegion {
  std::string name;
  std::vector<int64_t> origin, sizes;
};

/// Steps of the checkpoints in a model directory, ascending. Empty if the folder is not there;
/// throws ExitCode::kDisk if it cannot be listed.
std::vector<int64_t> list_checkpoints(const std::filesystem::path& model_dir);
std::filesystem::path checkpoint_path(const std::filesystem::path& model_dir, int64_t step);

/// Reads `checkpoint_<step>/`. Throws ExitCode::kData naming file or tensor, expected and found, if
/// anything is missing, extra, cut, changed, from another step, or of a format version we don't know.
Checkpoint read_checkpoint(const std::filesystem::path& folder, Verify verify = Verify::crc);
/// One line for each difference between what a checkpoint holds and what a model needs: missing,
/// unexpected, other shape, other dtype. Empty: they match. The arrays' bytes are not looked at.
std::vector<std::string> compare_tensors(const HostArrays& found, const HostArrays& wanted);
/// Throws ExitCode::kData with all of compare_tensors' lines if there are any.
void check_tensors_match(const std::filesystem::path& folder, const HostArrays& found,
                         const HostArrays& wanted);

/// Writes, keeps and restores the checkpoints of one training run. One thread calls it.
class CheckpointManager {
 public:
  /// Removes what a killed run left behind (unfinished saves, unfinished deletions).
  CheckpointManager(const FolderLock& lock, CheckpointOptions options = {});
  /// Waits for the background save; reports a failure that nobody asked about as a warning.
  ~CheckpointManager();

  std::vector<int64_t> steps() const;
  std::optional<int64_t> latest_step() const;

  /// Writes a checkpoint before returning, then removes what `keep` says. Throws ExitCode::kDisk with
  /// path, bytes needed and free; earlier checkpoints are intact and nothing half-written is left.
  /// An existing checkpoint of the step is replaced in one move.
  void save(int64_t step, const std::vector<TensorSlice>& slices, const std::string& state_json);

  /// Copies the slices and returns; a thread writes them. Waits first if the save before is still
  /// being written, so at most one copy is ever held.
  void save_async(int64_t step, const std::vector<TensorSlice>& slices,
                  const std::string& state_json);
  /// The same of a copy that the caller makes: the thread that writes asks for its slices, whose memory is
  /// left alone until wait() has returned. What `slices` throws fails the save.
  using SlicesWhenReady = std::function<std::vector<TensorSlice>()>;
  void save_async(int64_t step, SlicesWhenReady slices, const std::string& state_json);

  /// Cheap; call every step. A background save that failed is a warning, the
  /// `save_failures_max`-th in a row throws ExitCode::kDisk, as does any while there is no checkpoint at
  /// all. Errors that are not the disk's throw at once.
  void poll();
  /// Waits for the background save, then as poll().
  void wait();
  /// The end of the run: waits, and throws if the last save failed: a run never ends well without it.
  void finish();

  /// Seconds and bytes of the last save that was written.
  struct Timing {
    double stall_seconds = 0;  // the caller waited: copying, and the save before
    double write_seconds = 0;  // in the background
    int64_t bytes = 0;
  };
  Timing last_timing() const;

  /// The newest checkpoint that is whole, its checksums verified by all hosts together, and holds
  /// finite numbers alone. The first host looks which files there are and sends the others its
  /// manifest. Others that are newer are reported loudly and set aside as
  /// `damaged-checkpoint_<step>`; if there are checkpoints and none is good, throws ExitCode::kData.
  /// Null: there are none.
  std::shared_ptr<const CheckpointReader> latest_whole();

  /// Removes a step; the deletion is all or nothing, whatever kills us. PINNED ones too.
  void remove(int64_t step);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quintet
