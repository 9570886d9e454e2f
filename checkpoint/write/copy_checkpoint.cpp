#include "checkpoint/write/copy_checkpoint.h"

#include <algorithm>

#include "checkpoint/arrays/half.h"
#include "checkpoint/bytes/parallel.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/lora/peft.h"
#include "checkpoint/manifest.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

int64_t bytes_of(const std::string& name, const StoredTensor& tensor) {
  return checked_bytes(tensor.dtype, tensor.shape, name);
}

/// Into the memory that `array` has, if it is enough.
void read_whole(const CheckpointReader& from, const std::string& name, HostArray& array) {
  const StoredTensor& stored = from.tensors().at(name);
  const auto bytes = static_cast<size_t>(bytes_of(name, stored));
  if (bytes > array.bytes.capacity()) array.bytes = {};  // before there is more
  array.bytes.resize(bytes);
  array.dtype = stored.dtype;
  array.shape = stored.shape;
  from.read({name, std::vector<int64_t>(stored.shape.size(), 0), stored.shape}, array.bytes.data());
}

/// A tensor in the form in which it is to be written.
void read_converted(const CheckpointReader& from, const std::string& name, DType dtype,
                    HostArray& array) {
  read_whole(from, name, array);
  if (array.dtype == dtype) return;
  const std::string_view before = name_of(array.dtype);
  const int64_t not_finite = count_not_finite(array.dtype, array.bytes);
  array = rounded(as_float32(std::move(array)), dtype);
  const int64_t lost = count_not_finite(dtype, array.bytes) - not_finite;
  QT_CHECK_AS(ExitCode::kData, lost == 0,
              "{}: {} values of tensor '{}' ({}) are too large for {}; use bfloat16 or float32",
              from.folder().string(), lost, name, before, name_of(dtype));
}

/// Throws unless the checkpoint holds this host's tensors as they were written, and no others than all.
void read_back(const WriteRequest& request, const std::map<std::string, uint32_t>& crcs,
               const CopyProgress& progress) {
  auto written = open_checkpoint(request.folder);
  if (request.stacking) written = t5x::stacked(written, *request.stacking);
  const auto fail_on = [&](const std::string& name, const std::string& what) {
    fail(ExitCode::kDisk, "{}: tensor '{}' {} when it was read back: failing disk or memory?",
         request.folder.string(), name, what);
  };
  for (const auto& [name, tensor] : written->tensors()) {
    const auto wanted = request.tensors.find(name);
    if (wanted == request.tensors.end() || tensor.dtype != wanted->second.dtype ||
        tensor.shape != wanted->second.shape)
      fail_on(name, "was another one");
  }
  for (const auto& [name, tensor] : request.tensors)
    if (!written->tensors().contains(name)) fail_on(name, "was missing");
  HostArray array;
  int64_t done = 0;
  for (const auto& [name, crc] : crcs) {
    read_whole(*written, name, array);
    if (crc32c_in_parallel(array.bytes) != crc) fail_on(name, "had changed");
    if (progress) progress("read back", done += std::ssize(array.bytes));
  }
}

}  // namespace

StoredTensors tensors_for(const CheckpointReader& from, const WriteFormat& format,
                          std::optional<DType> dtype) {
  StoredTensors tensors;
  if (!format.holds_models) {
    const Adapter* adapter = adapter_in(from);
    QT_CHECK(adapter != nullptr,
             "{}: has no adapter that --to={} could write; name a run of quintet finetune "
             "--lora_rank, or an adapter with --adapter",
             from.folder().string(), format.name);
    for (const auto& [kernel, matrices] : adapter->kernels) {
      tensors[lora_name(kernel, "lora_a")] = {DType::f32, matrices.a.shape};
      tensors[lora_name(kernel, "lora_b")] = {DType::f32, matrices.b.shape};
    }
    return tensors;
  }
  for (const auto& [name, tensor] : from.tensors()) {
    const bool is_parameter = name.starts_with(kParameterPrefix);
    if (!is_parameter && !format.has_optimizer) continue;
    StoredTensor& added = tensors[name] = tensor;
    if (!is_parameter || !dtype) continue;
    QT_CHECK_AS(ExitCode::kData, is_floating(tensor.dtype) && tensor.dtype != DType::f64,
                "{}: tensor '{}' is {}: only float32, bfloat16 and float16 become another dtype",
                from.folder().string(), name, name_of(tensor.dtype));
    added.dtype = *dtype;
  }
  return tensors;
}

std::vector<std::string> share_of(const StoredTensors& tensors, int host, int hosts) {
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [name, tensor] : tensors) order.emplace_back(-bytes_of(name, tensor), name);
  std::sort(order.begin(), order.end());
  std::vector<int64_t> load(static_cast<size_t>(hosts), 0);
  std::vector<std::string> share;
  for (const auto& [negative_bytes, name] : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least -= negative_bytes;
    if (least - load.begin() == host) share.push_back(name);
  }
  return share;
}

void copy_checkpoint(const CheckpointReader& from, const WriteFormat& format, WriteRequest request,
                     HostGroup& hosts, const CopyProgress& progress) {
  request.host = hosts.index();
  request.hosts = hosts.count();
  request.share = share_of(request.tensors, request.host, request.hosts);
  std::ranges::sort(request.share, {}, [&](const auto& name) { return from.storage_key(name); });
  const bool leads = request.host == 0;
  if (!format.holds_models)
    return stage(hosts, [&] {
      if (!leads) return;
      write_peft(request.folder, *adapter_in(from), from);
      check_peft(request.folder, *adapter_in(from), from);
      sync_file_system(request.folder);
    });
  std::unique_ptr<CheckpointWriter> writer;
  stage(hosts, [&] {
    writer = format.make(request);
    if (leads) writer->begin();
  });
  std::map<std::string, uint32_t> crcs;
  stage(hosts, [&] {
    int64_t done = 0;
    HostArray array;
    for (const std::string& name : request.share) {
      read_converted(from, name, request.tensors.at(name).dtype, array);
      writer->write(name, array);
      crcs[name] = crc32c_in_parallel(array.bytes);
      if (progress) progress("convert", done += std::ssize(array.bytes));
    }
    writer->finish_share();
  });
  stage(hosts, [&] {
    writer->join(hosts);
    if (leads) writer->finish();
  });
  stage(hosts, [&] {
    read_back(request, crcs, progress);  // while the disk writes
    sync_file_system(std::filesystem::is_directory(request.folder) ? request.folder
                                                                   : request.folder.parent_path());
  });
}

}  // namespace quintet
