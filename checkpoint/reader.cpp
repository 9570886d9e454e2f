#include "checkpoint/reader.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/bytes/decompress.h"
#include "checkpoint/bytes/parallel.h"
#include "checkpoint/commit.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet {
namespace {

constexpr int64_t kScratchBytes = 1 << 20;
constexpr int64_t kPiecesAtOnce = 16;  // by a thread, of a megabyte or less

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
      : file_(File::open_read(path)), verify_(verify) {}

  int64_t size() const { return file_.size(); }
  /// Fills the pieces and their CRCs.
  void read(const std::vector<Piece>& pieces) {
    const int64_t parts = (std::ssize(pieces) + kPiecesAtOnce - 1) / kPiecesAtOnce;
    for_each_in_parallel(parts, [&](int64_t part) {
      Bytes scratch(kScratchBytes);
      const int64_t end = std::min((part + 1) * kPiecesAtOnce, std::ssize(pieces));
      for (int64_t i = part * kPiecesAtOnce; i < end; ++i)
        read(pieces[static_cast<size_t>(i)], scratch);
    });
  }
  /// The same, and what lies between them; the CRC of the whole file.
  uint32_t read_whole(std::vector<Piece> pieces, int64_t file_bytes) {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.extent.offset < b.extent.offset; });
    std::vector<Piece> all;
    std::deque<uint32_t> gap_crcs;
    int64_t at = 0;
    const auto add_gap = [&](int64_t end) {
      if (end > at) all.push_back({.extent = {at, end - at}, .crc = &gap_crcs.emplace_back(0)});
    };
    for (const Piece& piece : pieces) {
      add_gap(piece.extent.offset);
      all.push_back(piece);
      at = piece.extent.offset + piece.extent.bytes;
    }
    add_gap(file_bytes);
    read(all);
    uint32_t crc = 0;
    for (const Piece& piece : all)
      crc = crc32c_concat(crc, *piece.crc, static_cast<uint64_t>(piece.extent.bytes));
    return crc;
  }

 private:
  void read(const Piece& piece, Bytes& scratch) const {
    if (piece.target != nullptr) {
      const std::span<std::byte> bytes(piece.target, static_cast<size_t>(piece.extent.bytes));
      file_.read_at(piece.extent.offset, bytes);
      *piece.crc = verify_ == Verify::crc ? crc32c(bytes) : 0;
    } else {
      *piece.crc = sum(piece, scratch);
    }
  }
  /// CRC of a piece; adds to how many of its numbers are not finite.
  uint32_t sum(const Piece& piece, Bytes& scratch) const {
    uint32_t crc = 0;
    for (int64_t at = 0; at < piece.extent.bytes; at += kScratchBytes) {
      const auto size = static_cast<size_t>(std::min(kScratchBytes, piece.extent.bytes - at));
      const auto bytes = std::span(scratch.data(), size);
      file_.read_at(piece.extent.offset + at, bytes);
      crc = crc32c(bytes, crc);
      if (piece.not_finite == nullptr) continue;
      std::atomic_ref(*piece.not_finite) += count_not_finite(piece.dtype, bytes);
    }
    return crc;
  }

  File file_;
  Verify verify_;
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
    reader.read(pieces);
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

/// Of zeros; making them takes as long as reading them.
HostArrays arrays_of(const Manifest& manifest) {
  HostArrays arrays;
  std::vector<std::pair<HostArray*, const ManifestTensor*>> made;
  for (const auto& [name, tensor] : manifest.tensors) made.emplace_back(&arrays[name], &tensor);
  for_each_in_parallel(std::ssize(made), [&](int64_t i) {
    const auto& [array, tensor] = made[static_cast<size_t>(i)];
    *array = HostArray(tensor->dtype, tensor->shape);
  });
  return arrays;
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
  result.arrays = arrays_of(manifest);
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
