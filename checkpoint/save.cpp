#include "checkpoint/save.h"

#include <exception>
#include <functional>
#include <set>

#include "checkpoint/commit.h"
#include "checkpoint/hdf5_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

void check_slices(int64_t step, const std::vector<TensorSlice>& slices) {
  QT_CHECK(step >= 0, "checkpoint: step {} is negative", step);
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

/// Makes a finished file durable and describes it.
ManifestFile sealed(const std::filesystem::path& path, const std::vector<TensorSlice>& slices,
                    const std::vector<ManifestSlice>& written) {
  File file = File::open_write(path);
  file.trim();
  file.sync();
  ManifestFile result{path.filename().string(), file.size(), 0};
  file.close_checked();
  try {
    result.crc = read_back(path, slices, written);
  } catch (const Error& error) {
    fail(ExitCode::kDisk, "{} (just written and read back: failing disk or memory?)", error.what());
  }
  return result;
}

std::filesystem::path part_path(const std::filesystem::path& temporary, int host) {
  return temporary / fmt::format("part-{:05}.json", host);
}

/// This host's file, as a manifest of one file.
Manifest write_share(const std::filesystem::path& temporary, int64_t step,
                     const std::string& run_id, const std::vector<TensorSlice>& slices,
                     const HostGroup& hosts) {
  Manifest part;
  part.step = step;
  part.run_id = run_id;
  part.hosts = hosts.count();
  const auto path = temporary / data_file_name(hosts.index(), hosts.count());
  const auto written = write_data_file(path, slices, {step, run_id, hosts.index()});
  part.files.push_back(sealed(path, slices, written));
  for (size_t i = 0; i < slices.size(); ++i) {
    ManifestTensor& tensor = part.tensors[slices[i].name];
    QT_ASSERT(tensor.slices.empty() ||
              (tensor.dtype == slices[i].dtype && tensor.shape == slices[i].global_shape));
    tensor.dtype = slices[i].dtype;
    tensor.shape = slices[i].global_shape;
    tensor.slices.push_back(written[i]);
  }
  return part;
}

/// Host 0: joins the shares, adds state.h5 and the manifest, checks all of it as a reader would.
void write_whole(const std::filesystem::path& temporary, Manifest whole,
                 const std::string& state_json) {
  for (int host = 1; host < whole.hosts; ++host) {
    const auto path = part_path(temporary, host);
    File file = File::open_read(path);
    std::string text(static_cast<size_t>(file.size()), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    merge_part(whole, parse_manifest(text, path.string(), Coverage::part));
    remove_tree(path);
  }
  write_state_file(temporary, whole);
  whole.files.push_back(sealed(temporary / kStateName, {}, {}));
  whole.state_json = state_json;
  const std::string text = manifest_text(whole);
  parse_manifest(text, (temporary / kManifestName).string());  // what we write, we can read
  write_text(temporary / kManifestName, text);
  sync_folder(temporary);
}

/// Runs one stage on this host and agrees with the others on whether it went well.
void stage(HostGroup& hosts, const std::function<void()>& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  const bool all = hosts.all_ok(!failure);
  if (failure) std::rethrow_exception(failure);
  QT_CHECK_AS(ExitCode::kDisk, all, "checkpoint: another host could not save its part");
}

}  // namespace

int64_t write_checkpoint(const std::filesystem::path& model_dir, int64_t step,
                         const std::string& run_id, const std::vector<TensorSlice>& slices,
                         const std::string& state_json, HostGroup& hosts) {
  const std::filesystem::path temporary = temporary_path(model_dir, step);
  Manifest part;
  try {
    stage(hosts, [&] {
      check_slices(step, slices);
      check_space(model_dir, slices);
      if (hosts.index() != 0) return;
      remove_tree(temporary);
      make_folder(temporary);
    });
    stage(hosts, [&] {
      part = write_share(temporary, step, run_id, slices, hosts);
      if (hosts.index() != 0) write_text(part_path(temporary, hosts.index()), manifest_text(part));
    });
    stage(hosts, [&] {
      if (hosts.index() != 0) return;
      write_whole(temporary, part, state_json);
      publish(model_dir, step);
    });
  } catch (...) {
    if (hosts.index() == 0) {
      try {
        remove_tree(temporary);
      } catch (const Error&) {  // the first error is the one to report; the next start cleans up
      }
    }
    throw;
  }
  return part.files.at(0).bytes;
}

}  // namespace quintet
