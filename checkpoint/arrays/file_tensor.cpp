#include "checkpoint/arrays/file_tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/bytes/parallel.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr int64_t kParallelBytes = 4 << 20;  // of a region that several threads copy
constexpr int64_t kBlockBytes = 2 << 20;     // by one of them
constexpr int64_t kSpannedBytes = 8 << 20;   // pages between elements count as memory, too

/// A matrix whose rows are the source's columns, through a tile of it: long runs of the source, which lie far
/// apart, are read in one go, and lines of the target are written whole.
template <typename T>
void copy_transposed(const T* from, int64_t rows, int64_t columns, int64_t stride, T* to) {
  constexpr int64_t kHeight = 256, kWidth = 256 / static_cast<int64_t>(sizeof(T));
  T tile[kWidth]
        [kHeight + 1];  // whose columns are not a power of two apart, so that a cache holds them
  for (int64_t i = 0; i < rows; i += kHeight)
    for (int64_t j = 0; j < columns; j += kWidth) {
      const int64_t height = std::min(kHeight, rows - i), width = std::min(kWidth, columns - j);
      for (int64_t x = 0; x < width; ++x)
        std::memcpy(tile[x], from + (j + x) * stride + i, static_cast<size_t>(height) * sizeof(T));
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) to[(i + y) * columns + j + x] = tile[x][y];
    }
}

/// Elements of a region by strides.
template <typename T>
void copy_strided(const T* from, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                  T* to) {
  if (sizes.empty()) {
    *to = *from;
    return;
  }
  if (sizes.size() == 1) {
    if (strides[0] == 1)
      std::memcpy(to, from, static_cast<size_t>(sizes[0]) * sizeof(T));
    else
      for (int64_t i = 0; i < sizes[0]; ++i) to[i] = from[i * strides[0]];
    return;
  }
  int64_t inner = 1;
  for (const int64_t size : sizes.subspan(1)) inner *= size;
  if (sizes.size() > 2 || strides[1] == 1) {
    for (int64_t i = 0; i < sizes[0]; ++i)
      copy_strided(from + i * strides[0], sizes.subspan(1), strides.subspan(1), to + i * inner);
    return;
  }
  if (strides[0] == 1) return copy_transposed(from, sizes[0], sizes[1], strides[1], to);
  for (int64_t y = 0; y < sizes[0]; ++y)
    for (int64_t x = 0; x < sizes[1]; ++x)
      to[y * sizes[1] + x] = from[y * strides[0] + x * strides[1]];
}

/// The same of large regions, by several threads: blocks of rows each.
template <typename T>
void copy_in_blocks(const T* from, const std::vector<int64_t>& sizes,
                    const std::vector<int64_t>& strides, T* to) {
  int64_t row = 1;
  for (size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
  const int64_t row_bytes = row * static_cast<int64_t>(sizeof(T));
  if (sizes.empty() || sizes[0] * row_bytes < kParallelBytes)
    return copy_strided<T>(from, sizes, strides, to);
  const int64_t rows = std::max(kBlockBytes / row_bytes, int64_t{1});
  for_each_in_parallel((sizes[0] + rows - 1) / rows, [&](int64_t i) {
    std::vector<int64_t> part = sizes;
    part[0] = std::min(rows, sizes[0] - i * rows);
    copy_strided<T>(from + i * rows * strides[0], part, strides, to + i * rows * row);
  });
}

/// Bytes [begin, end) of pieces that follow each other.
std::vector<std::byte> join(std::span<const std::span<const std::byte>> pieces, int64_t begin,
                            int64_t end) {
  std::vector<std::byte> bytes;
  for (const auto piece : pieces) {
    const int64_t size = std::ssize(piece), from = std::clamp(begin, int64_t{0}, size),
                  to = std::clamp(end, int64_t{0}, size);
    bytes.insert(bytes.end(), piece.begin() + from, piece.begin() + to);
    begin -= size;
    end -= size;
  }
  return bytes;
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

FileTensor FileTensor::dense(DType dtype, std::vector<int64_t> shape,
                             std::span<const std::byte> bytes) {
  FileTensor tensor{.dtype = dtype, .shape = std::move(shape), .strides = {}, .pieces = {bytes}};
  tensor.strides.resize(tensor.shape.size());
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

int64_t FileTensor::elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

FileTensor FileTensor::transposed() const {
  FileTensor result = *this;
  std::reverse(result.shape.begin(), result.shape.end());
  std::reverse(result.strides.begin(), result.strides.end());
  return result;
}

void FileTensor::copy_region(const std::vector<int64_t>& origin, const std::vector<int64_t>& sizes,
                             std::byte* target, const std::function<void()>& between) const {
  const int64_t element = size_of(dtype), row = strides.empty() ? 0 : strides[0] * element;
  if (row == 0) return copy_region(origin, sizes, target), between();
  const int64_t rows = std::max(kSpannedBytes / row, int64_t{1});
  int64_t bytes = element;
  for (const int64_t size : std::span(sizes).subspan(1)) bytes *= size;
  std::vector<int64_t> from = origin, part = sizes;
  for (int64_t i = 0; i < sizes[0]; i += rows) {
    from[0] = origin[0] + i;
    part[0] = std::min(rows, sizes[0] - i);
    copy_region(from, part, target + i * bytes);
    between();
  }
}

void FileTensor::copy_region(const std::vector<int64_t>& origin, const std::vector<int64_t>& sizes,
                             std::byte* target) const {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  int64_t at = first, last = first;
  for (size_t i = 0; i < origin.size(); ++i) {
    at += origin[i] * strides[i];
    last += (origin[i] + sizes[i] - 1) * strides[i];
  }
  const int64_t element = size_of(dtype);
  std::vector<std::byte> joined;  // pieces are rare: arrays of more than a GiB in msgpack
  if (pieces.size() > 1) joined = join(pieces, at * element, (last + 1) * element);
  const std::byte* bytes = pieces.size() > 1 ? joined.data() : pieces.front().data() + at * element;
  // Elements need not be aligned in a file: types of their size that may lie anywhere.
  struct __attribute__((packed)) Four {
    uint32_t bits;
  };
  struct __attribute__((packed)) Two {
    uint16_t bits;
  };
  struct __attribute__((packed)) Eight {
    uint64_t bits;
  };
  const auto copy = [&]<typename T>(T) {
    copy_in_blocks(reinterpret_cast<const T*>(bytes), sizes, strides, reinterpret_cast<T*>(target));
  };
  if (element == 4) return copy(Four{});
  if (element == 2) return copy(Two{});
  if (element == 8) return copy(Eight{});
  copy(uint8_t{});
}

std::optional<std::span<const std::byte>> FileTensor::region_in_place(
    std::span<const int64_t> origin, std::span<const int64_t> sizes) const {
  int64_t begin = first, last = first, count = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return std::nullopt;
    count *= sizes[i];
    begin += origin[i] * strides[i];
    last += (origin[i] + sizes[i] - 1) * strides[i];
  }
  const int64_t element = size_of(dtype);
  if (pieces.size() != 1 || (last + 1 - begin - count) * element > kSpannedBytes)
    return std::nullopt;
  const std::byte* at = pieces.front().data() + begin * element;
  if (reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(element) != 0) return std::nullopt;
  return std::span(at, static_cast<size_t>((last + 1 - begin) * element));
}

bool FileTensor::equals(const FileTensor& other, const std::function<void()>& between) const {
  if (dtype != other.dtype || shape != other.shape) return false;
  if (first == other.first && strides == other.strides && pieces.size() == 1 &&
      other.pieces.size() == 1 && pieces[0].data() == other.pieces[0].data())
    return true;
  if (shape.empty() || elements() == 0) return elements() == other.elements();
  constexpr int64_t kPart = 4 << 20;
  const int64_t row = elements() / shape[0] * size_of(dtype),
                rows = std::max(kPart / row, int64_t{1});
  std::vector<int64_t> origin(shape.size(), 0), part = shape;
  std::vector<std::byte> mine(static_cast<size_t>(std::min(rows, shape[0]) * row)), theirs = mine;
  for (; origin[0] < shape[0]; origin[0] += rows) {
    part[0] = std::min(rows, shape[0] - origin[0]);
    copy_region(origin, part, mine.data());
    other.copy_region(origin, part, theirs.data());
    between();
    if (std::memcmp(mine.data(), theirs.data(), static_cast<size_t>(part[0] * row)) != 0)
      return false;
  }
  return true;
}

}  // namespace quintet
