#include "checkpoint/huggingface/huggingface_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/bytes/decompress.h"
#include "checkpoint/bytes/parallel.h"
#include "checkpoint/bytes/write_file.h"
#include "checkpoint/huggingface/config_text.h"
#include "checkpoint/manifest.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"

namespace quintet::huggingface {
namespace {

constexpr int64_t kBlockBytes = 2 << 20;  // of a tensor that is transposed on its way

/// Their shape of one of a tensor's parts.
std::vector<int64_t> part_shape(const MappedTensor& tensor) {
  const bool stacked = tensor.shape.size() == 3;
  std::vector<int64_t> shape(tensor.shape.begin() + (stacked ? 1 : 0), tensor.shape.end());
  if (tensor.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

void check_fits(const std::string& name, const MappedTensor& wanted, const StoredTensor& found) {
  QT_CHECK_AS(ExitCode::kData, found.shape == wanted.shape,
              "tensor '{}' has shape {}, the model's configuration asks for {}", name,
              shape_text(found.shape), shape_text(wanted.shape));
  QT_CHECK_AS(ExitCode::kData,
              found.dtype == DType::f32 || found.dtype == DType::bf16 || found.dtype == DType::f16,
              "tensor '{}' is {}, expected float32, bfloat16 or float16", name,
              name_of(found.dtype));
}

}  // namespace

Writer::Writer(std::filesystem::path folder, Config config, const StoredTensors& tensors,
               int64_t shard_bytes)
    : folder_(std::move(folder)), config_(std::move(config)) {
  const bool untied = tensors.contains(parameter_key("decoder/logits_dense/kernel"));
  std::vector<SafetensorsEntry> entries;
  for (MappedTensor& tensor : mapped_tensors(config_, untied)) {
    const std::string name = parameter_key(tensor.name);
    const auto found = tensors.find(name);
    QT_CHECK_AS(ExitCode::kData, found != tensors.end(),
                "there is no tensor '{}', which a {} of these sizes has", name, config_.model_type);
    check_fits(name, tensor, found->second);
    for (const auto* names : {&tensor.sources, &tensor.copies})
      for (const std::string& theirs : *names)
        entries.push_back({theirs, found->second.dtype, part_shape(tensor)});
    mapped_.emplace(name, std::move(tensor));
  }
  for (const auto& [name, tensor] : tensors)
    QT_CHECK_AS(ExitCode::kData, mapped_.contains(name),
                "tensor '{}' has no place in a Hugging Face {}", name, config_.model_type);
  dtype_ = entries.front().dtype;
  for (const SafetensorsEntry& entry : entries)
    if (entry.dtype != dtype_) dtype_ = DType::f32;
  plan(entries, shard_bytes);
}

void Writer::plan(const std::vector<SafetensorsEntry>& tensors, int64_t shard_bytes) {
  int64_t filled = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    const int64_t bytes = checked_bytes(tensor.dtype, tensor.shape, tensor.name);
    if (shards_.empty() || (filled > 0 && filled + bytes > shard_bytes)) {
      shards_.emplace_back();
      filled = 0;
    }
    shards_.back().tensors.push_back(tensor);
    filled += bytes;
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    shard.path = folder_ / (shards_.size() == 1 ? std::string("model.safetensors")
                                                : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                              i + 1, shards_.size()));
    shard.header = make_safetensors_header(shard.tensors, {{"format", "pt"}}, shard.path.string());
    shard.crc_places = safetensors_crc_places(shard.header, shard.tensors);
    for (size_t k = 0; k < shard.tensors.size(); ++k) places_[shard.tensors[k].name] = {i, k};
  }
}

void Writer::begin() {
  for (Shard& shard : shards_) {
    File file = File::create_new(shard.path);
    const uint64_t header_bytes = shard.header.size();
    const auto first = static_cast<int64_t>(sizeof(header_bytes) + header_bytes);
    file.reserve(first + shard.tensors.back().end);
    file.write_at(0, std::as_bytes(std::span(&header_bytes, 1)));
    file.write_at(sizeof(header_bytes), std::as_bytes(std::span(shard.header)));
    file.close_checked();
  }
}

File& Writer::file_of(Shard& shard) {
  if (!shard.file) shard.file = File::open_write(shard.path);
  return *shard.file;
}

void Writer::write(const std::string& name, const HostArray& tensor) {
  const MappedTensor& mapped = mapped_.at(name);
  const bool stacked = tensor.shape.size() == 3;
  const std::vector<int64_t> shape(tensor.shape.begin() + (stacked ? 1 : 0), tensor.shape.end());
  const size_t bytes = tensor.bytes.size() / mapped.sources.size();
  for (size_t i = 0; i < mapped.sources.size(); ++i) {
    const FileTensor part =
        FileTensor::dense(tensor.dtype, shape, std::span(tensor.bytes).subspan(i * bytes, bytes));
    write_part(mapped.transposed ? part.transposed() : part, mapped.sources[i]);
    for (const std::string& copy : mapped.copies) write_part(part, copy);
  }
}

void Writer::write_part(const FileTensor& part, const std::string& theirs) {
  const Place place = places_.at(theirs);
  Shard& shard = shards_[place.shard];
  const SafetensorsEntry& entry = shard.tensors[place.entry];
  QT_ASSERT(part.shape == entry.shape && part.dtype == entry.dtype);
  const int64_t first = static_cast<int64_t>(sizeof(uint64_t) + shard.header.size()) + entry.begin;
  const int64_t row_bytes = (entry.end - entry.begin) / entry.shape[0];
  const int64_t rows = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, entry.shape[0]);
  std::vector<uint32_t> crcs(static_cast<size_t>((entry.shape[0] + rows - 1) / rows));
  const auto bytes_of = [&](int64_t i) {
    return std::min(rows, entry.shape[0] - i * rows) * row_bytes;
  };
  File& file = file_of(shard);
  for_each_in_parallel(std::ssize(crcs), [&](int64_t i) {
    std::vector<int64_t> origin(entry.shape.size(), 0), sizes = entry.shape;
    origin[0] = i * rows;
    sizes[0] = bytes_of(i) / row_bytes;
    Bytes block(static_cast<size_t>(bytes_of(i)));
    part.copy_region(origin, sizes, block.data());
    crcs[static_cast<size_t>(i)] = crc32c(block.span());
    file.write_at(first + origin[0] * row_bytes, block.span());
  });
  start_writing_out(file.descriptor());
  uint32_t crc = 0;
  for (int64_t i = 0; i < std::ssize(crcs); ++i)
    crc = crc32c_concat(crc, crcs[static_cast<size_t>(i)], static_cast<uint64_t>(bytes_of(i)));
  const std::string digits = fmt::format("{:08x}", crc);
  file.write_at(static_cast<int64_t>(sizeof(uint64_t) + shard.crc_places.at(theirs)),
                std::as_bytes(std::span(digits)));
}

void Writer::finish_share() {
  for (Shard& shard : shards_) {
    if (!shard.file) continue;
    shard.file->close_checked();
    shard.file.reset();
  }
}

std::string Writer::index_text() const {
  int64_t total = 0;
  nlohmann::json names;
  for (const auto& [name, place] : places_) {
    const Shard& shard = shards_[place.shard];
    names[name] = shard.path.filename().string();
    total += shard.tensors[place.entry].end - shard.tensors[place.entry].begin;
  }
  return nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", names}}.dump(
             2) +
         "\n";
}

void Writer::finish() {
  for (Shard& shard : shards_) {
    File& file = file_of(shard);
    file.read_at(sizeof(uint64_t), std::as_writable_bytes(std::span(shard.header)));
    sign_safetensors_header(shard.header);
    file.write_at(sizeof(uint64_t), std::as_bytes(std::span(shard.header)));
    file.trim();
    file.close_checked();
    shard.file.reset();
  }
  if (shards_.size() > 1) write_new_file(folder_ / "model.safetensors.index.json", index_text());
  write_new_file(folder_ / "config.json", config_text(config_, dtype_));
}

}  // namespace quintet::huggingface
