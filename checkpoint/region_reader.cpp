#include "checkpoint/region_reader.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/bytes/parallel.h"
#include "checkpoint/reader.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

constexpr size_t kMostOpen = 512;  // files, of the 1,024 that a process may have open
constexpr int64_t kWindowBytes = 1 << 20;
constexpr int64_t kPartBytes = 8 << 20;  // read by one thread
constexpr int64_t kGapBytes = 1 << 16;   // read rather than skipped: a disk is quicker so

/// Bytes that lie side by side in a slice and in a region.
struct Run {
  int64_t in_slice, in_region, bytes;
};

/// The runs that a slice and a region share, ascending in both.
std::vector<Run> shared_runs(const Block& slice, const Block& region, int64_t element_bytes) {
  const size_t rank = slice.sizes.size();
  std::vector<int64_t> begin(rank), count(rank);
  for (size_t d = 0; d < rank; ++d) {
    begin[d] = std::max(slice.origin[d], region.origin[d]);
    count[d] =
        std::min(slice.origin[d] + slice.sizes[d], region.origin[d] + region.sizes[d]) - begin[d];
    if (count[d] <= 0) return {};
  }
  // From `inner` on both have all of the dimension: one run goes through them.
  size_t inner = rank;
  int64_t run = element_bytes, runs = 1;
  while (inner > 0 && (inner == rank ||
                       (count[inner] == slice.sizes[inner] && count[inner] == region.sizes[inner])))
    run *= count[--inner];
  for (size_t d = 0; d < inner; ++d) runs *= count[d];
  const auto offset_in = [&](const Block& block, const std::vector<int64_t>& at) {
    int64_t offset = 0;
    for (size_t d = 0; d < rank; ++d) offset = offset * block.sizes[d] + at[d] - block.origin[d];
    return offset * element_bytes;
  };
  std::vector<Run> result;
  std::vector<int64_t> at = begin;
  for (int64_t i = 0; i < runs; ++i) {
    result.push_back({offset_in(slice, at), offset_in(region, at), run});
    for (size_t d = inner; d-- > 0;) {
      if (++at[d] < begin[d] + count[d]) break;
      at[d] = begin[d];
    }
  }
  return result;
}

/// Bytes of a slice by their place in it, wherever its extents lie in the file.
class SliceBytes {
 public:
  SliceBytes(std::shared_ptr<const File> file, const ManifestSlice& slice)
      : file_(std::move(file)), extents_(slice.extents) {
    int64_t at = 0;
    for (const Extent& extent : extents_) {
      starts_.push_back(at);
      at += extent.bytes;
    }
  }
  void read(int64_t at, std::span<std::byte> to) const {
    const int64_t parts = (std::ssize(to) + kPartBytes - 1) / kPartBytes;
    for_each_in_parallel(parts, [&](int64_t i) {
      const int64_t begin = i * kPartBytes, bytes = std::min(kPartBytes, std::ssize(to) - begin);
      read_part(at + begin, to.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes)));
    });
  }

 private:
  void read_part(int64_t at, std::span<std::byte> to) const {
    auto i = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) -
                                 starts_.begin() - 1);
    for (size_t done = 0; done < to.size(); ++i) {
      const int64_t inside = at + static_cast<int64_t>(done) - starts_[i];
      const auto bytes = static_cast<size_t>(
          std::min<int64_t>(extents_[i].bytes - inside, static_cast<int64_t>(to.size() - done)));
      file_->read_at(extents_[i].offset + inside, to.subspan(done, bytes));
      done += bytes;
    }
  }

  std::shared_ptr<const File> file_;
  const std::vector<Extent>& extents_;
  std::vector<int64_t> starts_;
};

/// Long runs straight to their place, short ones that lie close together through one window.
void copy_runs(const SliceBytes& from, const std::vector<Run>& runs, std::byte* target) {
  std::vector<std::byte> window;
  for (size_t first = 0; first < runs.size();) {
    const int64_t begin = runs[first].in_slice;
    size_t last = first;
    while (last + 1 < runs.size()) {
      const Run& next = runs[last + 1];
      const int64_t gap = next.in_slice - runs[last].in_slice - runs[last].bytes;
      if (gap > kGapBytes || next.in_slice + next.bytes - begin > kWindowBytes) break;
      ++last;
    }
    const int64_t bytes = runs[last].in_slice + runs[last].bytes - begin;
    if (first == last) {
      from.read(begin, {target + runs[first].in_region, static_cast<size_t>(bytes)});
    } else {
      window.resize(static_cast<size_t>(bytes));
      from.read(begin, window);
      for (size_t i = first; i <= last; ++i)
        std::memcpy(target + runs[i].in_region, window.data() + (runs[i].in_slice - begin),
                    static_cast<size_t>(runs[i].bytes));
    }
    first = last + 1;
  }
}

Manifest checked_manifest(const std::filesystem::path& folder) {
  const bool was_there = is_there(folder);
  Manifest manifest;
  const auto read = [&] {
    manifest = read_manifest(folder);
    check_files(folder, manifest);
  };
  if (was_there)
    reading(folder, read);
  else
    read();
  return manifest;
}

}  // namespace

NativeCheckpointReader::NativeCheckpointReader(std::filesystem::path folder)
    : NativeCheckpointReader(folder, checked_manifest(folder)) {}

NativeCheckpointReader::NativeCheckpointReader(std::filesystem::path folder, Manifest manifest)
    : CheckpointReader(std::move(folder)), manifest_(std::move(manifest)) {
  for (const auto& [name, tensor] : manifest_.tensors)
    tensors_[name] = {tensor.dtype, tensor.shape};
}

std::shared_ptr<const NativeCheckpointReader> NativeCheckpointReader::open_together(
    std::filesystem::path folder, HostGroup& hosts) {
  constexpr char kGood = '+', kBad = '-';  // then the manifest, or what is wrong
  Manifest manifest;
  std::string verdict;
  if (hosts.index() == 0) {
    try {
      manifest = checked_manifest(folder);
      verdict = kGood + (hosts.count() > 1 ? packed(manifest) : "");
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;
      verdict = kBad + std::string(error.what());
    }
  }
  verdict = hosts.of_first(verdict);
  if (verdict.front() == kBad) throw Error(ExitCode::kData, verdict.substr(1));
  if (hosts.index() != 0) manifest = unpacked(std::string_view(verdict).substr(1));
  return std::shared_ptr<const NativeCheckpointReader>(
      new NativeCheckpointReader(std::move(folder), std::move(manifest)));
}

std::shared_ptr<const File> NativeCheckpointReader::file(size_t index) const {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(index);
  if (found != open_.end()) return found->second;
  if (open_.size() >= kMostOpen) open_.clear();
  return open_[index] =
             std::make_shared<const File>(File::open_read(folder_ / manifest_.files[index].name));
}

int64_t NativeCheckpointReader::file_bytes() const {
  int64_t bytes = 0;
  for (const ManifestFile& file : manifest_.files) bytes += file.bytes;
  return bytes;
}

NotFinite NativeCheckpointReader::verify(int part, int parts) const {
  NotFinite found;
  reading(folder_, [&] { found = verify_files(folder_, manifest_, part, parts); });
  return found;
}

void NativeCheckpointReader::read_region(const TensorRegion& region, std::byte* target) const {
  const ManifestTensor& tensor = manifest_.tensors.at(region.name);
  for (const ManifestSlice& slice : tensor.slices) {
    const auto runs = shared_runs({slice.origin, slice.sizes}, {region.origin, region.sizes},
                                  size_of(tensor.dtype));
    if (runs.empty()) continue;
    reading(folder_, [&] { copy_runs({file(slice.file), slice}, runs, target); });
  }
}

}  // namespace quintet
