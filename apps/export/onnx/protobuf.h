#pragma once
// Messages of ONNX's public schema (onnx.proto), by field numbers: a few kinds of fields, so no generated code.
//
//   Message node;
//   node.text(4, "MatMul");
//   graph.message(1, node);

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace quintet::onnx {

class Message {
 public:
  const std::string& bytes() const { return bytes_; }
  /// An integer or an enumerator.
  void number(uint32_t field, int64_t value) {
    varint(field << 3);
    varint(static_cast<uint64_t>(value));
  }
  void real(uint32_t field, float value) {
    varint(field << 3 | 5);
    char little[4];
    std::memcpy(little, &value, 4);
    bytes_.append(little, 4);
  }
  /// A string, or bytes.
  void text(uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_.append(value);
  }
  void message(uint32_t field, const Message& value) { text(field, value.bytes_); }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

static_assert(std::endian::native == std::endian::little);

}  // namespace quintet::onnx
