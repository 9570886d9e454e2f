#include "checkpoint/tensorflow/table.h"

#include "checkpoint/bytes/byte_reader.h"
#include "checkpoint/bytes/decompress.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"

namespace quintet::tensorflow {
namespace {

constexpr uint64_t kMagic = 0xdb4775248b80fb57u;
constexpr size_t kFooter = 48, kTrailer = 5;  // the trailer of a block: its compression and its CRC

struct Handle {
  uint64_t offset = 0, size = 0;  // of a block, without its trailer
};

Handle read_handle(ByteReader& from) {
  const uint64_t offset = from.varint();
  return {offset, from.varint()};
}

class Table {
 public:
  using Visit = std::function<void(std::string_view, std::string_view)>;

  Table(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where), allowed_(kGrowth * bytes.size() + kAlways) {}

  void for_each_entry(const Visit& visit) {
    QT_CHECK_AS(
        ExitCode::kData, bytes_.size() >= kFooter,
        "{}: is of {} bytes, the index of a TensorFlow checkpoint has at least {}; it is cut "
        "short or of another kind",
        where_, bytes_.size(), kFooter);
    ByteReader footer(bytes_.last(kFooter), where_ + ": footer");
    read_handle(footer);  // of a block about blocks, which TensorFlow leaves empty
    const Handle index = read_handle(footer);
    footer.take(kFooter - 8 - footer.position());
    if (footer.u64() != kMagic)
      footer.refuse("does not end as the index of a TensorFlow checkpoint");
    std::string last;  // key of the block before
    bool first = true;
    in_block(index, [&](std::string_view, std::string_view value) {
      ByteReader handle({reinterpret_cast<const std::byte*>(value.data()), value.size()},
                        where_ + ": index block");
      in_block(read_handle(handle), [&](std::string_view key, std::string_view entry) {
        QT_CHECK_AS(ExitCode::kData, first || last < key,
                    "{}: key '{}' comes after '{}'; the file is damaged", where_, key, last);
        first = false;
        last = key;
        visit(key, entry);
      });
      handle.expect_end();
    });
  }

 private:
  // Keys share beginnings, and blocks may be named again: what comes out is limited by what there is.
  static constexpr size_t kGrowth = 100, kAlways = 1 << 20;

  Bytes block(const Handle& handle, const std::string& where) const {
    const uint64_t most = bytes_.size() - kTrailer;
    QT_CHECK_AS(ExitCode::kData, handle.size <= most && handle.offset <= most - handle.size,
                "{}: of {} bytes ends outside of the file of {}; it is cut short or damaged", where,
                handle.size, bytes_.size());
    ByteReader stored(bytes_.subspan(handle.offset, handle.size + kTrailer), where);
    const auto content = stored.take(handle.size);
    const uint8_t compression = stored.u8();
    const uint32_t crc = stored.u32();
    const uint32_t found = masked_crc32c(crc32c(bytes_.subspan(handle.offset, handle.size + 1)));
    QT_CHECK_AS(ExitCode::kData, crc == found,
                "{}: is damaged: its CRC-32C is {:08x}, expected {:08x}", where, found, crc);
    QT_CHECK_AS(ExitCode::kData, compression <= 1,
                "{}: is compressed in way {}, only none (0) and Snappy (1) are known", where,
                compression);
    // Three bytes of Snappy make at most 64.
    return decompress(compression == 1 ? Codec::snappy : Codec::none, content,
                      handle.size * 32 + 64, where);
  }

  void in_block(const Handle& handle, const Visit& visit) {
    const std::string where = fmt::format("{}: block at byte {}", where_, handle.offset);
    const Bytes content = block(handle, where);
    spend(content.size(), where);
    ByteReader restarts(content.span(), where);
    if (content.size() < 4) restarts.refuse("has no room for its number of restarts");
    restarts.take(content.size() - 4);
    const uint64_t count = restarts.u32();
    if (count > content.size() / 4 - 1) restarts.refuse(fmt::format("{} restarts", count));
    ByteReader entries(content.span().first(content.size() - 4 - 4 * count), where);
    std::string key;
    while (entries.left() > 0) {
      const uint64_t shared = entries.varint(key.size());
      const uint64_t rest = entries.varint(entries.left()), size = entries.varint();
      key.resize(shared);
      key += entries.text(rest);
      spend(key.size() + 16, where);
      visit(key, entries.text(size));
    }
  }

  void spend(size_t bytes, const std::string& where) {
    QT_CHECK_AS(ExitCode::kData, bytes <= allowed_,
                "{}: the table says more than {} times what it is made of; the file is damaged",
                where, kGrowth);
    allowed_ -= bytes;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  size_t allowed_;
};

}  // namespace

void for_each_entry(
    std::span<const std::byte> table, const std::string& where,
    const std::function<void(std::string_view key, std::string_view value)>& visit) {
  Table(table, where).for_each_entry(visit);
}

}  // namespace quintet::tensorflow
