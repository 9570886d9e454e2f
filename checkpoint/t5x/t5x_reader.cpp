#include "checkpoint/t5x/t5x_reader.h"

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::t5x {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "checkpoint";
constexpr const char* kArray = ".zarray";

fs::path index_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  return fs::is_regular_file(path / kIndex, error) ? path / kIndex : path / "state" / kIndex;
}

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

}  // namespace

Reader::Reader(fs::path path)
    : CheckpointReader(std::move(path)),
      file_(index_of(folder_)),
      index_(read_index(file_.bytes(), file_.path().string())),
      file_bytes_(static_cast<int64_t>(file_.bytes().size())) {
  for (const auto& [name, leaf] : index_.leaves) {
    if (leaf.folder.empty()) {
      tensors_[name] = {leaf.array.dtype, leaf.array.shape};
      continue;
    }
    const zarr::Array& array = arrays_.emplace(name, open_array(name, leaf)).first->second;
    tensors_[name] = {array.dtype(), array.shape()};
    file_bytes_ += bytes_in(file_.path().parent_path() / leaf.folder);
  }
  step_ = find_step();
}

zarr::Array Reader::open_array(const std::string& name, const Leaf& leaf) const {
  const fs::path folder = file_.path().parent_path() / leaf.folder;
  std::error_code error;
  QT_CHECK_AS(ExitCode::kData, fs::is_directory(folder, error),
              "{}: says that '{}' lies in '{}', which is no folder beside it; the copy of this "
              "checkpoint is not complete",
              file_.path().string(), name, leaf.folder);
  const zarr::Chunks chunks = zarr::files_in(folder);
  QT_CHECK_AS(ExitCode::kData, !is_there(folder / "zarr.json"),
              "{}: is of zarr format 3, only 2 is read, which T5X writes; store it as that",
              folder.string());
  if (!is_there(folder / kArray)) {
    QT_CHECK_AS(ExitCode::kData, !leaf.metadata.empty(),
                "{}: is missing, and {} does not say what '{}' is; the copy of this checkpoint is "
                "not complete",
                (folder / kArray).string(), file_.path().filename().string(), name);
    return {leaf.metadata, chunks, fmt::format("{}: '{}'", file_.path().string(), name)};
  }
  zarr::Array array(read_file(folder / kArray), chunks, (folder / kArray).string());
  if (!leaf.metadata.empty()) {
    const zarr::Array described(leaf.metadata, chunks,
                                fmt::format("{}: '{}'", file_.path().string(), name));
    const std::string file = file_.path().filename().string();
    QT_CHECK_AS(ExitCode::kData, described.shape() == array.shape(), "{}: has shape {}, {} says {}",
                (folder / kArray).string(), shape_text(array.shape()), file,
                shape_text(described.shape()));
    QT_CHECK_AS(ExitCode::kData, described.dtype() == array.dtype(), "{}: is {}, {} says {}",
                (folder / kArray).string(), name_of(array.dtype()), file,
                name_of(described.dtype()));
  }
  return array;
}

int64_t Reader::find_step() const {
  const auto found = tensors_.find("state/step");
  if (found == tensors_.end()) return 0;
  const auto& [dtype, shape] = found->second;
  QT_CHECK_AS(ExitCode::kData,
              (shape.empty() || shape == std::vector<int64_t>{1}) &&
                  (dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u32),
              "{}: 'state/step' is {} {}, expected an integer", file_.path().string(),
              name_of(dtype), shape_text(shape));
  int64_t step = 0;  // little endian: four bytes of an int32 are its value
  read({"state/step", std::vector<int64_t>(shape.size()), shape},
       reinterpret_cast<std::byte*>(&step));
  return step;
}

std::vector<std::pair<std::string, std::string>> Reader::details() const {
  const std::string writer = index_.from_orbax ? "Orbax, before OCDBT"
                             : index_.version == 0
                                 ? "flax"
                                 : fmt::format("T5X's Checkpointer, version {}", index_.version);
  return {{"written by", writer},
          {"arrays", fmt::format("{} in msgpack, {} in zarr", tensors_.size() - arrays_.size(),
                                 arrays_.size())}};
}

NotFinite Reader::verify(int part, int parts) const {
  NotFinite not_finite;
  int number = 0;
  for (const auto& [name, leaf] : index_.leaves) {
    if (number++ % parts != part) continue;
    int64_t count = 0;
    if (leaf.folder.empty())
      for (const auto piece : leaf.array.pieces) count += count_not_finite(leaf.array.dtype, piece);
    else
      count = arrays_.at(name).verify();
    if (count > 0) not_finite[name] = count;
  }
  return not_finite;
}

void Reader::read_region(const TensorRegion& region, std::byte* target) const {
  const Leaf& leaf = index_.leaves.at(region.name);
  if (leaf.folder.empty())
    leaf.array.copy_region(region.origin, region.sizes, target);
  else
    arrays_.at(region.name).read(region.origin, region.sizes, target);
}

}  // namespace quintet::t5x
