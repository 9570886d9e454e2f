#pragma once
// Small T5X checkpoints in forms that the fixtures have not, and to damage.

#include <zlib.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace quintet::testing {

/// msgpack by hand: texts, dictionaries and lists of fewer than 16, arrays as flax packs them.
namespace pack {

inline std::string big_endian(size_t value, int bytes) {
  std::string out;
  for (int i = bytes; i-- > 0;) out += static_cast<char>(value >> (8 * i));
  return out;
}
inline std::string text(const std::string& value) {
  return "\xd9" + big_endian(value.size(), 1) + value;
}
inline std::string number(int64_t value) {
  return "\xd3" + big_endian(static_cast<size_t>(value), 8);
}
inline std::string nothing() { return "\xc0"; }
inline std::string list(const std::vector<int64_t>& values) {
  std::string out(1, static_cast<char>(0x90 | values.size()));
  for (const int64_t value : values) out += number(value);
  return out;
}
inline std::string dict(std::initializer_list<std::pair<std::string, std::string>> members) {
  std::string out(1, static_cast<char>(0x80 | members.size()));
  for (const auto& [key, value] : members) out += text(key) + value;
  return out;
}
inline std::string array(const std::string& dtype, const std::vector<int64_t>& shape,
                         const std::string& bytes, int type = 1) {
  const std::string parts =
      "\x93" + list(shape) + text(dtype) + "\xc6" + big_endian(bytes.size(), 4) + bytes;
  return "\xc9" + big_endian(parts.size(), 4) + static_cast<char>(type) + parts;
}
inline std::string spec(const std::string& path, const std::string& driver,
                        const std::vector<int64_t>& shape, const std::vector<int64_t>& chunks,
                        const std::string& dtype = "float32") {
  return dict(
      {{"driver", text("zarr")},
       {"dtype", text(dtype)},
       {"kvstore", dict({{"driver", text(driver)}, {"path", text(path)}})},
       {"metadata", dict({{"chunks", list(chunks)},
                          {"compressor", dict({{"id", text("gzip")}, {"level", number(1)}})},
                          {"shape", list(shape)}})}});
}

}  // namespace pack

/// The bytes of some floats.
inline std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

inline std::string gzip(const std::string& bytes) {
  std::string out(bytes.size() + 100, '\0');
  z_stream stream = {};
  ::deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

/// .zarray of zarr 2.
inline std::string zarray(const std::string& dtype, const std::string& shape,
                          const std::string& chunks, const std::string& compressor,
                          const std::string& others = R"("order":"C","fill_value":null)") {
  return R"({"zarr_format":2,"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"chunks":)" +
         chunks + R"(,"compressor":)" + compressor + R"(,"filters":null,)" + others + "}";
}
inline constexpr const char* kGzip = R"({"id":"gzip","level":1})";

}  // namespace quintet::testing
