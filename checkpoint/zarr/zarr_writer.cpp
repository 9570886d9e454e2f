#include "checkpoint/zarr/zarr_writer.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/arrays/blocks.h"
#include "checkpoint/arrays/numpy_type.h"
#include "checkpoint/bytes/parallel.h"
#include "checkpoint/bytes/write_file.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr int kGzipWindow = 15 + 16;  // zlib's way to ask for gzip's header and checksum
constexpr int kGzipLevel = 1;         // T5X's
constexpr size_t kPiece = 1 << 18;

/// Trained float32 numbers lose a twelfth of their bytes to gzip, which takes fifty times as long as storing
/// them: only what loses an eighth is compressed. A piece of the middle is tried.
int level_for(std::span<const std::byte> bytes) {
  const auto sample = bytes.subspan(bytes.size() / 2).first(std::min(bytes.size() / 2, kPiece / 4));
  uLongf size = compressBound(sample.size());
  std::vector<Bytef> out(size);
  compress2(out.data(), &size, reinterpret_cast<const Bytef*>(sample.data()), sample.size(),
            kGzipLevel);
  return size > sample.size() / 8 * 7 ? Z_NO_COMPRESSION : kGzipLevel;
}

/// A file of bytes that are compressed on their way.
class GzipFile {
 public:
  GzipFile(const fs::path& path, int level) : file_(File::create_new(path)), out_(kPiece) {
    QT_ASSERT(deflateInit2(&stream_, level, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) ==
              Z_OK);
  }
  ~GzipFile() { deflateEnd(&stream_); }
  GzipFile(const GzipFile&) = delete;

  void add(std::span<const std::byte> bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kPiece)))
      deflate_piece(bytes.first(std::min(bytes.size(), kPiece)), Z_NO_FLUSH);
  }
  void close() {
    deflate_piece({}, Z_FINISH);
    start_writing_out(file_.descriptor());
    file_.close_checked();
  }

 private:
  void deflate_piece(std::span<const std::byte> bytes, int flush) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      deflate(&stream_, flush);
      const auto made = std::span(out_).first(out_.size() - stream_.avail_out);
      file_.write_at(at_, made);
      at_ += std::ssize(made);
    } while (stream_.avail_out == 0);
  }

  File file_;
  std::vector<std::byte> out_;
  z_stream stream_{};
  int64_t at_ = 0;
};

/// A chunk that reaches over the array's edge: zeros are there.
void add_padded(GzipFile& file, const ZarrLayout& layout, const std::vector<int64_t>& origin,
                std::span<const std::byte> bytes) {
  const int64_t element = size_of(layout.dtype);
  const int64_t elements =
      std::accumulate(layout.chunks.begin(), layout.chunks.end(), int64_t{1}, std::multiplies());
  std::vector<std::byte> padded(static_cast<size_t>(elements * element));
  const Block array{std::vector<int64_t>(origin.size(), 0), layout.shape};
  copy_overlap(array, bytes.data(), {origin, layout.chunks}, padded.data(), element);
  file.add(padded);
}

/// The runs of a chunk that are contiguous in the array, in the chunk's order.
void add_chunk(GzipFile& file, const ZarrLayout& layout, const std::vector<int64_t>& origin,
               std::span<const std::byte> bytes) {
  for (size_t d = 0; d < origin.size(); ++d)
    if (origin[d] + layout.chunks[d] > layout.shape[d])
      return add_padded(file, layout, origin, bytes);
  const size_t rank = layout.shape.size();
  const int64_t element = size_of(layout.dtype);
  size_t inner = rank;  // from here on the chunk has all of every axis
  int64_t run = 1;
  while (inner > 0 && layout.chunks[inner - 1] == layout.shape[inner - 1])
    run *= layout.shape[--inner];
  if (inner > 0) run *= layout.chunks[--inner];
  std::vector<int64_t> at(inner, 0);
  for (bool more = true; more;) {
    int64_t offset = 0;
    for (size_t d = 0; d < rank; ++d)
      offset = offset * layout.shape[d] + origin[d] + (d < inner ? at[d] : 0);
    file.add(
        bytes.subspan(static_cast<size_t>(offset * element), static_cast<size_t>(run * element)));
    more = false;
    for (size_t d = inner; d-- > 0 && !more;) {
      more = ++at[d] < layout.chunks[d];
      if (!more) at[d] = 0;
    }
  }
}

/// "0.3"; of a scalar "0".
std::string chunk_key(const ZarrLayout& layout, const std::vector<int64_t>& origin) {
  std::vector<int64_t> index;
  for (size_t d = 0; d < origin.size(); ++d) index.push_back(origin[d] / layout.chunks[d]);
  return index.empty() ? "0" : fmt::format("{}", fmt::join(index, "."));
}

}  // namespace

std::vector<int64_t> zarr_chunks(const std::vector<int64_t>& shape, DType dtype,
                                 int64_t most_bytes) {
  std::vector<int64_t> chunks = shape;
  for (int64_t& size : chunks) size = std::max<int64_t>(size, 1);
  int64_t elements = std::accumulate(chunks.begin(), chunks.end(), int64_t{1}, std::multiplies());
  const int64_t most = most_bytes / size_of(dtype);
  for (size_t d = 0; elements > most; ++d) {
    const int64_t others = elements / chunks[d];
    const int64_t limit = std::clamp<int64_t>(most / others, 1, chunks[d]);
    int64_t divisor = limit;
    while (shape[d] % divisor != 0) --divisor;
    chunks[d] = 2 * divisor > limit ? divisor : limit;
    elements = others * chunks[d];
  }
  return chunks;
}

std::string zarr_metadata(const ZarrLayout& layout) {
  return nlohmann::json{{"chunks", layout.chunks},
                        {"compressor", {{"id", "gzip"}, {"level", kGzipLevel}}},
                        {"dimension_separator", "."},
                        {"dtype", numpy_type(layout.dtype)},
                        {"fill_value", nullptr},
                        {"filters", nullptr},
                        {"order", "C"},
                        {"shape", layout.shape},
                        {"zarr_format", 2}}
      .dump();
}

void write_zarr(const fs::path& folder, const ZarrLayout& layout,
                std::span<const std::byte> bytes) {
  make_folder(folder);
  write_new_file(folder / ".zarray", zarr_metadata(layout));
  const auto chunks_along = [&](size_t d) {
    return (layout.shape[d] + layout.chunks[d] - 1) / layout.chunks[d];
  };
  int64_t count = 1;
  for (size_t d = 0; d < layout.shape.size(); ++d) count *= chunks_along(d);
  const int level = level_for(bytes);
  for_each_in_parallel(count, [&](int64_t i) {
    std::vector<int64_t> origin(layout.shape.size());
    for (int64_t d = std::ssize(origin) - 1, left = i; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      origin[k] = left % chunks_along(k) * layout.chunks[k];
      left /= chunks_along(k);
    }
    GzipFile file(folder / chunk_key(layout, origin), level);
    add_chunk(file, layout, origin, bytes);
    file.close();
  });
}

}  // namespace quintet
