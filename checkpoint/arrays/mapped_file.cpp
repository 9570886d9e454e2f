#include "checkpoint/arrays/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "runtime/base/files/posix_file.h"
#include "runtime/base/files/read_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

}  // namespace

MappedFile::MappedFile(fs::path path) : path_(std::move(path)) {
  // A link is fine here: a Hugging Face cache is made of them.
  const File file = File::open_read(fs::is_symlink(path_) ? fs::weakly_canonical(path_) : path_);
  const auto size = static_cast<size_t>(file.size());
  if (size == 0) return;
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (at == MAP_FAILED) fail_disk(path_, "map", errno);
  bytes_ = {static_cast<const std::byte*>(at), size};
  check_is_fetched({static_cast<const char*>(at), size}, path_);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const auto own = reinterpret_cast<uintptr_t>(bytes_.data());
  if (begin < own || begin + part.size() > own + bytes_.size()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = (begin + page - 1) / page * page,
                  last = (begin + part.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace quintet
