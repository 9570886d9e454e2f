#include "checkpoint/zarr/zarr_array.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "checkpoint/arrays/copy_block.h"
#include "checkpoint/arrays/mapped_file.h"
#include "checkpoint/arrays/numpy_type.h"
#include "checkpoint/bytes/parallel.h"
#include "checkpoint/finite.h"
#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet::zarr {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 46;   // of an array
constexpr int64_t kMostChunks = int64_t{1} << 20;  // also those that are not stored are walked over
constexpr int64_t kLargeChunk = 64 << 20;

DType dtype_from(const std::string& name, const std::string& where) {
  // T5X of 2021 stored bfloat16 as unsigned integers and had none of these.
  if (name == "<u2") return DType::bf16;
  if (const auto dtype = dtype_of_numpy_type(name)) return *dtype;
  fail(ExitCode::kData,
       "{}: dtype '{}' is not read; expected one of <f4, <f2, <f8, bfloat16, <i4, <i8, <u4, |u1, "
       "|i1, |b1",
       where, name);
}

Codec codec_from(const Json& compressor, const std::string& where) {
  if (compressor.is_null()) return Codec::none;
  const std::string id = compressor["id"].as_string();
  if (id == "zstd") return Codec::zstd;
  if (id == "gzip" || id == "zlib") return Codec::zlib;
  fail(ExitCode::kData,
       "{}: compressor '{}' is not read; expected gzip (T5X's), zlib or zstd (Orbax's): store the "
       "array again with one of these",
       where, id);
}

template <typename T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// The element that chunks which are not stored hold; empty: TensorStore has stored all of them.
std::vector<std::byte> fill_from(const Json& value, DType dtype) {
  if (value.is_null()) return {};
  if (value.is_bool()) return bytes_of(value.as_bool());
  if (dtype == DType::f32) return bytes_of(static_cast<float>(value.as_double()));
  if (dtype == DType::bf16) return bytes_of(bfloat16(static_cast<float>(value.as_double())).bits);
  if (dtype == DType::f64) return bytes_of(value.as_double());
  if (dtype == DType::i64) return bytes_of(value.as_int());
  if (dtype == DType::i32 || dtype == DType::u32)
    return bytes_of(static_cast<int32_t>(value.as_int()));
  QT_CHECK_AS(ExitCode::kData, value.as_double() == 0, "{}: expected 0 for {}, found {}",
              value.path(), name_of(dtype), value.as_double());
  return std::vector<std::byte>(static_cast<size_t>(size_of(dtype)));
}

}  // namespace

Chunks files_in(std::filesystem::path folder) {
  return [folder = std::move(folder)](const std::string& key) -> std::optional<Chunk> {
    if (!is_there(folder / key)) return std::nullopt;
    const auto file = std::make_shared<const MappedFile>(folder / key);
    return Chunk{file->bytes(), file};
  };
}

Array::Array(std::string_view metadata, Chunks chunks, std::string where)
    : chunks_(std::move(chunks)), where_(std::move(where)) {
  const Json json = Json::parse(metadata, where_);
  QT_CHECK_AS(ExitCode::kData, json["zarr_format"].as_int() == 2,
              "{}: is of zarr format {}, only 2 is read", where_, json["zarr_format"].as_int());
  dtype_ = dtype_from(json["dtype"].as_string(), where_);
  shape_ = json["shape"].as_ints();
  chunk_shape_ = json["chunks"].as_ints();
  codec_ = codec_from(json["compressor"], where_);
  QT_CHECK_AS(ExitCode::kData, json["filters"].is_null() || json["filters"].size() == 0,
              "{}: has filters, which are not read; store the array again without", where_);
  const std::string order = json["order"].as_string();
  QT_CHECK_AS(ExitCode::kData, order == "C" || order == "F", "{}: order '{}', expected 'C' or 'F'",
              where_, order);
  column_major_ = order == "F";
  if (json.has("dimension_separator")) {
    const std::string separator = json["dimension_separator"].as_string();
    QT_CHECK_AS(ExitCode::kData, separator == "." || separator == "/",
                "{}: dimension_separator '{}', expected '.' or '/'", where_, separator);
    separator_ = separator[0];
  }
  check_sizes();
  fill_ = fill_from(json["fill_value"], dtype_);
}

void Array::check_sizes() const {
  int64_t bytes = size_of(dtype_), chunk_bytes = bytes, chunks = 1;
  bool good = shape_.size() == chunk_shape_.size() && shape_.size() <= 32;
  for (size_t i = 0; good && i < shape_.size(); ++i) {
    good = shape_[i] >= 0 && chunk_shape_[i] > 0 &&
           !__builtin_mul_overflow(bytes, std::max<int64_t>(shape_[i], 1), &bytes) &&
           !__builtin_mul_overflow(chunk_bytes, chunk_shape_[i], &chunk_bytes) &&
           bytes <= kMostBytes;
    chunks *= good ? std::max<int64_t>((shape_[i] - 1) / chunk_shape_[i] + 1, 1) : 1;
    good = good && chunks <= kMostChunks;
  }
  QT_CHECK_AS(ExitCode::kData, good && chunk_bytes <= std::max(kLargeChunk, 2 * bytes),
              "{}: shape [{}] in chunks of [{}] is not the size of any array", where_,
              fmt::join(shape_, ", "), fmt::join(chunk_shape_, ", "));
}

int64_t Array::chunk_elements() const {
  int64_t elements = 1;
  for (const int64_t size : chunk_shape_) elements *= size;
  return elements;
}

std::string Array::key_of(const Index& chunk) const {
  if (chunk.empty()) return "0";
  return fmt::format("{}", fmt::join(chunk, std::string_view(&separator_, 1)));
}

void Array::for_each_chunk(const Index& origin, const Index& sizes,
                           const std::function<void(const Index&)>& visit) const {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  Index first(shape_.size()), last(shape_.size());
  for (size_t i = 0; i < shape_.size(); ++i) {
    first[i] = origin[i] / chunk_shape_[i];
    last[i] = (origin[i] + sizes[i] - 1) / chunk_shape_[i];
  }
  for (Index chunk = first;;) {
    visit(chunk);
    size_t axis = shape_.size();
    while (axis > 0 && chunk[axis - 1] == last[axis - 1]) {
      chunk[axis - 1] = first[axis - 1];
      --axis;
    }
    if (axis == 0) return;
    ++chunk[axis - 1];
  }
}

/// Whether a block is a whole chunk whose elements lie in their order, and nothing between them, in a dense
/// array of `sizes`.
bool Array::is_in_one_run(const Index& block, const Index& sizes) const {
  size_t axis = 0;  // the first along which there is more than one
  while (axis < block.size() && block[axis] == 1) ++axis;
  for (size_t i = axis + 1; i < block.size(); ++i)
    if (block[i] != sizes[i]) return false;
  return block == chunk_shape_ && (!column_major_ || axis + 1 >= block.size());
}

void Array::read_chunk(const Index& chunk, const Index& origin, const Index& sizes,
                       std::byte* target) const {
  const std::string key = key_of(chunk);
  const std::optional<Chunk> stored = chunks_(key);
  const int64_t element = size_of(dtype_);
  const Index to_strides = dense_strides(sizes);
  Index from_strides = dense_strides(chunk_shape_, column_major_), block(sizes.size());
  if (!stored) std::fill(from_strides.begin(), from_strides.end(), 0);
  int64_t from = 0, to = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t chunk_begin = chunk[i] * chunk_shape_[i];
    const int64_t begin = std::max(origin[i], chunk_begin);
    block[i] = std::min(origin[i] + sizes[i], chunk_begin + chunk_shape_[i]) - begin;
    from += (begin - chunk_begin) * from_strides[i];
    to += (begin - origin[i]) * to_strides[i];
  }
  const auto copy = [&](const std::byte* source) {
    copy_block(source + from * element, from_strides, target + to * element, to_strides, block,
               element);
  };
  const std::string where = fmt::format("{}: chunk {}", where_, key);
  QT_CHECK_AS(ExitCode::kData, stored || !fill_.empty(),
              "{} is missing; the copy of this checkpoint is not complete", where);
  if (!stored) return copy(fill_.data());
  const auto bytes = static_cast<size_t>(chunk_elements() * element);
  if (is_in_one_run(block, sizes))
    return decompress_to(codec_, stored->bytes, {target + to * element, bytes}, where);
  Bytes elements(bytes);
  decompress_to(codec_, stored->bytes, {elements.data(), bytes}, where);
  copy(elements.data());
}

void Array::read(const Index& origin, const Index& sizes, std::byte* target) const {
  std::vector<Index> chunks;
  for_each_chunk(origin, sizes, [&](const Index& chunk) { chunks.push_back(chunk); });
  const auto read_one = [&](const Index& chunk) { read_chunk(chunk, origin, sizes, target); };
  // A chunk of another shape than the region's goes through memory of its own, of which there is one then.
  if (chunks.size() > 1 && is_in_one_run(chunk_shape_, sizes))
    for_each_in_parallel(std::ssize(chunks),
                         [&](int64_t i) { read_one(chunks[static_cast<size_t>(i)]); });
  else
    std::ranges::for_each(chunks, read_one);
}

int64_t Array::verify() const {
  int64_t not_finite = 0;
  Bytes elements(static_cast<size_t>(chunk_elements() * size_of(dtype_)));
  for_each_chunk(Index(shape_.size()), shape_, [&](const Index& chunk) {
    Index origin(shape_.size()), sizes(shape_.size());
    int64_t bytes = size_of(dtype_);
    for (size_t i = 0; i < shape_.size(); ++i) {
      origin[i] = chunk[i] * chunk_shape_[i];
      sizes[i] = std::min(chunk_shape_[i], shape_[i] - origin[i]);
      bytes *= sizes[i];
    }
    read_chunk(chunk, origin, sizes, elements.data());
    not_finite += count_not_finite(dtype_, {elements.data(), static_cast<size_t>(bytes)});
  });
  return not_finite;
}

}  // namespace quintet::zarr
