#include "checkpoint/orbax/orbax_reader.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/arrays/file_tensor.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::orbax {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetadata = "_METADATA";
constexpr const char* kIndex = "checkpoint";
constexpr const char* kArray = ".zarray";
constexpr const char* kProcess = "ocdbt.process_";

bool holds_arrays(const fs::path& folder) {
  return ocdbt::Store::is_in(folder) || is_there(folder / kMetadata);
}

/// The folder itself, or the item of it that T5X calls "state".
fs::path item_of(const fs::path& folder) {
  for (const fs::path& item : {folder, folder / "state"}) {
    if (holds_arrays(item)) return item;
    std::error_code error;
    if (!fs::is_directory(item, error)) continue;
    for (const std::string& name : names_in(item))
      QT_CHECK_AS(ExitCode::kData, !name.starts_with(kProcess),
                  "{}: was not finished: its processes' stores ({}) were not merged into one; "
                  "use an earlier checkpoint",
                  item.string(), name);
  }
  fail(ExitCode::kData,
       "{}: has neither manifest.ocdbt nor _METADATA, nor a folder 'state' that "
       "has; it is no Orbax checkpoint, or was not finished",
       folder.string());
}

int64_t bytes_below(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

/// T5X of 2022 saved a train state inside of another.
std::string without_wrapper(const std::string& path) {
  constexpr std::string_view kWrapper = "_optimizer/";
  return path.starts_with(kWrapper) ? path.substr(kWrapper.size()) : path;
}

std::string with_slashes(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name;
}

}  // namespace

Reader::Reader(fs::path folder) : CheckpointReader(std::move(folder)), item_(item_of(folder_)) {
  read_metadata();
  read_index();
  if (ocdbt::Store::is_in(item_))
    add_store();
  else
    add_folders();
  QT_CHECK_AS(ExitCode::kData, !arrays_.empty(), "{}: holds no arrays", item_.string());
  check_all_are_there();
  file_bytes_ = bytes_below(item_);
  step_ = find_step();
}

/// A name in a store is the keys of its place in the tree with dots between, and keys may hold dots.
void Reader::read_metadata() {
  if (!is_there(item_ / kMetadata)) return;
  const Json metadata = Json::read(item_ / kMetadata);
  QT_CHECK_AS(ExitCode::kData, !metadata.has("use_zarr3") || !metadata["use_zarr3"].as_bool(),
              "{}: its arrays are of zarr format 3, only 2 is read; save them with use_zarr3=False",
              item_.string());
  constexpr std::string_view kArrays[] = {"np.ndarray", "jax.Array", "scalar"};
  for (const auto& [path, entry] : metadata["tree_metadata"].members()) {
    std::vector<std::string> keys;
    for (const Json& key : entry["key_metadata"].items()) keys.push_back(key["key"].as_string());
    const std::string type = entry["value_metadata"]["value_type"].as_string();
    if (std::find(std::begin(kArrays), std::end(kArrays), type) != std::end(kArrays))
      names_[fmt::format("{}", fmt::join(keys, "."))] = fmt::format("{}", fmt::join(keys, "/"));
  }
}

void Reader::read_index() {
  if (!is_there(item_ / kIndex)) return;
  index_file_ = std::make_unique<const MappedFile>(item_ / kIndex);
  index_ = t5x::read_index(index_file_->bytes(), index_file_->path().string());
  for (const auto& [path, leaf] : index_.leaves) {
    if (leaf.folder.empty())
      tensors_[path] = {leaf.array.dtype, leaf.array.shape};
    else
      names_[leaf.folder] = path;
  }
}

void Reader::add(const std::string& name, zarr::Array array) {
  const auto known = names_.find(name);
  const std::string path =
      without_wrapper(known == names_.end() ? with_slashes(name) : known->second);
  QT_CHECK_AS(ExitCode::kData,
              tensors_.emplace(path, StoredTensor{array.dtype(), array.shape()}).second,
              "{}: has array '{}' twice", item_.string(), path);
  arrays_.emplace(path, std::move(array));
}

void Reader::add_store() {
  auto store = std::make_shared<ocdbt::Store>(std::make_unique<ocdbt::FolderFiles>(item_));
  store_ = store;
  const std::string suffix = std::string("/") + kArray;
  for (const auto& [key, bytes] : store->values()) {
    QT_CHECK_AS(ExitCode::kData, !key.ends_with("/zarr.json"),
                "{}: '{}' is of zarr format 3, only 2 is read; save with use_zarr3=False",
                item_.string(), key);
    if (!key.ends_with(suffix)) continue;
    const std::string name = key.substr(0, key.size() - suffix.size());
    const auto chunks =
        [store, prefix = name + "/"](const std::string& chunk) -> std::optional<zarr::Chunk> {
      const auto found = store->values().find(prefix + chunk);
      if (found == store->values().end()) return std::nullopt;
      const std::span<const std::byte> stored = found->second;
      return zarr::Chunk{stored, {stored.data(), [store, stored](const void*) {
                                    store->files().release(stored);
                                  }}};
    };
    add(name, zarr::Array({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, chunks,
                          fmt::format("{}: {}", item_.string(), key)));
  }
}

void Reader::add_folders() {
  for (const std::string& name : names_in(item_)) {
    const fs::path array = item_ / name;
    QT_CHECK_AS(ExitCode::kData, !is_there(array / "zarr.json"),
                "{}: is of zarr format 3, only 2 is read; save with use_zarr3=False",
                array.string());
    if (is_there(array / kArray))
      add(name,
          zarr::Array(read_file(array / kArray), zarr::files_in(array), (array / kArray).string()));
  }
}

void Reader::check_all_are_there() const {
  for (const auto& [name, path] : names_)
    QT_CHECK_AS(ExitCode::kData, arrays_.contains(without_wrapper(path)),
                "{}: {} lists array '{}', which is not there; the copy is not complete",
                item_.string(), index_file_ ? kIndex : kMetadata, name);
}

int64_t Reader::find_step() const {
  const auto found = tensors_.find("state/step");
  if (found == tensors_.end()) return 0;
  const auto& [dtype, shape] = found->second;
  const bool is_scalar = shape.empty() || shape == std::vector<int64_t>{1};
  QT_CHECK_AS(ExitCode::kData, is_scalar && (dtype == DType::i32 || dtype == DType::i64),
              "{}: state/step is {} {}, expected an integer", item_.string(), name_of(dtype),
              shape_text(shape));
  int64_t step = 0;  // little endian: four bytes of an int32 are its value
  read({"state/step", std::vector<int64_t>(shape.size()), shape},
       reinterpret_cast<std::byte*>(&step));
  return step;
}

std::vector<std::pair<std::string, std::string>> Reader::details() const {
  if (!store_) return {{"arrays", "zarr, a folder each"}};
  return {{"arrays", "zarr in an OCDBT store"},
          {"generation", std::to_string(store_->generation())}};
}

NotFinite Reader::verify(int part, int parts) const {
  NotFinite not_finite;
  int64_t i = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (i++ % parts != part) continue;
    int64_t count = 0;
    if (const auto found = arrays_.find(name); found != arrays_.end())
      count = found->second.verify();
    else
      for (const auto piece : index_.leaves.at(name).array.pieces)
        count += count_not_finite(tensor.dtype, piece);
    if (count > 0) not_finite[name] = count;
  }
  return not_finite;
}

void Reader::read_region(const TensorRegion& region, std::byte* target) const {
  if (const auto found = arrays_.find(region.name); found != arrays_.end())
    found->second.read(region.origin, region.sizes, target);
  else
    index_.leaves.at(region.name).array.copy_region(region.origin, region.sizes, target);
}

}  // namespace quintet::orbax
