// A zarr array: a line of metadata, then what every chunk's key has.

#include "checkpoint/zarr/zarr_array.h"
#include "tests/checkpoint/t5x_files.h"
#include "tests/fuzz/target.h"

namespace quintet {

std::vector<std::string> testing::fuzz_seeds() {
  const std::string chunk = floats({1, 2, 3, 4});
  return {zarray("<f4", "[3,3]", "[2,2]", kGzip) + "\n" + gzip(chunk),
          zarray("<f4", "[2,2]", "[2,2]", "null", R"("order":"F","fill_value":0)") + "\n" + chunk,
          zarray("bfloat16", "[8]", "[8]", "null",
                 R"("order":"C","fill_value":"NaN","dimension_separator":"/")") +
              "\n" + chunk,
          zarray("<i4", "[]", "[]", R"({"id":"zlib"})") + "\n",
          // A frame of zstd: its magic number, 4 bytes of content, one raw block.
          zarray("<i4", "[1]", "[1]", R"({"id":"zstd"})") + "\n" +
              std::string("\x28\xb5\x2f\xfd\x20\x04\x21\x00\x00\x05\x00\x00\x00", 13)};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), input.size());
  const auto chunk = std::as_bytes(std::span(input.substr(std::min(line + 1, input.size()))));
  testing::allow_errors([&] {
    const zarr::Array array(
        input.substr(0, line),
        [&](const std::string&) -> std::optional<zarr::Chunk> { return zarr::Chunk{chunk}; },
        "input");
    constexpr int64_t kMost = 1 << 20;
    int64_t bytes = size_of(array.dtype());
    for (const int64_t axis : array.shape())
      if (__builtin_mul_overflow(bytes, axis, &bytes) || bytes > kMost) return;
    std::vector<std::byte> values(static_cast<size_t>(bytes));
    array.read(std::vector<int64_t>(array.shape().size(), 0), array.shape(), values.data());
    array.verify();
  });
  return 0;
}
