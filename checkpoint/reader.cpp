#include "checkpoint/reader.h"

#include <algorithm>
#include <map>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/commit.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet {
namespace {

constexpr int64_t kScratchBytes = 1 << 20;

/// An extent to be read: into memory, or through scratch for its CRC alone.
struct Piece {
  Extent extent;
  std::byte* target = nullptr;
  uint32_t* crc = nullptr;
  DType dtype = DType::u8;
  int64_t* not_finite = nullptr;  // null: nobody asks
};

class FileReader {
 public:
  FileReader(const std::filesystem::path& path, Verify verify)
      : file_(File::open_read(path)), verify_(verify), scratch_(kScratchBytes) {}

  int64_t size() const { return file_.size(); }
  /// Fills the piece and its CRC.
  void read(const Piece& piece) {
    if (piece.target != nullptr) {
      const std::span<std::byte> bytes(piece.target, static_cast<size_t>(piece.extent.bytes));
      file_.read_at(piece.extent.offset, bytes);
      *piece.crc = verify_ == Verify::crc ? crc32c(bytes) : 0;
    } else {
      *piece.crc = sum(piece.extent, piece.dtype, piece.not_finite);
    }
  }
  /// CRC of a range, and how many of its numbers are not finite.
  uint32_t sum(const Extent& range, DType dtype = DType::u8, int64_t* not_finite = nullptr) {
    uint32_t crc = 0;
    for (int64_t at = 0; at < range.bytes; at += kScratchBytes) {
      const auto size = static_cast<size_t>(std::min(kScratchBytes, range.bytes - at));
      const auto bytes = std::span(scratch_).first(size);
      file_.read_at(range.offset + at, bytes);
      crc = crc32c(bytes, crc);
      if (not_finite != nullptr) *not_finite += count_not_finite(dtype, bytes);
    }
    return crc;
  }
  /// Reads the pieces and what lies between them in file order; the CRC of the whole file.
  uint32_t read_whole(std::vector<Piece> pieces, int64_t file_bytes) {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.extent.offset < b.extent.offset; });
    uint32_t crc = 0;
    int64_t at = 0;
    const auto append = [&](uint32_t next, int64_t bytes) {
      crc = crc32c_concat(crc, next, static_cast<uint64_t>(bytes));
      at += bytes;
    };
    for (const Piece& piece : pieces) {
      if (const int64_t gap = piece.extent.offset - at; gap > 0) append(sum({at, gap}), gap);
      read(piece);
      append(*piece.crc, piece.extent.bytes);
    }
    append(sum({at, file_bytes - at}), file_bytes - at);
    return crc;
  }

 private:
  File file_;
  Verify verify_;
  std::vector<std::byte> scratch_;
};

/// A slice on its way in.
struct Loading {
  const std::string* name;
  const ManifestSlice* slice;
  std::byte* target = nullptr;      // null: only its CRC is wanted
  std::vector<uint32_t> crcs = {};  // of the extents
  DType dtype = DType::u8;
  int64_t not_finite = 0;  // counted where only the CRC is wanted
};

std::vector<Piece> pieces_of(Loading& loading) {
  std::vector<Piece> pieces;
  loading.crcs.assign(loading.slice->extents.size(), 0);
  std::byte* target = loading.target;
  for (size_t i = 0; i < loading.slice->extents.size(); ++i) {
    pieces.push_back(
        {loading.slice->extents[i], target, &loading.crcs[i], loading.dtype, &loading.not_finite});
    if (target != nullptr) target += loading.slice->extents[i].bytes;
  }
  return pieces;
}

void check_slice(const Loading& loading, const std::filesystem::path& file) {
  uint32_t crc = 0;
  for (size_t i = 0; i < loading.crcs.size(); ++i)
    crc =
        crc32c_concat(crc, loading.crcs[i], static_cast<uint64_t>(loading.slice->extents[i].bytes));
  QT_CHECK_AS(ExitCode::kData, crc == loading.slice->crc,
              "{}: tensor '{}' is damaged: CRC-32C is {:08x}, expected {:08x}", file.string(),
              *loading.name, crc, loading.slice->crc);
}

/// Reads one file's slices, all of them and the rest of the file if `whole`.
void load_file(const std::filesystem::path& folder, const ManifestFile& file,
               std::vector<Loading>& slices, bool whole, Verify verify) {
  const std::filesystem::path path = folder / file.name;
  FileReader reader(path, verify);
  std::vector<Piece> pieces;
  for (Loading& loading : slices)
    for (const Piece& piece : pieces_of(loading)) pieces.push_back(piece);
  if (verify == Verify::size || !whole) {
    for (const Piece& piece : pieces) reader.read(piece);
  } else {
    const uint32_t crc = reader.read_whole(pieces, file.bytes);
    for (const Loading& loading : slices) check_slice(loading, path);
    QT_CHECK_AS(ExitCode::kData, crc == file.crc,
                "{}: is damaged outside its tensors: CRC-32C is {:08x}, expected {:08x}",
                path.string(), crc, file.crc);
    return;
  }
  if (verify == Verify::crc)
    for (const Loading& loading : slices) check_slice(loading, path);
}

/// All slices of the manifest by file, without targets.
std::vector<std::vector<Loading>> slices_by_file(const Manifest& manifest) {
  std::vector<std::vector<Loading>> by_file(manifest.files.size());
  for (const auto& [name, tensor] : manifest.tensors)
    for (const ManifestSlice& slice : tensor.slices)
      by_file[slice.file].push_back({.name = &name, .slice = &slice, .dtype = tensor.dtype});
  return by_file;
}

}  // namespace

void reading(const std::filesystem::path& folder, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error&) {
    // `trash` renames a folder before it removes what is in it.
    if (is_there(folder)) throw;
    fail(ExitCode::kData,
         "{}: was deleted while it was read, by the run that writes there (it keeps the newest "
         "ones, as many as SaveCheckpointConfig.keep says); run again",
         folder.string());
  }
}

void check_files(const std::filesystem::path& folder, const Manifest& manifest) {
  std::map<std::string, int64_t> wanted;
  for (const ManifestFile& file : manifest.files) {
    QT_CHECK_AS(ExitCode::kData, is_there(folder / file.name),
                "{}: is missing; the manifest lists it with {} bytes",
                (folder / file.name).string(), file.bytes);
    const int64_t bytes = File::open_read(folder / file.name).size();
    QT_CHECK_AS(ExitCode::kData, bytes == file.bytes, "{}: has {} bytes, expected {}",
                (folder / file.name).string(), bytes, file.bytes);
    wanted[file.name] = bytes;
  }
  for (const std::string& name : names_in(folder))
    QT_CHECK_AS(ExitCode::kData,
                wanted.contains(name) || name == kManifestName || name == kPinnedName ||
                    name.starts_with(".nfs"),  // a file deleted on NFS while open
                "{}: does not belong to the checkpoint; remove it", (folder / name).string());
}

uint32_t read_back(const std::filesystem::path& file, const std::vector<TensorSlice>& slices,
                   const std::vector<ManifestSlice>& written) {
  std::vector<Loading> loadings;
  for (size_t i = 0; i < slices.size(); ++i)
    loadings.push_back({.name = &slices[i].name, .slice = &written[i]});
  std::vector<Piece> pieces;
  for (Loading& loading : loadings)
    for (const Piece& piece : pieces_of(loading)) pieces.push_back(piece);
  FileReader reader(file, Verify::crc);
  const uint32_t crc = reader.read_whole(pieces, reader.size());
  for (const Loading& loading : loadings) check_slice(loading, file);
  return crc;
}

NotFinite verify_files(const std::filesystem::path& folder, const Manifest& manifest, int part,
                       int parts) {
  check_files(folder, manifest);
  NotFinite found;
  auto by_file = slices_by_file(manifest);
  for (auto i = static_cast<size_t>(part); i < by_file.size(); i += static_cast<size_t>(parts)) {
    load_file(folder, manifest.files[i], by_file[i], true, Verify::crc);
    for (const Loading& loading : by_file[i])
      if (loading.not_finite > 0) found[*loading.name] += loading.not_finite;
  }
  return found;
}

Checkpoint read_checkpoint(const std::filesystem::path& folder, Verify verify) {
  const Manifest manifest = read_manifest(folder);
  check_files(folder, manifest);
  Checkpoint result{manifest.step, manifest.run_id, {}, manifest.state_json};
  for (const auto& [name, tensor] : manifest.tensors)
    result.arrays.emplace(name, HostArray(tensor.dtype, tensor.shape));
  auto by_file = slices_by_file(manifest);
  for (size_t i = 0; i < by_file.size(); ++i) {
    // Slices of sharded tensors pass through memory of their own, a file's worth at a time.
    std::vector<std::vector<std::byte>> held;
    for (Loading& loading : by_file[i]) {
      HostArray& array = result.arrays.at(*loading.name);
      if (loading.slice->sizes == array.shape) {
        loading.target = array.bytes.data();
      } else {
        held.emplace_back(
            static_cast<size_t>(checked_bytes(array.dtype, loading.slice->sizes, *loading.name)));
        loading.target = held.back().data();
      }
    }
    load_file(folder, manifest.files[i], by_file[i], true, verify);
    for (const Loading& loading : by_file[i]) {
      HostArray& array = result.arrays.at(*loading.name);
      if (loading.target == array.bytes.data()) continue;
      copy_overlap({loading.slice->origin, loading.slice->sizes}, loading.target,
                   {std::vector<int64_t>(array.shape.size(), 0), array.shape}, array.bytes.data(),
                   size_of(array.dtype));
    }
  }
  return result;
}

std::vector<std::string> compare_tensors(const HostArrays& found, const HostArrays& wanted) {
  std::vector<std::string> lines;
  const auto describe = [](const HostArray& array) {
    return fmt::format("{} [{}]", name_of(array.dtype), fmt::join(array.shape, ", "));
  };
  for (const auto& [name, array] : wanted) {
    const auto other = found.find(name);
    if (other == found.end())
      lines.push_back(fmt::format("{}: missing, expected {}", name, describe(array)));
    else if (other->second.shape != array.shape || other->second.dtype != array.dtype)
      lines.push_back(
          fmt::format("{}: is {}, expected {}", name, describe(other->second), describe(array)));
  }
  for (const auto& [name, array] : found)
    if (!wanted.contains(name))
      lines.push_back(fmt::format("{}: not expected, is {}", name, describe(array)));
  return lines;
}

void check_tensors_match(const std::filesystem::path& folder, const HostArrays& found,
                         const HostArrays& wanted) {
  const auto lines = compare_tensors(found, wanted);
  QT_CHECK_AS(ExitCode::kData, lines.empty(),
              "{}: does not fit the model, {} differences:\n  {}\nuse the configuration the "
              "checkpoint was written with",
              folder.string(), lines.size(), fmt::join(lines, "\n  "));
}

}  // namespace quintet
