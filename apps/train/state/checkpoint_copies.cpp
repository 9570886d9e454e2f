#include "apps/train/state/checkpoint_copies.h"

#include <omp.h>

#include <algorithm>

#include "apps/convert/t5x_stacking.h"
#include "apps/input/run_vocabularies.h"
#include "checkpoint/commit.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/write/copy_checkpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

/// Of this thread: the others train.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;

 private:
  int before_ = omp_get_max_threads();
};

/// The next start does where this fails.
void try_to_remove(const std::filesystem::path& unfinished) {
  try {
    remove_tree(unfinished);
  } catch (const Error&) {  // the failure that brought us here is the one to tell
  }
}

}  // namespace

CheckpointCopies::CheckpointCopies(std::filesystem::path model_dir,
                                   const std::vector<std::string>& formats,
                                   const ConfiguredModel& model, RunFiles run_files)
    : model_dir_(std::move(model_dir)), run_files_(std::move(run_files)) {
  for (const std::string& name : formats) {
    Copies copies{.format = &write_format_named(name), .folder = model_dir_ / name};
    if (!copies.format->is_run_directory && copies.format->holds_models)
      copies.directory = huggingface_directory(model);
    if (name == "t5x") copies.stacking = t5x_stacking(model.model->spec());
    formats_.push_back(std::move(copies));
  }
}

/// The folder becomes one that every verb reads.
void CheckpointCopies::prepare(Copies& copies) const {
  if (copies.is_prepared) return;
  make_folders(copies.folder);
  if (copies.format->is_run_directory) {
    atomic_write_file(copies.folder / "config.gin", run_files_.config_text);
    copy_vocabularies(copies.folder, run_files_.vocabularies);
  }
  copies.is_prepared = true;
}

void CheckpointCopies::write(const Copies& copies, int64_t step, HostGroup& hosts) const {
  const bool leads = hosts.index() == 0;
  std::shared_ptr<const CheckpointReader> from;
  WriteRequest request{.folder = temporary_path(copies.folder, step), .step = step};
  if (copies.directory) request.config = copies.directory->config;
  stage(hosts, [&] {
    from = open_checkpoint(checkpoint_path(model_dir_, step));
    if (copies.stacking) from = t5x::stacked(from, *(request.stacking = copies.stacking));
    request.tensors = tensors_for(*from, *copies.format, std::nullopt);
    if (!leads) return;
    remove_tree(request.folder);
    make_folder(request.folder);
  });
  copy_checkpoint(*from, *copies.format, request, hosts);
  stage(hosts, [&] {
    if (!leads) return;
    if (copies.directory)
      for (const auto& [name, text] : copies.directory->files)
        atomic_write_file(request.folder / name, text);
    publish(copies.folder, step);
    remove_surplus(copies);
  });
}

void CheckpointCopies::remove_surplus(const Copies& copies) const {
  for (const int64_t step : list_checkpoints(copies.folder))
    if (!is_there(checkpoint_path(model_dir_, step)) &&
        !is_there(checkpoint_path(copies.folder, step) / kPinnedName))
      trash(copies.folder, step);
}

void CheckpointCopies::follow(int64_t step, HostGroup& hosts, std::vector<std::string>& warnings) {
  const OneThread alone;
  const bool leads = hosts.index() == 0;
  for (Copies& copies : formats_) {
    try {
      stage(hosts, [&] {
        if (leads) prepare(copies);
      });
      write(copies, step, hosts);
    } catch (const std::exception& failure) {
      const auto* error = dynamic_cast<const Error*>(&failure);
      if (error != nullptr && error->code() == ExitCode::kPeer) throw;
      warnings.push_back(fmt::format("checkpoint_{} is saved, but not as {} in {}: {}", step,
                                     copies.format->title, copies.folder.string(), failure.what()));
      if (leads) try_to_remove(temporary_path(copies.folder, step));
    }
  }
}

void CheckpointCopies::tidy() const {
  for (const Copies& copies : formats_) {
    if (!std::filesystem::is_directory(copies.folder)) continue;
    remove_leftovers(copies.folder);
    remove_surplus(copies);
  }
}

bool CheckpointCopies::lacks(int64_t step) const {
  return std::any_of(formats_.begin(), formats_.end(), [&](const Copies& copies) {
    return !is_there(checkpoint_path(copies.folder, step));
  });
}

}  // namespace quintet
