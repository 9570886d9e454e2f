#include "checkpoint/save.h"

#include <set>

#include "checkpoint/commit.h"
#include "checkpoint/reader.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

void check_names(const std::vector<TensorSlice>& slices) {
  std::set<std::string> names;
  for (const TensorSlice& slice : slices) names.insert(slice.name);
  for (const TensorSlice& slice : slices) {
    check_tensor_name(slice.name);
    for (size_t end = slice.name.find('/'); end != std::string::npos;
         end = slice.name.find('/', end + 1))
      QT_CHECK(!names.contains(slice.name.substr(0, end)),
               "checkpoint: '{}' is a tensor and '{}' lies below it; rename one of them",
               slice.name.substr(0, end), slice.name);
    QT_ASSERT(slice.origin.size() == slice.global_shape.size());
    QT_ASSERT(slice.sizes.size() == slice.global_shape.size());
  }
}

/// Before anything is written: what surely does not fit is refused with both numbers.
void check_space(const std::filesystem::path& model_dir, const std::vector<TensorSlice>& slices) {
  int64_t needed = 0;
  for (const TensorSlice& slice : slices)
    needed += checked_bytes(slice.dtype, slice.sizes, slice.name);
  const int64_t available = free_bytes(model_dir);
  if (available >= 0 && available < needed)
    fail_disk(model_dir, "save a checkpoint", ENOSPC, needed);
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  File file = File::create_new(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close_checked();
}

/// Makes a finished file durable and describes it. The disk writes while the file is read back.
ManifestFile sealed(const std::filesystem::path& path, const std::vector<TensorSlice>& slices,
                    const std::vector<ManifestSlice>& written) {
  File file = File::open_write(path);
  file.trim();
  start_writing_out(file.descriptor());
  ManifestFile result{path.filename().string(), file.size(), 0};
  try {
    result.crc = read_back(path, slices, written);
  } catch (const Error& error) {
    fail(ExitCode::kDisk, "{} (just written and read back: failing disk or memory?)", error.what());
  }
  file.sync();
  file.close_checked();
  return result;
}

}  // namespace

NativeCheckpointWriter::NativeCheckpointWriter(std::filesystem::path folder,
                                               std::vector<TensorSlice> slices, FileLabel label,
                                               int hosts, std::string state_json)
    : folder_(std::move(folder)),
      slices_(std::move(slices)),
      label_(std::move(label)),
      state_json_(std::move(state_json)) {
  QT_CHECK(label_.step >= 0, "checkpoint: step {} is negative", label_.step);
  check_names(slices_);
  check_space(folder_.parent_path(), slices_);
  share_.step = label_.step;
  share_.run_id = label_.run_id;
  share_.hosts = hosts;
}

std::filesystem::path NativeCheckpointWriter::data_path() const {
  return folder_ / data_file_name(label_.host, share_.hosts);
}

DataFile& NativeCheckpointWriter::data_file() {
  if (!file_) file_.emplace(data_path(), slices_, label_);
  return *file_;
}

void NativeCheckpointWriter::begin() {
  remove_tree(folder_);
  make_folder(folder_);
}

void NativeCheckpointWriter::write(const std::string& name, const HostArray& tensor) {
  write(whole_slice(name, tensor));
}

void NativeCheckpointWriter::write(const TensorSlice& slice) {
  QT_ASSERT(written_.size() < slices_.size() && slices_[written_.size()].name == slice.name);
  written_.push_back(data_file().write(slice));
  ManifestTensor& tensor = share_.tensors[slice.name];
  QT_ASSERT(tensor.slices.empty() ||
            (tensor.dtype == slice.dtype && tensor.shape == slice.global_shape));
  tensor.dtype = slice.dtype;
  tensor.shape = slice.global_shape;
  tensor.slices.push_back(written_.back());
}

void NativeCheckpointWriter::finish_share() {
  QT_ASSERT(written_.size() == slices_.size());
  data_file().close();
  share_.files.push_back(sealed(data_path(), slices_, written_));
}

void join_shares(Manifest& share, HostGroup& hosts) {
  const int self = hosts.index();
  for (int distance = 1; distance < hosts.count(); distance *= 2) {
    if (self % (2 * distance) != 0) return hosts.tell(self - distance, packed(share));
    if (self + distance < hosts.count()) merge_part(share, unpacked(hosts.hear(self + distance)));
  }
}

void NativeCheckpointWriter::join(HostGroup& hosts) { join_shares(share_, hosts); }

/// Adds state.h5 and the manifest, checks all of it as a reader would.
void NativeCheckpointWriter::finish() {
  write_state_file(folder_, share_);
  share_.files.push_back(sealed(folder_ / kStateName, {}, {}));
  share_.state_json = state_json_;
  const std::string text = manifest_text(share_);
  parse_manifest(text, (folder_ / kManifestName).string());  // what we write, we can read
  write_text(folder_ / kManifestName, text);
  sync_folder(folder_);
}

int64_t write_checkpoint(const std::filesystem::path& model_dir, int64_t step,
                         const std::string& run_id, const std::vector<TensorSlice>& slices,
                         const std::string& state_json, HostGroup& hosts) {
  const std::filesystem::path temporary = temporary_path(model_dir, step);
  std::optional<NativeCheckpointWriter> writer;
  try {
    stage(hosts, [&] {
      writer.emplace(temporary, slices, FileLabel{step, run_id, hosts.index()}, hosts.count(),
                     state_json);
      if (hosts.index() == 0) writer->begin();
    });
    stage(hosts, [&] {
      for (const TensorSlice& slice : slices) writer->write(slice);
      writer->finish_share();
    });
    stage(hosts, [&] {
      writer->join(hosts);
      if (hosts.index() != 0) return;
      writer->finish();
      publish(model_dir, step);
    });
  } catch (...) {
    writer.reset();  // which has files open there
    if (hosts.index() == 0) {
      try {
        remove_tree(temporary);
      } catch (const Error&) {  // the first error is the one to report; the next start cleans up
      }
    }
    throw;
  }
  return writer->bytes();
}

}  // namespace quintet
