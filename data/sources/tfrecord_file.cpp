// TFRecord files, record by record. Framing and checksums: runtime/base/formats/tfrecord.h.
#include <algorithm>
#include <cstring>

#include "data/sources/record_files.h"
#include "data/sources/record_index.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/tfrecord.h"

namespace quintet::data {
namespace {

constexpr int64_t kHeaderBytes = 12, kFrameBytes = 16;  // before a record; around it

/// A window over a file that moves forward: headers are few bytes apart or far apart.
class Window {
 public:
  explicit Window(const InputFile& file) : file_(file), bytes_(size_t{1} << 16) {}
  /// `size` bytes from `offset`, which must lie in the file.
  const char* at(int64_t offset, int64_t size) {
    if (offset < begin_ || offset + size > begin_ + static_cast<int64_t>(used_)) {
      begin_ = offset;
      used_ = file_.read(bytes_.data(), bytes_.size(), offset);
      QT_CHECK_AS(ExitCode::kData, static_cast<int64_t>(used_) >= size,
                  "{}: the file has become shorter since it was opened", file_.path());
    }
    return bytes_.data() + (offset - begin_);
  }

 private:
  const InputFile& file_;
  std::vector<char> bytes_;
  int64_t begin_ = 0;
  size_t used_ = 0;
};

/// The length of the record whose header is at `header`, or -1 if its checksum is wrong or the record
/// would not fit into `left` bytes.
int64_t record_bytes(const char* header, int64_t left) {
  uint64_t length = 0;
  uint32_t crc = 0;
  std::memcpy(&length, header, sizeof length);
  std::memcpy(&crc, header + sizeof length, sizeof crc);
  if (left < kFrameBytes || length > static_cast<uint64_t>(left - kFrameBytes)) return -1;
  return crc == masked_crc32c(crc32c(std::string_view(header, sizeof length)))
             ? static_cast<int64_t>(length)
             : -1;
}

/// Appends where the records begin. After damage the next header with a right checksum is looked
/// for; what lies between counts as one record. Returns the offset of the first damage, -1: none.
int64_t find_records(const InputFile& file, std::vector<int64_t>& starts) {
  Window window(file);
  int64_t first_damage = -1;
  for (int64_t offset = 0; offset < file.size();) {
    starts.push_back(offset);
    const auto length_at = [&](int64_t at) {
      const int64_t left = file.size() - at;
      return left < kFrameBytes ? -1 : record_bytes(window.at(at, kHeaderBytes), left);
    };
    int64_t length = length_at(offset);
    if (length >= 0) {
      offset += kFrameBytes + length;
      continue;
    }
    if (first_damage < 0) first_damage = offset;
    while (++offset < file.size() && length_at(offset) < 0) {
    }
  }
  return first_damage;
}

class TfRecordFile final : public RecordFile {
 public:
  TfRecordFile(InputFile file, const FileOptions& options)
      : file_(std::move(file)), index_(file_, "tfrecord", [&](std::vector<int64_t>& starts) {
          // An index with damage in it must not be kept as if there were none.
          const int64_t damage = find_records(file_, starts);
          if (damage >= 0 && options.on_bad_example.most == 0) fail_at(damage, starts);
        }) {}
  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return index_.size(); }
  std::string where(int64_t i) const override {
    return fmt::format("{}: record {} (byte {})", path(), i, index_.extent(i).begin);
  }

  std::string_view read(int64_t i, std::string& buffer) const override {
    const auto [begin, end] = index_.extent(i);
    buffer.resize(static_cast<size_t>(end - begin));
    file_.read_exactly(buffer.data(), buffer.size(), begin);
    std::string_view rest = buffer;
    try {
      const auto record = next_tfrecord(rest, path());
      if (rest.empty()) return *record;
    } catch (const Error& error) {
      throw Error(error.code(), where(i) + std::string(error.what()).substr(path().size()));
    }
    fail(ExitCode::kData, "{}: {} bytes of damage after the record", where(i), rest.size());
  }

 private:
  [[noreturn]] void fail_at(int64_t damage, const std::vector<int64_t>& starts) const {
    const auto record = std::lower_bound(starts.begin(), starts.end(), damage) - starts.begin();
    const std::string place = fmt::format("{}: record {} (byte {})", path(), record, damage);
    std::string bytes(static_cast<size_t>(std::min<int64_t>(file_.size() - damage, kFrameBytes)),
                      0);
    file_.read_exactly(bytes.data(), bytes.size(), damage);
    std::string_view rest = bytes;
    next_tfrecord(rest, place);
    fail(ExitCode::kData, "{}: ends within the file's last record", place);
  }
  InputFile file_;
  RecordIndex index_;
};

}  // namespace

RecordFilePtr open_tfrecord_file(InputFile file, const FileOptions& options) {
  return std::make_shared<TfRecordFile>(std::move(file), options);
}

RecordDataSource::RecordDataSource(SplitToFiles files, ParseRecord parse, FileOptions options)
    : FileDataSource(
          std::move(files), options,
          [=](const std::string& path) { return open_record_file(path, options); },
          std::move(parse)) {}

TFExampleDataSource::TFExampleDataSource(SplitToFiles files, std::vector<FeatureSpec> features,
                                         FileOptions options)
    : RecordDataSource(std::move(files), ExampleParser(std::move(features)), options) {}

}  // namespace quintet::data
