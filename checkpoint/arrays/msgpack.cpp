#include "checkpoint/arrays/msgpack.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"

namespace quintet {
namespace {

constexpr int kDeepest = 32;          // T5's trees are 12 deep
constexpr uint64_t kMostInList = 64;  // axes, chunk sizes
constexpr uint64_t kMostAxes = 8;
constexpr int8_t kArray = 1, kScalar = 3;  // flax's extension types

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where), values_left_(1000 + bytes.size() / 8) {}

  MsgpackValue read() {
    MsgpackValue value = read_value(0);
    check(at_ == bytes_.size(), "has bytes after its end");
    return value;
  }

 private:
  void check(bool condition, const char* what) const {
    if (!condition) stop(what);
  }
  [[noreturn]] void stop(const std::string& what) const {
    fail(ExitCode::kData, "{}: msgpack, byte {}: {}", where_, at_, what);
  }
  std::span<const std::byte> take(uint64_t size) {
    check(size <= bytes_.size() - at_, "ends here; the file is cut short or damaged");
    const auto part = bytes_.subspan(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return part;
  }
  std::string_view text(uint64_t size) {
    const auto part = take(size);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  /// Big-endian.
  uint64_t number(int bytes) {
    uint64_t value = 0;
    for (const std::byte b : take(static_cast<uint64_t>(bytes)))
      value = value << 8 | static_cast<uint64_t>(b);
    return value;
  }

  MsgpackValue read_value(int depth) {
    check(depth < kDeepest, "is nested too deeply");
    const size_t began = at_;
    const auto tag = static_cast<uint8_t>(number(1));
    if (tag < 0x80) return {int64_t{tag}};
    if (tag < 0x90) return dict(tag & 0x0f, depth);
    if (tag < 0xa0) return list(tag & 0x0f, depth);
    if (tag < 0xc0) return {text(tag & 0x1f)};
    if (tag >= 0xe0) return {int64_t{static_cast<int8_t>(tag)}};
    if (tag >= 0xc4 && tag <= 0xc6) return {text(number(1 << (tag - 0xc4)))};
    if (tag >= 0xc7 && tag <= 0xc9) return {extension(number(1 << (tag - 0xc7)))};
    if (tag >= 0xcc && tag <= 0xcf) return {unsigned_number(1 << (tag - 0xcc))};
    if (tag >= 0xd4 && tag <= 0xd8) return {extension(uint64_t{1} << (tag - 0xd4))};
    if (tag >= 0xd9 && tag <= 0xdb) return {text(number(1 << (tag - 0xd9)))};
    switch (tag) {
      case 0xc0:
        return {};
      case 0xc2:
      case 0xc3:
        return {tag == 0xc3};
      case 0xca:
        return {double{std::bit_cast<float>(static_cast<uint32_t>(number(4)))}};
      case 0xcb:
        return {std::bit_cast<double>(number(8))};
      case 0xd0:
        return {int64_t{static_cast<int8_t>(number(1))}};
      case 0xd1:
        return {int64_t{static_cast<int16_t>(number(2))}};
      case 0xd2:
        return {int64_t{static_cast<int32_t>(number(4))}};
      case 0xd3:
        return {static_cast<int64_t>(number(8))};
      case 0xdc:
      case 0xdd:
        return list(number(2 << (tag - 0xdc)), depth);
      case 0xde:
      case 0xdf:
        return dict(number(2 << (tag - 0xde)), depth);
      default:
        at_ = began;
        stop(fmt::format("type 0x{:02x} is none of msgpack's", tag));
    }
  }

  MsgpackValue copied(int depth) {
    check(values_left_-- > 0, "has more values than parameters need");
    return read_value(depth);
  }

  int64_t unsigned_number(int bytes) {
    const uint64_t value = number(bytes);
    check(value < uint64_t{1} << 63, "an integer is too large");
    return static_cast<int64_t>(value);
  }

  MsgpackValue list(uint64_t size, int depth) {
    check(size <= kMostInList, "a list is longer than parameters need");
    MsgpackValue::List values;
    for (uint64_t i = 0; i < size; ++i) values.push_back(copied(depth + 1));
    return {std::move(values)};
  }

  MsgpackValue dict(uint64_t size, int depth) {
    MsgpackValue::Dict members;
    for (uint64_t i = 0; i < size; ++i) {
      const MsgpackValue key = read_value(depth + 1);
      const auto* name = key.as<std::string_view>();
      check(name != nullptr, "a dictionary's key is no text");
      members.push_back({*name, copied(depth + 1)});
    }
    check_keys(members);
    MsgpackValue value{std::move(members)};
    if (value.find("__msgpack_chunked_array__") != nullptr) return {joined(value)};
    return value;
  }
  void check_keys(const MsgpackValue::Dict& members) const {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : members) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) stop(fmt::format("key '{}' is in a dictionary twice", *twice));
  }

  /// The payload of an array: shape, dtype, elements, as msgpack.
  FileTensor extension(uint64_t size) {
    const auto type = static_cast<int8_t>(number(1));
    if (type != kArray && type != kScalar) stop(fmt::format("extension type {} is no array", type));
    check(size <= bytes_.size() - at_,
          "an array ends outside of the file; it is cut short or damaged");
    const size_t end = at_ + static_cast<size_t>(size);
    const size_t left = values_left_;
    const MsgpackValue parts = read_value(kDeepest - 3);
    values_left_ = left;  // what stays of them is one
    check(at_ == end, "an array's parts do not fill it");
    const auto* three = parts.as<MsgpackValue::List>();
    check(three != nullptr && three->size() == 3, "an array has shape, dtype and elements");
    const auto* name = (*three)[1].as<std::string_view>();
    const auto* elements = (*three)[2].as<std::string_view>();
    check(name != nullptr && elements != nullptr, "an array has shape, dtype and elements");
    std::vector<int64_t> shape;
    const auto* sizes = (*three)[0].as<MsgpackValue::List>();
    check(sizes != nullptr, "an array has a shape");
    for (const MsgpackValue& one : *sizes) shape.push_back(axis(one));
    const DType dtype = dtype_named(*name);
    check_fits(shape, dtype, elements->size());
    return FileTensor::dense(dtype, std::move(shape), std::as_bytes(std::span(*elements)));
  }
  int64_t axis(const MsgpackValue& value) const {
    const auto* size = value.as<int64_t>();
    check(size != nullptr && *size >= 0, "an array's shape has something that is no size");
    return *size;
  }
  DType dtype_named(std::string_view name) const {
    for (const DType known : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32,
                              DType::i64, DType::u8, DType::i8, DType::u32, DType::boolean})
      if (name == name_of(known)) return known;
    stop(fmt::format("dtype '{}' is not supported", name.substr(0, 40)));
  }
  void check_fits(const std::vector<int64_t>& shape, DType dtype, size_t bytes) const {
    check(shape.size() <= kMostAxes, "an array has more than eight axes");
    int64_t expected = size_of(dtype);
    for (const int64_t size : shape)
      check(!__builtin_mul_overflow(expected, size, &expected), "an array is too large");
    if (static_cast<uint64_t>(expected) != bytes)
      stop(fmt::format("an array of shape {} has {} bytes", shape_text(shape), bytes));
  }

  /// The members "0", "1", ... of a dictionary that stands for a list, in order.
  MsgpackValue::List numbered(const MsgpackValue* value, const char* what) const {
    const auto* members = value == nullptr ? nullptr : value->as<MsgpackValue::Dict>();
    check(members != nullptr, what);
    MsgpackValue::List list;
    for (size_t i = 0; i < members->size(); ++i) {
      const MsgpackValue* member = value->find(std::to_string(i));
      check(member != nullptr, "a chunked array's parts are numbered from 0 on");
      list.push_back(*member);
    }
    return list;
  }
  /// An array of more than a GiB: its shape, and chunks of it without a shape of their own.
  FileTensor joined(const MsgpackValue& value) const {
    std::vector<int64_t> shape;
    for (const MsgpackValue& size : numbered(value.find("shape"), "a chunked array has a shape"))
      shape.push_back(axis(size));
    FileTensor whole;
    size_t bytes = 0;
    for (const MsgpackValue& part : numbered(value.find("chunks"), "a chunked array has chunks")) {
      const auto* chunk = part.as<FileTensor>();
      check(chunk != nullptr, "a chunked array's part is no array");
      check(whole.pieces.empty() || chunk->dtype == whole.dtype, "chunks have different dtypes");
      whole.dtype = chunk->dtype;
      whole.pieces.push_back(chunk->pieces.front());
      bytes += chunk->pieces.front().size();
    }
    check(!whole.pieces.empty(), "a chunked array has no chunks");
    check_fits(shape, whole.dtype, bytes);
    FileTensor result = FileTensor::dense(whole.dtype, std::move(shape), {});
    result.pieces = std::move(whole.pieces);
    return result;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  size_t at_ = 0, values_left_;
};

}  // namespace

const MsgpackValue* MsgpackValue::find(std::string_view key) const {
  const auto* members = as<Dict>();
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->begin(), members->end(),
                                  [&](const Member& member) { return member.key == key; });
  return found == members->end() ? nullptr : &found->value;
}

std::string_view MsgpackValue::kind() const {
  constexpr std::string_view kKinds[] = {"nothing", "a bool", "an integer",   "a number",
                                         "a text",  "a list", "a dictionary", "an array"};
  return kKinds[value.index()];
}

MsgpackValue read_msgpack(std::span<const std::byte> bytes, const std::string& where) {
  return Parser(bytes, where).read();
}

}  // namespace quintet
