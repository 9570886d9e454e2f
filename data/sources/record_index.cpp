#include "data/sources/record_index.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/cache_folder.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::data {
namespace {

/// Before the offsets in a cached file.
struct Header {
  char magic[8] = {'Q', 'T', 'I', 'N', 'D', 'E', 'X', '1'};
  int64_t file_bytes = 0, modified_ns = 0, records = 0;
  uint32_t name_crc = 0, offsets_crc = 0;
};

std::filesystem::path index_folder() {
  if (const char* folder = std::getenv("QUINTET_INDEX_DIR"); folder != nullptr && *folder != '\0')
    return folder;
  const std::filesystem::path cache = cache_folder();
  return cache.empty() ? cache : cache / "index";
}

using Offsets = std::span<const int64_t>;

struct Mapping {
  void* bytes;
  size_t size;
  ~Mapping() { ::munmap(bytes, size); }
};

/// The offsets cached in `path`, if they are those of a file with this header.
std::pair<std::shared_ptr<const void>, Offsets> load(const std::filesystem::path& path,
                                                     const Header& expected) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  struct stat status {};
  void* bytes = MAP_FAILED;
  const bool readable =
      ::fstat(descriptor, &status) == 0 && status.st_size >= static_cast<off_t>(sizeof(Header));
  const auto size = static_cast<size_t>(status.st_size);
  if (readable) bytes = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  if (bytes == MAP_FAILED) return {};
  const std::shared_ptr<const void> owner(new Mapping{bytes, size});
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  const Offsets offsets(
      reinterpret_cast<const int64_t*>(static_cast<const char*>(bytes) + sizeof header),
      (size - sizeof header) / sizeof(int64_t));
  const bool same = std::memcmp(header.magic, expected.magic, sizeof header.magic) == 0 &&
                    header.file_bytes == expected.file_bytes &&
                    header.modified_ns == expected.modified_ns &&
                    header.name_crc == expected.name_crc &&
                    header.records == static_cast<int64_t>(offsets.size()) &&
                    header.offsets_crc == crc32c(std::as_bytes(offsets));
  return same ? std::pair(owner, offsets) : std::pair(std::shared_ptr<const void>(), Offsets());
}

void keep(const std::filesystem::path& path, Header header, Offsets offsets) {
  header.records = static_cast<int64_t>(offsets.size());
  header.offsets_crc = crc32c(std::as_bytes(offsets));
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(&header, 1)),
                                               std::as_bytes(offsets)};
  try {
    make_folders(path.parent_path());
    atomic_write_file(path, pieces);
  } catch (const Error&) {  // no place to keep it: the next run makes it again
  }
}

}  // namespace

RecordIndex::RecordIndex(const InputFile& file, const std::string& kind,
                         const std::function<void(std::vector<int64_t>&)>& find)
    : file_bytes_(file.size()) {
  std::filesystem::path cached;
  Header header;
  struct stat status {};
  // The text of a compressed file has to be made anyway, and the offsets with it.
  if (file.size() >= kCachedFromBytes && !file.is_compressed() &&
      ::stat(file.path().c_str(), &status) == 0 && !index_folder().empty()) {
    const std::string name = kind + " " + std::filesystem::absolute(file.path()).string();
    header.file_bytes = file.size();
    header.modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
    header.name_crc = crc32c(name);
    cached = index_folder() /
             fmt::format("{:08x}-{:016x}", header.name_crc, std::hash<std::string>{}(name));
    std::tie(owner_, starts_) = load(cached, header);
    if (owner_ != nullptr) return;
  }
  auto found = std::make_shared<std::vector<int64_t>>();
  find(*found);
  found->shrink_to_fit();
  starts_ = *found;
  owner_ = std::move(found);
  if (!cached.empty()) keep(cached, header, starts_);
}

}  // namespace quintet::data
