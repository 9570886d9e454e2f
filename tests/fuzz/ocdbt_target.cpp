// OCDBT stores: a manifest and a data file with the root node at its beginning. The checksums of both are put
// right first: a search that has to guess them finds nothing else.

#include "checkpoint/ocdbt/store.h"
#include "tests/checkpoint/ocdbt_files.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

/// Length and CRC of an encoded part as they have to be.
std::string repaired(std::string part) {
  if (part.size() < 16) return part;
  part.replace(4, 8, testing::little_endian(part.size(), 8));
  part.resize(part.size() - 4);
  return part + testing::little_endian(crc32c(part), 4);
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  const std::string node =
      encoded(ocdbt::kBtreeMagic, std::string(1, '\0') + varint(0) + varint(1) + varint(1) + "x" +
                                      varint(5) + varint(0) + "value");
  std::string body(16, 'u');
  body += varint(0) + varint(100) + varint(1000) + '\x04' + varint(0) + data_files("d/a");
  body += varint(1) + varint(1) + '\0' + varint(0) + varint(0) + varint(node.size());
  body += varint(1) + varint(1) + varint(1) + std::string(8, '\0') + varint(0);
  const std::string manifest = encoded(ocdbt::kManifestMagic, body);
  return {static_cast<char>(manifest.size()) + manifest + node};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t manifest = std::min<size_t>(data[0], rest.size());
  testing::allow_errors([&] {
    const ocdbt::Store store(std::make_unique<testing::MemoryStore>(
        repaired(rest.substr(0, manifest)), repaired(rest.substr(manifest))));
    size_t bytes = 0;
    for (const auto& [key, value] : store.values())
      if (!value.empty()) bytes += static_cast<size_t>(value.front()) + key.size();
    if (bytes == SIZE_MAX) std::abort();  // so that values are read
  });
  return 0;
}
