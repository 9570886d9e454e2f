// The index of a T5X checkpoint: every array that is inside is read.

#include "checkpoint/t5x/index.h"
#include "tests/checkpoint/t5x_files.h"
#include "tests/fuzz/target.h"

namespace quintet {

std::vector<std::string> testing::fuzz_seeds() {
  namespace pack = testing::pack;
  const std::string array = pack::array("float32", {2}, floats({1, 2}));
  return {
      pack::dict({{"version", pack::number(3)},
                  {"optimizer",
                   pack::dict({{"state", pack::dict({{"step", pack::number(7)},
                                                     {"param_states", pack::nothing()}})},
                               {"target", pack::dict({{"a", array},
                                                      {"b", pack::spec("target.b/", "gfile", {3, 3},
                                                                       {2, 2})}})}})}}),
      pack::dict({{"_optimizer", pack::dict({{"c", pack::text("PLACEHOLDER://target.c")}})}}),
      pack::dict(
          {{"target",
            pack::dict(
                {{"d", pack::dict(
                           {{"__msgpack_chunked_array__", "\xc3"},
                            {"shape", pack::dict({{"0", pack::number(2)}, {"1", pack::number(2)}})},
                            {"chunks", pack::dict({{"0", array}, {"1", array}})}})}})}})};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  testing::allow_errors([&] {
    const t5x::Index index =
        t5x::read_index({reinterpret_cast<const std::byte*>(data), size}, "input");
    std::vector<std::byte> values;
    for (const auto& [name, leaf] : index.leaves) {
      if (!leaf.folder.empty()) continue;
      values.assign(static_cast<size_t>(leaf.array.elements() * size_of(leaf.array.dtype)),
                    std::byte{0});
      leaf.array.copy_region(std::vector<int64_t>(leaf.array.shape.size(), 0), leaf.array.shape,
                             values.data());
    }
  });
  return 0;
}
