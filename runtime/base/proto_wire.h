#pragma once
// Writing and reading protocol buffers by hand: the wire format of a few small messages needs no
// compiler and no library. Source: protobuf.dev, "Encoding".
//
//   ProtoWriter value;
//   value.bytes(1, "loss");
//   value.float32(2, 0.5f);
//   summary.bytes(1, value.str());        // a message within a message

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "runtime/base/check.h"

namespace quintet {

class ProtoWriter {
 public:
  void varint(uint32_t field, uint64_t value) {
    raw(field << 3 | 0);
    raw(value);
  }
  void float32(uint32_t field, float value) {
    raw(field << 3 | 5);
    fixed(std::bit_cast<uint32_t>(value));
  }
  void float64(uint32_t field, double value) {
    raw(field << 3 | 1);
    fixed(std::bit_cast<uint64_t>(value));
  }
  /// A string, bytes or message.
  void bytes(uint32_t field, std::string_view value) {
    raw(field << 3 | 2);
    raw(value.size());
    out_ += value;
  }
  /// An element of a packed list.
  void packed_varint(uint64_t value) { raw(value); }
  const std::string& str() const { return out_; }

 private:
  void raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  template <typename T>
  void fixed(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string out_;
};

/// Goes through the fields of a message:
///   for (ProtoReader r(message); r.next();) if (r.field() == 1) name = r.bytes();
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}
  /// To the next field; false at the end. Throws kData if the message is malformed.
  bool next() {
    if (rest_.empty()) return false;
    const std::string_view before = rest_;
    const uint64_t key = raw();
    field_ = static_cast<uint32_t>(key >> 3);
    bytes_ = {};
    is_bytes_ = (key & 7) == 2;
    switch (key & 7) {
      case 0:
        number_ = raw();
        break;
      case 1:
        number_ = fixed<uint64_t>();
        break;
      case 2: {
        const uint64_t size = raw();
        need(size);
        bytes_ = rest_.substr(0, size);
        rest_.remove_prefix(size);
        break;
      }
      case 5:
        number_ = fixed<uint32_t>();
        break;
      default:
        fail(ExitCode::kData, "protocol buffer: unknown wire type {}", key & 7);
    }
    whole_ = before.substr(0, before.size() - rest_.size());
    return true;
  }
  /// To the next number of a packed list, which is all this reader was given; false at the end.
  bool next_packed_varint() {
    if (rest_.empty()) return false;
    number_ = raw();
    return true;
  }
  uint32_t field() const { return field_; }
  /// Whether the field is a string, bytes, a message or a packed list.
  bool is_bytes() const { return is_bytes_; }
  uint64_t varint() const { return number_; }
  float float32() const { return std::bit_cast<float>(static_cast<uint32_t>(number_)); }
  double float64() const { return std::bit_cast<double>(number_); }
  std::string_view bytes() const { return bytes_; }
  /// The field as it stands in the message, its key included.
  std::string_view whole() const { return whole_; }

 private:
  void need(uint64_t size) const {
    QT_CHECK_AS(ExitCode::kData, size <= rest_.size(), "protocol buffer: cut short");
  }
  uint64_t raw() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      need(1);
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail(ExitCode::kData, "protocol buffer: a number of more than ten bytes");
  }
  template <typename T>
  T fixed() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view rest_, bytes_, whole_;
  uint64_t number_ = 0;
  uint32_t field_ = 0;
  bool is_bytes_ = false;
};

}  // namespace quintet
