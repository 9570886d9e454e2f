#include "checkpoint/huggingface/weights_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "checkpoint/huggingface/formats.h"
#include "checkpoint/huggingface/zip_archive.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"

namespace quintet::huggingface {
namespace {

namespace fs = std::filesystem;

struct Format {
  const char *name, *file, *index;
  FileTensors (*read)(std::span<const std::byte> bytes, const std::string& where);
};
constexpr Format kFormats[] = {
    {"safetensors", "model.safetensors", "model.safetensors.index.json", safetensors_tensors},
    {"torch", "pytorch_model.bin", "pytorch_model.bin.index.json", torch_tensors},
    {"flax", "flax_model.msgpack", "flax_model.msgpack.index.json", flax_tensors}};

const Format& format_named(const std::string& name) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats),
                       [&](const Format& f) { return f.name == name; });
}

/// Names of shards must stay in the folder.
void check_shard_name(const std::string& name, const fs::path& index) {
  QT_CHECK_AS(ExitCode::kData,
              !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..",
              "{}: weight_map names '{}', expected the name of a file beside it", index.string(),
              name);
}

}  // namespace

bool WeightsFiles::are_in(const fs::path& folder) {
  return std::any_of(std::begin(kFormats), std::end(kFormats), [&](const Format& format) {
    return is_there(folder / format.file) || is_there(folder / format.index);
  });
}

WeightsFiles::WeightsFiles(const fs::path& folder) {
  for (const Format& format : kFormats) {
    const bool is_single = is_there(folder / format.file);
    if (!is_single && !is_there(folder / format.index)) continue;
    format_ = format.name;
    if (is_single)
      add(folder / format.file, &tensors_);
    else
      add_shards(folder / format.index);
    return;
  }
  fail(
      ExitCode::kData,
      "{}: has no weights: expected model.safetensors, pytorch_model.bin, flax_model.msgpack or an "
      "index of several such files",
      folder.string());
}

void WeightsFiles::add(const fs::path& file, FileTensors* into) {
  files_.push_back(std::make_unique<MappedFile>(file));
  *into = format_named(format_).read(files_.back()->bytes(), file.string());
}

void WeightsFiles::add_shards(const fs::path& index) {
  std::map<std::string, std::vector<std::string>> names_of;  // a shard's tensors
  for (const auto& [name, file] : Json::read(index)["weight_map"].members()) {
    check_shard_name(file.as_string(), index);
    names_of[file.as_string()].push_back(name);
  }
  QT_CHECK_AS(ExitCode::kData, !names_of.empty(), "{}: weight_map names no file", index.string());
  for (const auto& [file, names] : names_of) {
    FileTensors shard;
    add(index.parent_path() / file, &shard);
    if (format_ == "flax") {  // whose index has names of its own
      tensors_.merge(shard);
      continue;
    }
    for (const std::string& name : names) {
      QT_CHECK_AS(ExitCode::kData, shard.contains(name),
                  "{}: has no tensor '{}', which {} says is there",
                  (index.parent_path() / file).string(), name, index.filename().string());
      tensors_.insert(shard.extract(name));
    }
  }
}

int64_t WeightsFiles::bytes() const {
  size_t sum = 0;
  for (const auto& file : files_) sum += file->bytes().size();
  return static_cast<int64_t>(sum);
}

void WeightsFiles::release(const FileTensor& tensor) const {
  for (const auto piece : tensor.pieces) release(piece);
}

void WeightsFiles::release(std::span<const std::byte> part) const {
  for (const auto& file : files_) file->release(part);
}

void WeightsFiles::verify(int part, int parts) const {
  int number = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (number++ % parts != part || !tensor.checksum) continue;
    const Checksum& sum = *tensor.checksum;
    const uint32_t found =
        sum.kind == Checksum::Kind::crc32 ? crc32_of(sum.bytes) : crc32c(sum.bytes);
    release(tensor);
    QT_CHECK_AS(ExitCode::kData, found == sum.value,
                "{}: tensor '{}' is damaged: its checksum is {:08x}, expected {:08x}",
                files_.front()->path().parent_path().string(), name, found, sum.value);
  }
}

}  // namespace quintet::huggingface
