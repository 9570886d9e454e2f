// The checkpoints that T5X's own tests restore, of a checkout (QUINTET_T5X=DIR): all values, bit for bit. The sums
// are those of what flax, gzip and zstd read of them, one array after another in the order of their names.

#include <gtest/gtest.h>

#include "checkpoint/huggingface/zip_archive.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/t5x/t5x_reader.h"
#include "tests/checkpoint/foreign.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// Below t5x/testdata; no path: the checkout has it not.
class T5xCheckout : public ::testing::Test {
 protected:
  static fs::path testdata(const std::string& name) {
    const char* root = std::getenv("QUINTET_T5X");
    if (root == nullptr) return {};
    const fs::path path = fs::path(root) / "t5x/testdata" / name;
    return fs::exists(path) ? path : fs::path();
  }
  static uint32_t sum_of(const CheckpointReader& reader) {
    EXPECT_TRUE(reader.verify().empty());
    std::vector<std::byte> all;
    for (const auto& [name, array] : testing::read_all(reader))
      all.insert(all.end(), array.bytes.begin(), array.bytes.end());
    return huggingface::crc32_of(all);
  }
};

TEST_F(T5xCheckout, ATreeInOneFile) {
  const fs::path path = testdata("test_t5_tiny.checkpoint_0");
  if (path.empty()) GTEST_SKIP() << "QUINTET_T5X names no checkout of t5x";
  const t5x::Reader reader(path);
  EXPECT_EQ(reader.tensors().size(), 261u);
  EXPECT_EQ(sum_of(reader), 0xdb420632u);
  // By our names: layers apart, slots that Adafactor does not use left out.
  EXPECT_TRUE(open_checkpoint(path)->tensors().contains("target/decoder/layers_0/mlp/wi_0/kernel"));
}

TEST_F(T5xCheckout, AFolderOfArrays) {
  const fs::path path = testdata("tiny_t5");
  if (path.empty()) GTEST_SKIP() << "QUINTET_T5X names no checkout of t5x";
  const auto reader = open_checkpoint(find_checkpoint(path));
  EXPECT_EQ(reader->step(), 1);
  EXPECT_EQ(sum_of(*reader), 0xcd724e7au);
}

/// A copy without hidden files lacks its metadata, which say this.
void add_metadata(const fs::path& folder) {
  const std::vector<std::array<std::string, 3>> arrays = {{"param_states.bias", "<f4", "[5]"},
                                                          {"param_states.kernel", "<f8", "[10,5]"},
                                                          {"param_states.step", "<i4", "[]"},
                                                          {"step", "<i4", "[]"}};
  for (const auto& [name, dtype, shape] : arrays) {
    const fs::path file = folder / ("_optimizer.state." + name) / ".zarray";
    if (!fs::exists(file))
      testing::write_bytes(
          file, fmt::format(R"({{"zarr_format":2,"dtype":"{}","shape":{},"chunks":{},"order":"C",)"
                            R"("fill_value":null,"filters":null,"compressor":{{"id":"zstd"}}}})",
                            dtype, shape, shape));
  }
}

TEST_F(T5xCheckout, OrbaxOf2023) {
  const fs::path path = testdata("tiny_orbax/1");
  if (path.empty()) GTEST_SKIP() << "QUINTET_T5X names no checkout of t5x";
  const testing::Scratch scratch;
  const fs::path folder = scratch.path() / "1";
  fs::copy(path, folder, fs::copy_options::recursive);
  add_metadata(folder);
  const auto reader = open_checkpoint(folder);
  EXPECT_EQ(reader->step(), 1);
  EXPECT_EQ(sum_of(*reader), 0xcd724e7au);
}

TEST_F(T5xCheckout, MeshTensorFlow) {
  const fs::path path = testdata("mtf_tiny_t5");
  if (path.empty() || !fs::exists(path / "model.ckpt-0.data-00001-of-00002"))
    GTEST_SKIP() << "QUINTET_T5X names no checkout of t5x with mtf_tiny_t5's values";
  const auto reader = open_checkpoint(path);
  EXPECT_TRUE(reader->verify().empty());
  // model-info.txt: 52 variables of 2,179,584 numbers.
  int64_t parameters = 0, elements = 0;
  for (const auto& [name, tensor] : reader->tensors()) {
    if (!name.starts_with("target/")) continue;
    ++parameters;
    elements += testing::read_all(*reader).at(name).elements();
  }
  EXPECT_EQ(parameters, 52);
  EXPECT_EQ(elements, 2'179'584);
}

}  // namespace
}  // namespace quintet
