// Checkpoints of TensorFlow: the index as it is, or entries in a block around which a table is made with right
// checksums, so that a search gets to the entries; every tensor is read.

#include "checkpoint/tensorflow/bundle.h"
#include "runtime/base/formats/crc32c.h"
#include "tests/checkpoint/ocdbt_files.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

using testing::little_endian;
using testing::varint;

/// An entry that shares nothing with the one before.
std::string entry(const std::string& key, const std::string& value) {
  return varint(0) + varint(key.size()) + varint(value.size()) + key + value;
}

/// A block with its trailer.
std::string block(const std::string& content) {
  const std::string typed = content + '\0';
  return typed + little_endian(masked_crc32c(crc32c(typed)), 4);
}

const std::string kOneRestart = little_endian(0, 4) + little_endian(1, 4);

/// A table of one block.
std::string table(const std::string& entries) {
  const std::string content = entries + kOneRestart;
  const std::string handle = varint(0) + varint(content.size());
  std::string file = block(content);
  const std::string index = entry("\xff", handle) + kOneRestart;
  std::string footer = varint(0) + varint(0) + varint(file.size()) + varint(index.size());
  footer.resize(40);
  file += block(index);
  return file + footer + little_endian(0xdb4775248b80fb57u, 8);
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  using namespace std::string_literals;
  // The header: one data file. Two float32 of a tensor "a"; and of "b" in two slices of one.
  const std::string header = entry("", "\x08\x01");
  const std::string whole = "\x08\x01\x12\x04\x12\x02\x08\x02\x28\x08"s;
  const std::string sliced =
      "\x08\x01\x12\x04\x12\x02\x08\x02\x3a\x06\x0a\x04\x08\x00\x10\x01\x3a\x06\x0a\x04\x08\x01\x10\x01"s;
  const std::string one = "\x08\x01\x12\x04\x12\x02\x08\x01\x20\x08\x28\x04"s,
                    two = "\x08\x01\x12\x04\x12\x02\x08\x01\x20\x0c\x28\x04"s;
  const std::string slices =
      entry("\0b\0\1\1\1\x80\x81"s, one) + entry("\0b\0\1\1\1\x81\x81"s, two);
  const std::string entries = header + slices + entry("a", whole) + entry("b", sliced);
  return {"\1" + entries, "\0"s + table(entries)};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size == 0) return 0;
  std::string index(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) index = table(index);
  testing::allow_errors([&] {
    const std::string shard(64, 'x');
    const tensorflow::Bundle bundle(
        std::as_bytes(std::span(index)), "input",
        [&](int64_t, int64_t) { return std::as_bytes(std::span(shard)); });
    for (const auto& [key, tensor] : bundle.tensors()) {
      const std::string& name = key;  // which a lambda may hold
      int64_t bytes = size_of(tensor.dtype);
      for (const int64_t axis : tensor.shape) bytes *= axis;
      std::vector<std::byte> values(static_cast<size_t>(bytes));
      bundle.read(name, std::vector<int64_t>(tensor.shape.size()), tensor.shape, values.data());
      testing::allow_errors([&] { bundle.verify(name); });
    }
  });
  return 0;
}
