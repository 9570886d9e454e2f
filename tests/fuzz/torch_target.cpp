// torch.save's files: every tensor they name is read.

#include "checkpoint/huggingface/formats.h"
#include "tests/fuzz/target.h"

namespace quintet {

std::vector<std::string> testing::fuzz_seeds() {
  // The older form: magic number, protocol, facts, an empty dictionary, no storages.
  using namespace std::string_literals;
  return {
      "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00.\x80\x02}q\x00.\x80\x02]q\x00."s};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  testing::allow_errors([&] {
    const auto tensors =
        huggingface::torch_tensors({reinterpret_cast<const std::byte*>(data), size}, "input");
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
