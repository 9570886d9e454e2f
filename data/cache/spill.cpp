#include "data/cache/spill.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/tfrecord.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

fs::path index_of(fs::path path) { return path += ".index"; }
fs::path records_of(fs::path path) { return path += ".records"; }
int64_t bucket_of(uint64_t key) { return static_cast<int64_t>(key >> 52); }
static_assert(int64_t{1} << (64 - 52) == kSpillBuckets);
constexpr int64_t kTableBytes = (kSpillBuckets + 1) * static_cast<int64_t>(sizeof(uint32_t));

bool by_key(const SpillEntry& a, const SpillEntry& b) {
  return a.key != b.key ? a.key < b.key : a.number < b.number;
}

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

SpillWriter::SpillWriter(const fs::path& path, size_t most_bytes)
    : path_(path), most_bytes_(most_bytes) {
  remove_tree(records_of(path));  // of a run that was killed
  file_ = File::create_new(records_of(path));
}

void SpillWriter::add(uint64_t key, std::string_view record) {
  const size_t start = held_.size();
  append_tfrecord(held_, record);
  const auto number = entries_.size() + held_entries_.size();
  QT_CHECK_AS(ExitCode::kData, held_.size() - start <= UINT32_MAX && number < UINT32_MAX,
              "an example of {} bytes, or number {} of its chunk, is too much for a cache",
              record.size(), number);
  held_entries_.push_back({.key = key,
                           .offset = start,
                           .number = static_cast<uint32_t>(number),
                           .bytes = static_cast<uint32_t>(held_.size() - start)});
  if (held_.size() >= most_bytes_) flush();
}

void SpillWriter::flush() {
  std::sort(held_entries_.begin(), held_entries_.end(), by_key);
  std::string sorted;
  sorted.reserve(held_.size());
  for (SpillEntry& entry : held_entries_) {
    const size_t from = entry.offset;
    entry.offset = static_cast<uint64_t>(written_) + sorted.size();
    sorted.append(held_, from, entry.bytes);
  }
  file_.write_at(written_, std::as_bytes(std::span(sorted)));
  written_ += static_cast<int64_t>(sorted.size());
  entries_.insert(entries_.end(), held_entries_.begin(), held_entries_.end());
  held_.clear();
  held_entries_.clear();
}

void SpillWriter::finish() {
  flush();
  file_.sync();
  file_.close_checked();
  std::sort(entries_.begin(), entries_.end(), by_key);
  std::vector<uint32_t> before(kSpillBuckets + 1);
  for (const SpillEntry& entry : entries_) ++before[static_cast<size_t>(bucket_of(entry.key)) + 1];
  for (size_t i = 1; i < before.size(); ++i) before[i] += before[i - 1];
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(before)),
                                               std::as_bytes(std::span(entries_))};
  atomic_write_file(index_of(path_), pieces);
}

Spill::Spill(const fs::path& path)
    : path_(path), bytes_(File::open_read(records_of(path)).size()), before_(kSpillBuckets + 1) {
  const File index = File::open_read(index_of(path));
  index.read_at(0, bytes_of(before_));
  const int64_t size =
      kTableBytes + int64_t{before_.back()} * static_cast<int64_t>(sizeof(SpillEntry));
  QT_CHECK_AS(ExitCode::kData,
              std::is_sorted(before_.begin(), before_.end()) && index.size() == size,
              "{}: damaged; remove its folder and start again", index.path().string());
}

std::vector<SpillEntry> Spill::entries(int64_t first_bucket, int64_t end_bucket) const {
  std::vector<SpillEntry> entries(static_cast<size_t>(before(end_bucket) - before(first_bucket)));
  if (entries.empty()) return entries;
  File::open_read(index_of(path_))
      .read_at(kTableBytes + before(first_bucket) * static_cast<int64_t>(sizeof(SpillEntry)),
               bytes_of(entries));
  return entries;
}

void Spill::read(std::vector<SpillEntry>& entries, std::string& out) const {
  if (entries.empty()) return;
  const File records = File::open_read(records_of(path_));
  for (size_t i = 0; i < entries.size();) {
    // Neighbours by key are neighbours in the file: one read takes many.
    const uint64_t from = entries[i].offset;
    uint64_t to = from;
    const size_t start = out.size();
    for (; i < entries.size() && entries[i].offset == to; ++i) {
      to += entries[i].bytes;
      entries[i].offset = start + (entries[i].offset - from);
    }
    out.resize(start + (to - from));
    records.read_at(static_cast<int64_t>(from),
                    std::as_writable_bytes(std::span(out.data() + start, to - from)));
  }
}

}  // namespace quintet::data
