#include "checkpoint/write/formats.h"

#include "checkpoint/huggingface/huggingface_writer.h"
#include "checkpoint/save.h"
#include "checkpoint/t5x/t5x_writer.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

std::unique_ptr<CheckpointWriter> make_native(const WriteRequest& request) {
  std::vector<TensorSlice> slices;
  for (const std::string& name : request.share) {
    const StoredTensor& tensor = request.tensors.at(name);
    slices.push_back({.name = name,
                      .dtype = tensor.dtype,
                      .global_shape = tensor.shape,
                      .origin = std::vector<int64_t>(tensor.shape.size(), 0),
                      .sizes = tensor.shape});
  }
  return std::make_unique<NativeCheckpointWriter>(
      request.folder, std::move(slices), FileLabel{request.step, request.run_id, request.host},
      request.hosts, request.state_json);
}

std::unique_ptr<CheckpointWriter> make_t5x(const WriteRequest& request) {
  return std::make_unique<t5x::Writer>(request.folder, request.tensors, request.host);
}

std::unique_ptr<CheckpointWriter> make_huggingface(const WriteRequest& request) {
  QT_ASSERT(request.config.has_value());
  return std::make_unique<huggingface::Writer>(request.folder, *request.config, request.tensors,
                                               request.shard_bytes);
}

constexpr WriteFormat kFormats[] = {
    {"native", "a native checkpoint", true, true, true, make_native},
    {"t5x", "a T5X checkpoint", true, true, true, make_t5x},
    {"hf", "a Hugging Face directory", false, false, true, make_huggingface},
    {"peft", "a PEFT adapter", false, false, false, nullptr}};

}  // namespace

std::span<const WriteFormat> write_formats() { return kFormats; }

const WriteFormat& write_format_named(std::string_view name) {
  std::string known;
  for (const WriteFormat& format : kFormats) {
    if (format.name == name) return format;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", format.name);
  }
  fail(ExitCode::kUsage, "--to={}: is no format that is written; formats are {}", name, known);
}

}  // namespace quintet
