#pragma once
// The first half of a shuffle that is larger than memory: records with random 64-bit keys, written by
// one chunk to a file, with an index sorted by key. The second half takes from all spills the
// records of a range of keys.
//
//   SpillWriter writer("spill/chunk-00007");
//   writer.add(key, record);
//   writer.finish();
//   Spill spill("spill/chunk-00007");
//   for (const SpillEntry& entry : spill.entries(first_bucket, end_bucket)) ...

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files/posix_file.h"

namespace quintet::data {

/// The top bits of a key: ranges of keys are ranges of buckets.
constexpr int64_t kSpillBuckets = 4096;

struct SpillEntry {
  uint64_t key = 0, offset = 0;
  uint32_t number = 0;  // in the order in which records were added
  uint32_t bytes = 0;   // with TFRecord's frame
};

class SpillWriter {
 public:
  /// `most_bytes` are held before they are sorted and written.
  explicit SpillWriter(const std::filesystem::path& path, size_t most_bytes = size_t{64} << 20);
  void add(uint64_t key, std::string_view record);
  /// Writes what is held, and the index.
  void finish();

 private:
  void flush();
  std::filesystem::path path_;
  File file_;
  size_t most_bytes_;
  std::string held_;
  std::vector<SpillEntry> held_entries_, entries_;
  int64_t written_ = 0;
};

class Spill {
 public:
  /// Throws kData if the index is damaged.
  explicit Spill(const std::filesystem::path& path);
  int64_t bytes() const { return bytes_; }  // of all records
  /// Records in buckets before `bucket`.
  int64_t before(int64_t bucket) const { return before_[static_cast<size_t>(bucket)]; }
  /// Those of a range of buckets, by rising key.
  std::vector<SpillEntry> entries(int64_t first_bucket, int64_t end_bucket) const;
  /// Appends the records of such entries, with their frames, and makes the entries' offsets those in
  /// `out`. Checksums are not verified.
  void read(std::vector<SpillEntry>& entries, std::string& out) const;

 private:
  std::filesystem::path path_;  // files are open only while they are read: there may be thousands
  int64_t bytes_ = 0;
  std::vector<uint32_t> before_;  // kSpillBuckets + 1
};

}  // namespace quintet::data
