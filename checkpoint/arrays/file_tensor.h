#pragma once
// An array as it lies in a file of another program: its bytes are mapped, its elements are found by
// strides, and reading a region of it makes it dense.
//
//   std::vector<float> row(512);
//   tensor.transposed().copy_region({3, 0}, {1, 512}, reinterpret_cast<std::byte*>(row.data()));

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace quintet {

/// A checksum that the file has of bytes of its own.
struct Checksum {
  enum class Kind { crc32, crc32c } kind = Kind::crc32;
  uint32_t value = 0;
  std::span<const std::byte> bytes;
};

struct FileTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};               // in elements, none negative
  int64_t first = 0;                               // element of the pieces that has index 0
  std::vector<std::span<const std::byte>> pieces;  // one after another: the elements
  std::optional<Checksum> checksum = {};

  /// Row-major and dense.
  static FileTensor dense(DType dtype, std::vector<int64_t> shape,
                          std::span<const std::byte> bytes);
  int64_t elements() const;
  /// With its axes in the opposite order; nothing is moved.
  FileTensor transposed() const;
  /// Elements [origin, origin + sizes) to `target`, row-major and dense, of the same dtype.
  void copy_region(const std::vector<int64_t>& origin, const std::vector<int64_t>& sizes,
                   std::byte* target) const;
  /// The same; calls `between` after rows that span a few MB of the file.
  void copy_region(const std::vector<int64_t>& origin, const std::vector<int64_t>& sizes,
                   std::byte* target, const std::function<void()>& between) const;
  /// The file's bytes from a region's first element to its last; none if its elements are not aligned, lie in
  /// several pieces or have more than a few MB of others between them.
  std::optional<std::span<const std::byte>> region_in_place(std::span<const int64_t> origin,
                                                            std::span<const int64_t> sizes) const;
  /// Whether both have the same elements. Calls `between` after every few MB.
  bool equals(const FileTensor& other, const std::function<void()>& between) const;
};

/// By the names of PyTorch's modules: "encoder.block.0.layer.0.SelfAttention.q.weight".
using FileTensors = std::map<std::string, FileTensor>;

/// "[3, 512]".
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace quintet
