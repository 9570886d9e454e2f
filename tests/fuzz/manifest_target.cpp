// MANIFEST.json: the input with a right CRC put on, so that the parser behind the CRC is reached, and
// as it is.

#include "checkpoint/manifest.h"
#include "runtime/base/formats/crc32c.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

std::string sealed(std::string text) {
  text += fmt::format(",\n\"crc32c\":\"{:08x}\"}}\n", crc32c(text));
  return text;
}

void parse(const std::string& text) {
  testing::allow_errors([&] {
    const Manifest manifest = parse_manifest(text, "MANIFEST.json");
    // What was accepted is written and accepted again.
    parse_manifest(manifest_text(manifest), "again");
  });
}

Manifest example(int64_t hosts) {
  Manifest manifest;
  manifest.step = 1000;
  manifest.run_id = "run";
  manifest.hosts = hosts;
  manifest.state_json = R"({"data":{"epoch":1,"position":77},"loss":1.5})";
  ManifestTensor kernel{DType::f32, {8, 4}, {}}, step{DType::i32, {}, {}};
  for (int64_t host = 0; host < hosts; ++host) {
    const int64_t rows = 8 / hosts;
    manifest.files.push_back({data_file_name(host, hosts), 4096, 0xdeadbeef});
    ManifestSlice slice;
    slice.file = static_cast<size_t>(host);
    slice.dataset = "/kernel";
    slice.origin = {host * rows, 0};
    slice.sizes = {rows, 4};
    slice.extents = {{1024, rows * 8}, {2048, rows * 8}};
    kernel.slices.push_back(slice);
  }
  ManifestSlice scalar;
  scalar.dataset = "/step";
  scalar.extents = {{512, 4}};
  step.slices.push_back(scalar);
  manifest.files.push_back({kStateName, 2048, 1});
  manifest.tensors = {{"target/decoder/kernel", kernel}, {"state/step", step}};
  return manifest;
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const int64_t hosts : {1, 2}) {
    const std::string text = manifest_text(example(hosts));
    parse_manifest(text, "seed");
    seeds.push_back(text.substr(0, text.rfind(",\n\"crc32c\"")));
  }
  return seeds;
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  quintet::parse(quintet::sealed(text));
  quintet::parse(text);
  return 0;
}
