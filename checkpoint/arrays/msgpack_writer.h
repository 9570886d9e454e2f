#pragma once
// msgpack as flax.serialization writes it: dictionaries by text keys, numbers, texts, lists of numbers,
// arrays.
//
//   MsgpackWriter out;
//   out.dict(2);
//   out.text("step"), out.integer(3);
//   out.text("kernel"), out.array(DType::f32, {2}, bytes);
//   write(out.take());
//
// Source: msgpack's specification; flax/serialization.py.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace quintet {

class MsgpackWriter {
 public:
  /// So many pairs of key and value follow.
  void dict(size_t members);
  void text(std::string_view value);
  /// Not negative.
  void integer(int64_t value);
  void integers(const std::vector<int64_t>& values);
  /// A NumPy array, row-major: flax's extension type 1.
  void array(DType dtype, const std::vector<int64_t>& shape, std::span<const std::byte> bytes);
  std::string take() { return std::move(bytes_); }

 private:
  void head(uint8_t small, size_t small_limit, std::span<const uint8_t> wide, size_t size);
  void big_endian(uint64_t value, int bytes);
  void binary(std::span<const std::byte> bytes);

  std::string bytes_;
};

}  // namespace quintet
