#include "data/sources/array_record/array_record_file.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "data/sources/array_record/array_record.pb.h"
#include "data/sources/array_record/riegeli.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr uint32_t kVersion = 1;
constexpr uint64_t kMagic = 0x71930e704fdae05e;  // of md5("ArrayRecord\n")
constexpr int kPostscripts = 3;                  // one is read, three are written

template <typename Message>
Message parsed(std::string_view bytes, const std::string& where) {
  Message message;
  QT_CHECK_AS(ExitCode::kData, message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())),
              "{}: malformed protocol buffer", where);
  return message;
}

class ArrayRecordFile final : public RecordFile {
 public:
  explicit ArrayRecordFile(InputFile file) : file_(std::move(file)) {
    const int64_t postscript = file_.size() - kRiegeliBlockBytes;
    const std::string where = path() + ": end of the ArrayRecord file";
    QT_CHECK_AS(ExitCode::kData, postscript >= 0 && postscript % kRiegeliBlockBytes == 0,
                "{}: {} bytes are not a number of blocks of {}; it is cut short, or was not closed",
                where, file_.size(), kRiegeliBlockBytes);
    const RiegeliRecords ends = read_riegeli_records(file_, postscript);
    QT_CHECK_AS(ExitCode::kData, ends.size() > 0, "{}: empty", where);
    const auto end = parsed<array_record::Postscript>(ends[0], where);
    QT_CHECK_AS(
        ExitCode::kData,
        end.magic() == kMagic && end.footer_offset() < static_cast<uint64_t>(postscript),
        "{}: expected the magic number {:#x} and a footer before byte {}, found {:#x} and {}",
        where, kMagic, postscript, end.magic(), end.footer_offset());
    read_footer(static_cast<int64_t>(end.footer_offset()));
  }
  const std::string& path() const override { return file_.path(); }
  int64_t size() const override { return firsts_.back(); }
  std::string where(int64_t i) const override {
    return fmt::format("{}: record {} (chunk at byte {})", path(), i, offsets_[chunk_of(i)]);
  }

  std::string_view read(int64_t i, std::string& buffer) const override {
    const size_t chunk = chunk_of(i);
    const auto records = records_of(chunk);
    buffer = (*records)[static_cast<size_t>(i - firsts_[chunk])];
    return buffer;
  }

 private:
  void read_footer(int64_t offset) {
    const std::string where = fmt::format("{}: footer at byte {}", path(), offset);
    const RiegeliRecords footer = read_riegeli_records(file_, offset);
    QT_CHECK_AS(ExitCode::kData, footer.size() > 0, "{}: empty", where);
    const auto metadata =
        parsed<array_record::FooterMetadata>(footer[0], where).array_record_metadata();
    QT_CHECK_AS(ExitCode::kData, metadata.version() == kVersion, "{}: version {}, expected {}",
                where, metadata.version(), kVersion);
    firsts_.push_back(0);
    for (size_t i = 1; i < footer.size(); ++i) {
      const auto entry = parsed<array_record::ChunkEntry>(footer[i], where);
      QT_CHECK_AS(ExitCode::kData,
                  entry.chunk_offset() < static_cast<uint64_t>(offset) &&
                      entry.num_records() <= static_cast<uint64_t>(file_.size()),
                  "{}: chunk {} at byte {} with {} records cannot be", where, i - 1,
                  entry.chunk_offset(), entry.num_records());
      offsets_.push_back(static_cast<int64_t>(entry.chunk_offset()));
      firsts_.push_back(firsts_.back() + static_cast<int64_t>(entry.num_records()));
    }
    QT_CHECK_AS(ExitCode::kData,
                metadata.num_records() == static_cast<uint64_t>(size()) &&
                    metadata.num_chunks() == offsets_.size(),
                "{}: lists {} records in {} chunks, says {} in {}", where, size(), offsets_.size(),
                metadata.num_records(), metadata.num_chunks());
  }

  size_t chunk_of(int64_t i) const {
    return static_cast<size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), i) -
                               firsts_.begin()) -
           1;
  }

  /// The last chunk of each thread is kept: neighbouring records come from the same one.
  std::shared_ptr<const RiegeliRecords> records_of(size_t chunk) const {
    struct Last {
      std::weak_ptr<const int> of;
      size_t chunk = 0;
      std::shared_ptr<const RiegeliRecords> records;
    };
    thread_local Last last;
    if (last.of.lock() == self_ && last.chunk == chunk) return last.records;
    auto records =
        std::make_shared<const RiegeliRecords>(read_riegeli_records(file_, offsets_[chunk]));
    QT_CHECK_AS(ExitCode::kData,
                static_cast<int64_t>(records->size()) == firsts_[chunk + 1] - firsts_[chunk],
                "{}: chunk at byte {} holds {} records, the footer says {}", path(),
                offsets_[chunk], records->size(), firsts_[chunk + 1] - firsts_[chunk]);
    last = {self_, chunk, records};
    return records;
  }

  InputFile file_;
  std::vector<int64_t> offsets_;  // of chunks
  std::vector<int64_t> firsts_;   // their first records; the number of all
  std::shared_ptr<const int> self_ = std::make_shared<const int>(0);
};

}  // namespace

RecordFilePtr open_record_file(const std::string& path, const FileOptions& options) {
  InputFile file(path);
  if (is_riegeli(file)) return std::make_shared<ArrayRecordFile>(std::move(file));
  return open_tfrecord_file(std::move(file), options);
}

void write_array_record(const std::filesystem::path& path, int64_t group_size,
                        const std::function<bool(std::string& record)>& next) {
  RiegeliWriter writer(path);
  std::vector<std::string> group, entries;
  uint64_t num_records = 0;
  const auto flush = [&] {
    if (group.empty()) return;
    array_record::ChunkEntry entry;
    entry.set_chunk_offset(static_cast<uint64_t>(writer.add(group)));
    entry.set_decoded_data_size(
        std::accumulate(group.begin(), group.end(), uint64_t{0},
                        [](uint64_t sum, const std::string& r) { return sum + r.size(); }));
    entry.set_num_records(group.size());
    entries.push_back(entry.SerializeAsString());
    num_records += group.size();
    group.clear();
  };
  for (std::string record; next(record);) {
    group.push_back(std::move(record));
    if (std::ssize(group) == group_size) flush();
  }
  flush();
  array_record::FooterMetadata footer;
  auto& metadata = *footer.mutable_array_record_metadata();
  metadata.set_version(kVersion);
  metadata.set_num_chunks(entries.size());
  metadata.set_num_records(num_records);
  metadata.set_writer_options(fmt::format("group_size:{},zstd:3", group_size));
  entries.insert(entries.begin(), footer.SerializeAsString());
  array_record::Postscript end;
  end.set_footer_offset(static_cast<uint64_t>(writer.add(entries)));
  end.set_magic(kMagic);
  writer.pad();
  writer.add(std::vector<std::string>(kPostscripts, end.SerializeAsString()));
  writer.pad();
  writer.close();
}

}  // namespace quintet::data
