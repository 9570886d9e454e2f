#pragma once
// What the tests of readers of other programs' checkpoints share.

#include "checkpoint/checkpoint_reader.h"
#include "tests/checkpoint/scratch.h"
#include "tests/harness/fixtures.h"
#include "tests/harness/peak_allocation.h"

namespace quintet::testing {

inline HostArray read_region(const CheckpointReader& reader, const TensorRegion& region) {
  HostArray array(reader.tensors().at(region.name).dtype, region.sizes);
  reader.read(region, array.bytes.data());
  return array;
}

inline HostArrays read_all(const CheckpointReader& reader) {
  HostArrays arrays;
  for (const auto& [name, tensor] : reader.tensors())
    arrays[name] =
        read_region(reader, {name, std::vector<int64_t>(tensor.shape.size()), tensor.shape});
  return arrays;
}

inline int64_t bytes_of_files(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

/// While it lives, work takes at most 1.2 times so many bytes of memory, and what a reader needs for the
/// smallest file: damaged sizes are compared with the file's before anything is allocated.
class MemoryBound {
 public:
  explicit MemoryBound(int64_t bytes) : most_(bytes * 6 / 5 + kAnyFile) {}
  ~MemoryBound() { EXPECT_LE(peak_.bytes(), most_); }
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;

 private:
  static constexpr int64_t kAnyFile = 128 << 10;
  int64_t most_;
  PeakAllocation peak_;
};

/// Opens, verifies and reads a checkpoint of these files, one tensor after the other.
template <typename Open>
void read_within(int64_t bytes, const Open& open) {
  const MemoryBound bound(bytes);
  const auto reader = open();
  reader->verify();
  for (const auto& [name, tensor] : reader->tensors())
    read_region(*reader, {name, std::vector<int64_t>(tensor.shape.size()), tensor.shape});
}

/// The inner block of every matrix.
inline void check_regions(const CheckpointReader& reader, const HostArrays& want) {
  int checked = 0;
  for (const auto& [name, array] : want) {
    if (array.shape.size() != 2) continue;
    const std::vector<int64_t> origin{array.shape[0] / 3, array.shape[1] / 2};
    const std::vector<int64_t> sizes{array.shape[0] / 2, array.shape[1] / 3};
    const HostArray part = read_region(reader, {name, origin, sizes});
    const auto element = static_cast<size_t>(size_of(array.dtype));
    for (int64_t i = 0; i < sizes[0]; ++i) {
      const auto row = static_cast<size_t>((origin[0] + i) * array.shape[1] + origin[1]);
      const auto length = static_cast<size_t>(sizes[1]) * element;
      EXPECT_EQ(std::memcmp(part.bytes.data() + static_cast<size_t>(i) * length,
                            array.bytes.data() + row * element, length),
                0)
          << name << " row " << i;
    }
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

}  // namespace quintet::testing
