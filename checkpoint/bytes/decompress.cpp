#include "checkpoint/bytes/decompress.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "checkpoint/bytes/byte_reader.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// Where bytes are put: at most so many, in memory that grows with them.
class Output {
 public:
  Output(size_t limit, size_t first_guess, const std::string& where)
      : limit_(limit), where_(where), bytes_(std::min(limit, std::max<size_t>(first_guess, 64))) {}
  explicit Output(std::span<std::byte> target, const std::string& where)
      : limit_(target.size()), where_(where), fixed_(target) {}

  /// Free space behind what is there, at least a byte; throws if the limit is reached.
  std::span<std::byte> space() {
    if (used_ == all().size()) grow();
    return all().subspan(used_);
  }
  void add(size_t bytes) { used_ += bytes; }
  size_t used() const { return used_; }
  bool is_full() const { return used_ == limit_; }
  std::span<const std::byte> written() { return all().first(used_); }

  Bytes finish() {
    if (used_ == bytes_.size()) return std::move(bytes_);
    Bytes result(used_);
    std::copy_n(bytes_.data(), used_, result.data());
    return result;
  }

 private:
  std::span<std::byte> all() {
    return fixed_.data() != nullptr ? fixed_ : std::span(bytes_.data(), bytes_.size());
  }
  void grow() {
    QT_CHECK_AS(ExitCode::kData, used_ < limit_,
                "{}: holds more than the {} bytes that belong there; the file is damaged", where_,
                limit_);
    Bytes larger(limit_ / 2 < used_ ? limit_ : std::max<size_t>(used_ * 2, 64));
    std::copy_n(bytes_.data(), used_, larger.data());
    bytes_ = std::move(larger);
  }

  size_t limit_;
  const std::string& where_;
  Bytes bytes_;
  std::span<std::byte> fixed_;
  size_t used_ = 0;
};

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  fail(ExitCode::kData, "{}: {}; the file is damaged or cut short", where, what);
}

void unzstd(std::span<const std::byte> stored, Output& out, const std::string& where) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   ZSTD_freeDCtx);
  // A frame that asks for more memory than this to look back into was not written by default settings.
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, 27);
  ZSTD_inBuffer in{stored.data(), stored.size(), 0};
  for (size_t result = 1; result != 0;) {
    std::byte none[1];
    const std::span<std::byte> space = out.is_full() ? std::span(none) : out.space();
    ZSTD_outBuffer to{space.data(), space.size(), 0};
    const size_t before = in.pos;
    result = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(result)) refuse(where, fmt::format("zstd: {}", ZSTD_getErrorName(result)));
    if (out.is_full() && to.pos > 0) out.space();  // throws
    out.add(to.pos);
    if (result != 0 && in.pos == in.size && to.pos == 0)
      refuse(where, "the zstd frame does not end");
    if (result != 0 && in.pos == before && to.pos == 0) refuse(where, "zstd does not go on");
  }
  if (in.pos != in.size)
    refuse(where, fmt::format("{} bytes follow the zstd frame", in.size - in.pos));
}

void unzlib(std::span<const std::byte> stored, Output& out, const std::string& where) {
  z_stream stream{};
  constexpr int kZlibOrGzip = 15 + 32;
  QT_ASSERT(inflateInit2(&stream, kZlibOrGzip) == Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  size_t taken = 0;
  for (int result = Z_OK; result != Z_STREAM_END;) {
    constexpr size_t kMost = std::numeric_limits<uInt>::max();
    std::byte none[1];
    const bool full = out.is_full();
    const std::span<std::byte> space = full ? std::span(none) : out.space();
    const auto in = static_cast<uInt>(std::min(stored.size() - taken, kMost));
    const auto capacity = static_cast<uInt>(std::min(space.size(), kMost));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(stored.data() + taken));
    stream.avail_in = in;
    stream.next_out = reinterpret_cast<Bytef*>(space.data());
    stream.avail_out = capacity;
    result = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    const size_t made = capacity - stream.avail_out;
    if (full && made > 0) out.space();  // throws
    out.add(made);
    if (result != Z_OK && result != Z_STREAM_END)
      refuse(where, fmt::format("zlib: {}", result == Z_BUF_ERROR   ? "the stream does not end"
                                            : stream.msg != nullptr ? stream.msg
                                                                    : "damaged"));
  }
  if (taken != stored.size())
    refuse(where, fmt::format("{} bytes follow the zlib stream", stored.size() - taken));
}

/// Source: google/snappy, format_description.txt: the size, then literals and copies of what is there.
void unsnappy(std::span<const std::byte> stored, Output& out, const std::string& where) {
  ByteReader reader(stored, where);
  const uint64_t size = reader.varint();
  while (reader.left() > 0) {
    const uint8_t tag = reader.u8();
    uint64_t length = (tag >> 2) + 1u, offset = 0;
    if ((tag & 3) == 0 && length > 60) {
      const uint64_t bytes = length - 60;
      length = 1;
      for (unsigned i = 0; i < bytes; ++i) length += uint64_t{reader.u8()} << (8 * i);
    } else if ((tag & 3) == 1) {
      length = ((tag >> 2) & 7) + 4u;
      offset = static_cast<uint64_t>(tag >> 5) << 8 | reader.u8();
    } else if ((tag & 3) == 2) {
      offset = reader.u8();
      offset |= uint64_t{reader.u8()} << 8;
    } else if ((tag & 3) == 3) {
      offset = reader.u32();
    }
    if (out.used() + length > size) reader.refuse("snappy: more bytes than it says");
    if ((tag & 3) == 0) {
      for (auto from = reader.take(length); !from.empty();) {
        const auto space = out.space();
        const size_t part = std::min(space.size(), from.size());
        std::copy_n(from.data(), part, space.data());
        out.add(part);
        from = from.subspan(part);
      }
    } else {
      if (offset == 0 || offset > out.used())
        reader.refuse("snappy: a copy from before the beginning");
      for (; length > 0; --length) {
        const std::byte byte = out.written()[out.used() - offset];
        out.space()[0] = byte;
        out.add(1);
      }
    }
  }
  if (out.used() != size)
    reader.refuse(fmt::format("snappy: {} bytes, expected {}", out.used(), size));
}

void run(Codec codec, std::span<const std::byte> stored, Output& out, const std::string& where) {
  if (codec == Codec::zstd) return unzstd(stored, out, where);
  if (codec == Codec::zlib) return unzlib(stored, out, where);
  if (codec == Codec::snappy) return unsnappy(stored, out, where);
  while (!stored.empty()) {
    const auto space = out.space();
    const size_t part = std::min(space.size(), stored.size());
    std::copy_n(stored.data(), part, space.data());
    out.add(part);
    stored = stored.subspan(part);
  }
}

}  // namespace

Bytes decompress(Codec codec, std::span<const std::byte> stored, size_t limit,
                 const std::string& where) {
  Output out(limit, stored.size() * 4, where);
  run(codec, stored, out, where);
  return out.finish();
}

void decompress_to(Codec codec, std::span<const std::byte> stored, std::span<std::byte> target,
                   const std::string& where) {
  Output out(target, where);
  run(codec, stored, out, where);
  QT_CHECK_AS(ExitCode::kData, out.used() == target.size(),
              "{}: holds {} bytes, expected {}; the file is damaged", where, out.used(),
              target.size());
}

}  // namespace quintet
