// flax.serialization's msgpack: every array in it is read.

#include "checkpoint/huggingface/formats.h"
#include "tests/fuzz/target.h"

namespace quintet {

std::vector<std::string> testing::fuzz_seeds() {
  using namespace std::string_literals;
  // {"a": {"kernel": float32 [1]}}
  return {
      "\x81\xa1"
      "a\x81\xa6kernel\xc7\x12\x01\x93\x91\x01\xa7"
      "float32\xc4\x04\0\0\x80\x3f"s};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  testing::allow_errors([&] {
    const auto tensors =
        huggingface::flax_tensors({reinterpret_cast<const std::byte*>(data), size}, "input");
    std::vector<std::byte> values;
    int64_t most = 1 << 20;  // in all: names may share a storage
    for (const auto& [name, tensor] : tensors) {
      const int64_t bytes = tensor.elements() * size_of(tensor.dtype);
      if ((most -= bytes) < 0) break;
      values.assign(static_cast<size_t>(bytes), std::byte{0});
      tensor.copy_region(std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape, values.data());
    }
  });
  return 0;
}
