// flax.serialization's msgpack: dictionaries in dictionaries, arrays as extension type 1, large ones in
// chunks. Source: flax/serialization.py, msgpack's specification.

#include <algorithm>
#include <charconv>
#include <cstring>

#include "checkpoint/huggingface/formats.h"
#include "runtime/base/check.h"

namespace quintet::huggingface {
namespace {

constexpr int kDeepest = 32;  // T5's are 8 deep
constexpr int8_t kArray = 1;  // flax's extension type of an ndarray

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  FileTensors read() {
    read_value("", 0);
    check(at_ == bytes_.size(), "has bytes after its end");
    return std::move(tensors_);
  }

 private:
  void check(bool condition, const std::string& what) const {
    QT_CHECK_AS(ExitCode::kData, condition, "{}: msgpack, byte {}: {}", where_, at_, what);
  }
  std::span<const std::byte> take(uint64_t size) {
    check(size <= bytes_.size() - at_, "ends here; the file is cut short or damaged");
    const auto part = bytes_.subspan(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return part;
  }
  /// Big-endian.
  uint64_t number(int bytes) {
    uint64_t value = 0;
    for (const std::byte b : take(static_cast<uint64_t>(bytes)))
      value = value << 8 | static_cast<uint64_t>(b);
    return value;
  }
  uint8_t peek() const {
    check(at_ < bytes_.size(), "ends here; the file is cut short or damaged");
    return static_cast<uint8_t>(bytes_[at_]);
  }
  /// The size of a thing that has a short form (`fixed` | size, below `limit`) and forms with 8, 16 or 32
  /// bits from `code` on.
  uint64_t size_of_thing(uint8_t fixed, uint8_t limit, uint8_t code, int first_bytes,
                         const char* what) {
    const auto tag = static_cast<uint8_t>(number(1));
    if (limit > 0 && tag >= fixed && tag < fixed + limit) return tag - fixed;
    for (int bytes = first_bytes; bytes <= 4; bytes *= 2, ++code)
      if (tag == code) return number(bytes);
    --at_;
    check(false, fmt::format("expected {}, found type 0x{:02x}", what, tag));
    return 0;
  }
  uint64_t map_size() { return size_of_thing(0x80, 16, 0xde, 2, "a dictionary"); }
  uint64_t array_size() { return size_of_thing(0x90, 16, 0xdc, 2, "a list"); }
  std::span<const std::byte> binary() { return take(size_of_thing(0, 0, 0xc4, 1, "bytes")); }
  std::string text() {
    const auto bytes = take(size_of_thing(0xa0, 32, 0xd9, 1, "a text"));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  int64_t integer() {
    const auto tag = static_cast<uint8_t>(number(1));
    if (tag < 0x80) return tag;
    check(tag >= 0xcc && tag <= 0xcf, fmt::format("expected a size, found type 0x{:02x}", tag));
    const uint64_t value = number(1 << (tag - 0xcc));
    check(value < uint64_t{1} << 62, "a size is too large");
    return static_cast<int64_t>(value);
  }
  bool is_map() const { return (peek() & 0xf0) == 0x80 || peek() == 0xde || peek() == 0xdf; }

  void read_value(const std::string& path, int depth) {
    check(depth < kDeepest, "is nested too deeply");
    if (!is_map()) return add(path, array());
    const uint64_t size = map_size();
    for (uint64_t i = 0; i < size; ++i) {
      const std::string key = text();
      if (i == 0 && key == "__msgpack_chunked_array__") return add(path, chunked(size));
      read_value(path.empty() ? key : path + "/" + key, depth + 1);
    }
  }

  void add(const std::string& path, FileTensor tensor) {
    const size_t slash = path.rfind('/');
    const std::string leaf = slash == std::string::npos ? path : path.substr(slash + 1);
    std::string name = slash == std::string::npos ? "" : path.substr(0, slash);
    std::replace(name.begin(), name.end(), '/', '.');
    check(leaf == "kernel" || leaf == "embedding" || leaf == "weight",
          "'" + path + "': expected a kernel, an embedding or a weight");
    if (leaf == "kernel") tensor = tensor.transposed();
    check(tensors_.emplace(name + ".weight", std::move(tensor)).second,
          "'" + path + "' is there twice");
  }

  DType dtype(const std::string& name) const {
    for (const DType known :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64})
      if (name == name_of(known)) return known;
    check(false, "dtype " + name + " is not supported");
    return {};
  }

  FileTensor array() {
    // fixext 1, 2, 4, 8, 16, then sizes of 8, 16 and 32 bits.
    const auto tag = static_cast<uint8_t>(number(1));
    check((tag >= 0xd4 && tag <= 0xd8) || (tag >= 0xc7 && tag <= 0xc9),
          fmt::format("expected a dictionary or an array, found type 0x{:02x}", tag));
    const uint64_t size = tag >= 0xd4 ? uint64_t{1} << (tag - 0xd4) : number(1 << (tag - 0xc7));
    const auto type = static_cast<int8_t>(number(1));
    check(type == kArray, fmt::format("extension type {} is no array", type));
    const size_t end = at_ + static_cast<size_t>(size);
    check(size <= bytes_.size() - at_,
          "an array ends outside of the file; it is cut short or damaged");
    check(array_size() == 3, "an array has shape, dtype and elements");
    std::vector<int64_t> shape(array_size_of_shape());
    for (int64_t& one : shape) one = integer();
    const DType type_of_elements = dtype(text());
    const auto elements = binary();
    check(at_ == end, "an array's parts do not fill it");
    check_fits(shape, type_of_elements, elements.size());
    return FileTensor::dense(type_of_elements, std::move(shape), elements);
  }
  size_t array_size_of_shape() {
    const uint64_t rank = array_size();
    check(rank <= 8, "an array has more than eight axes");
    return static_cast<size_t>(rank);
  }
  void check_fits(const std::vector<int64_t>& shape, DType dtype, size_t bytes) const {
    int64_t expected = size_of(dtype);
    for (const int64_t size : shape)
      check(!__builtin_mul_overflow(expected, size, &expected), "an array is too large");
    check(static_cast<uint64_t>(expected) == bytes,
          fmt::format("an array of shape {} has {} bytes", shape_text(shape), bytes));
  }

  /// An array of more than a GiB: its shape, and chunks of it without a shape of their own.
  FileTensor chunked(uint64_t size) {
    check(size == 3 && number(1) == 0xc3, "a chunked array has a mark, a shape and chunks");
    check(text() == "shape", "a chunked array has a shape");
    std::vector<int64_t> shape;
    const uint64_t rank = map_size();
    check(rank <= 8, "an array has more than eight axes");
    for (uint64_t i = 0; i < rank; ++i) {
      check(text() == std::to_string(i), "axes of a chunked array are numbered in order");
      shape.push_back(integer());
    }
    check(text() == "chunks", "a chunked array has chunks");
    FileTensor whole;
    const uint64_t count = map_size();
    size_t bytes = 0;
    for (uint64_t i = 0; i < count; ++i) {
      check(text() == std::to_string(i), "chunks are numbered in order");
      FileTensor chunk = array();
      check(i == 0 || chunk.dtype == whole.dtype, "chunks have different dtypes");
      whole.dtype = chunk.dtype;
      whole.pieces.push_back(chunk.pieces.front());
      bytes += chunk.pieces.front().size();
    }
    check(!whole.pieces.empty(), "a chunked array has chunks");
    check_fits(shape, whole.dtype, bytes);
    FileTensor result = FileTensor::dense(whole.dtype, std::move(shape), {});
    result.pieces = std::move(whole.pieces);
    return result;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  size_t at_ = 0;
  FileTensors tensors_;
};

}  // namespace

FileTensors flax_tensors(std::span<const std::byte> bytes, const std::string& where) {
  return Reader(bytes, where).read();
}

}  // namespace quintet::huggingface
