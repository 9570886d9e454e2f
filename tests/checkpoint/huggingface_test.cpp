// The readers of Hugging Face's files: what they accept, what damage does to them, whom they refuse.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "checkpoint/huggingface/formats.h"
#include "checkpoint/huggingface/huggingface_reader.h"
#include "checkpoint/open/open_checkpoint.h"
#include "runtime/base/files/atomic_file.h"
#include "tests/checkpoint/foreign.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_root;
using testing::read_all;
using testing::Scratch;

bool same(const HostArrays& a, const HostArrays& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.shape == y.second.shape &&
           x.second.bytes == y.second.bytes;
  });
}

/// A copy of a fixture's directory to damage.
class Copy {
 public:
  explicit Copy(const std::string& kind) {
    for (const auto& entry : fs::directory_iterator(fixture_root() / "huggingface" / kind))
      fs::copy_file(entry.path(), path() / entry.path().filename());
  }
  const fs::path& path() const { return scratch_.path(); }
  std::string text(const std::string& file) const { return read_file(path() / file); }
  void write(const std::string& file, const std::string& bytes) const {
    std::ofstream(path() / file, std::ios::binary | std::ios::trunc) << bytes;
  }
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string bytes = text(file);
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write(file, bytes.replace(at, from.size(), to));
  }
  /// What opening, verifying and reading says; empty: nothing is wrong.
  std::string problem() const {
    try {
      testing::read_within(testing::bytes_of_files(path()),
                           [&] { return open_checkpoint(path()); });
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      return error.what();
    }
    return "";
  }

 private:
  Scratch scratch_;
};

TEST(HuggingFaceReader, ReadsARegionAsItReadsTheWhole) {
  const huggingface::Reader reader(fixture_root() / "huggingface/strided");
  for (const auto& [name, array] : read_all(reader)) {
    if (array.shape.size() != 2) continue;
    const std::vector<int64_t> origin{array.shape[0] / 3, array.shape[1] / 2};
    const std::vector<int64_t> sizes{array.shape[0] / 2, array.shape[1] / 3};
    HostArray part(array.dtype, sizes);
    reader.read({name, origin, sizes}, part.bytes.data());
    for (int64_t i = 0; i < sizes[0]; ++i)
      for (int64_t j = 0; j < sizes[1]; ++j)
        ASSERT_EQ(
            part.as<float>()[static_cast<size_t>(i * sizes[1] + j)],
            array
                .as<float>()[static_cast<size_t>((origin[0] + i) * array.shape[1] + origin[1] + j)])
            << name;
  }
}

/// The elements of a region in place, by its strides.
HostArray collected(const RegionInPlace& found, DType dtype, const std::vector<int64_t>& sizes) {
  HostArray array(dtype, sizes);
  const auto element = static_cast<size_t>(size_of(dtype));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(found.values) % element, 0U);
  std::vector<int64_t> at(sizes.size(), 0);
  for (size_t i = 0; i < array.bytes.size(); i += element) {
    int64_t from = 0;
    for (size_t d = 0; d < at.size(); ++d) from += at[d] * found.strides[d];
    std::memcpy(array.bytes.data() + i, found.values + from * static_cast<int64_t>(element),
                element);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == sizes[d];) at[d] = 0;
  }
  return array;
}

TEST(HuggingFaceReader, GivesRegionsInPlaceAsItReadsThem) {
  int64_t in_place = 0, stacked = 0;
  for (const auto& entry : fs::directory_iterator(fixture_root() / "huggingface")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    const huggingface::Reader reader(entry.path());
    for (const auto& [name, tensor] : reader.tensors()) {
      TensorRegion region{name, {}, {}};
      for (const int64_t size : tensor.shape) {
        region.origin.push_back(size / 3);
        region.sizes.push_back(std::max<int64_t>(size / 2, 1));
      }
      if (tensor.shape.size() == 3) region.sizes[0] = 1;  // experts are a tensor each
      const auto found = reader.in_place(region);
      if (!found) continue;
      ++(tensor.shape.size() == 3 ? stacked : in_place);
      HostArray copied(tensor.dtype, region.sizes);
      reader.read(region, copied.bytes.data());
      EXPECT_EQ(collected(*found, tensor.dtype, region.sizes).bytes, copied.bytes)
          << entry.path() << ": " << name;
      if (tensor.shape.size() != 3 || tensor.shape[0] < 2) continue;
      region.origin[0] = 0;
      region.sizes[0] = 2;
      EXPECT_FALSE(reader.in_place(region)) << name;
    }
  }
  EXPECT_GT(in_place, 0);
  EXPECT_GT(stacked, 0);
}

/// 0, 1, ... in a row-major array.
FileTensor counting(std::vector<float>& values, std::vector<int64_t> shape) {
  std::iota(values.begin(), values.end(), 0.0F);
  return FileTensor::dense(DType::f32, std::move(shape), std::as_bytes(std::span(values)));
}

TEST(FileTensor, RegionsThatLieInSeveralPieces) {
  std::vector<float> values(60), want(20), found(20);
  FileTensor tensor = counting(values, {6, 10});
  const auto read = [&](std::vector<float>& to) {
    tensor.copy_region({1, 2}, {4, 5}, reinterpret_cast<std::byte*>(to.data()));
  };
  read(want);
  const auto whole = tensor.pieces.front();
  tensor.pieces = {whole.first(4 * 7), whole.subspan(4 * 7, 4 * 16), whole.subspan(4 * 23)};
  read(found);
  EXPECT_EQ(found, want);
  EXPECT_EQ(found[5], 22);
}

/// Pages between rows that are far apart count as memory: no more than a few MB of them at a time.
TEST(FileTensor, RowsThatAreFarApartAreCopiedInBlocks) {
  std::vector<float> values(4 * (3 << 20)), found(4 * 8);
  const FileTensor tensor = counting(values, {4, 3 << 20});
  const auto is_in_place = [&](int64_t rows) {
    return tensor.region_in_place(std::vector<int64_t>{0, 0}, std::vector<int64_t>{rows, 8})
        .has_value();
  };
  EXPECT_TRUE(is_in_place(1));
  EXPECT_FALSE(is_in_place(4));
  int blocks = 0;
  tensor.copy_region({0, 5}, {4, 8}, reinterpret_cast<std::byte*>(found.data()), [&] { ++blocks; });
  EXPECT_EQ(blocks, 4);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(found[static_cast<size_t>(i)], static_cast<float>(i / 8 * (3 << 20) + 5 + i % 8));
}

TEST(HuggingFaceReader, KnowsATableThatIsThereTwice) {
  EXPECT_TRUE(huggingface::Reader(fixture_root() / "huggingface/t5_1_0_head_repeated").tied());
  EXPECT_TRUE(huggingface::Reader(fixture_root() / "huggingface/t5_1_0").tied());
  EXPECT_FALSE(huggingface::Reader(fixture_root() / "huggingface/t5_1_1").tied());
  EXPECT_FALSE(huggingface::Reader(fixture_root() / "huggingface/tied_unscaled").tied());
}

/// transformers 5.24 and newer save an untied umT5 so.
TEST(HuggingFaceReader, ScalesUMT5AsItsFieldSays) {
  const Copy copy("umt5");
  copy.replace("config.json", "\"tie_word_embeddings\": false",
               "\"tie_word_embeddings\": true, \"scale_decoder_outputs\": false");
  const huggingface::Reader saved_again(copy.path());
  EXPECT_FALSE(saved_again.tied());
  EXPECT_TRUE(same(read_all(huggingface::Reader(fixture_root() / "huggingface/umt5")),
                   read_all(saved_again)));
}

/// Bits that flip and ends that are missing give an error or what was there; where the format has
/// checksums, never other numbers.
void expect_survives(const std::string& kind, const std::string& file, bool has_checksums) {
  SCOPED_TRACE(kind);
  const Copy copy(kind);
  const std::string whole = copy.text(file);
  const HostArrays before = read_all(*open_checkpoint(copy.path()));
  std::mt19937 random(7);
  const auto check = [&](const std::string& bytes) {
    copy.write(file, bytes);
    const std::string what = copy.problem();
    if (!what.empty()) {
      EXPECT_NE(what.find(copy.path().string()), std::string::npos) << what;
      return;
    }
    if (has_checksums) {
      EXPECT_TRUE(same(before, read_all(*open_checkpoint(copy.path()))));
    }
  };
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    // Half of the flips where the structure is: at the ends.
    const size_t end = i % 4 == 0 ? 3000 : i % 4 == 1 ? 9000 : whole.size();
    const size_t at = random() % std::min(end, whole.size());
    char& byte = bytes[i % 4 == 1 ? whole.size() - 1 - at : at];
    byte = static_cast<char>(byte ^ (1 << random() % 8));
    check(bytes);
  }
  for (int i = 0; i < 64; ++i) {
    copy.write(file, whole.substr(0, whole.size() * static_cast<size_t>(i) / 64));
    EXPECT_NE(copy.problem(), "") << i;
  }
}

TEST(DamagedHuggingFace, ArchivesOfTorchAreErrorsOrUnchanged) {
  expect_survives("t5_1_1", "pytorch_model.bin", true);
}
TEST(DamagedHuggingFace, OlderFilesOfTorchAreErrors) {
  expect_survives("byt5", "pytorch_model.bin", false);
}
TEST(DamagedHuggingFace, SafetensorsAreErrors) {
  expect_survives("t5_1_0", "model.safetensors", false);
}
TEST(DamagedHuggingFace, MsgpackFilesAreErrors) {
  expect_survives("flax", "flax_model.msgpack", false);
}
TEST(DamagedHuggingFace, ConfigurationsAreErrors) { expect_survives("flan", "config.json", false); }

TEST(RefusedHuggingFace, GlobalsThatAreNotForTensorsByName) {
  const Copy copy("byt5");
  copy.write("pytorch_model.bin",
             "\x80\x02"
             "cposix\nsystem\nX\x04\x00\x00\x00"
             "true\x85R.");
  EXPECT_NE(copy.problem().find("posix.system"), std::string::npos) << copy.problem();
}

TEST(RefusedHuggingFace, OtherModelsByTheirType) {
  const Copy copy("t5_1_0");
  copy.replace("config.json", "\"t5\"", "\"bart\"");
  const std::string what = copy.problem();
  EXPECT_NE(what.find("'bart' is not supported"), std::string::npos) << what;
  EXPECT_NE(what.find("umt5"), std::string::npos) << what;
}

TEST(RefusedHuggingFace, FieldsByName) {
  for (const auto& [from, to, name] :
       {std::tuple("\"layer_norm_epsilon\": 1e-06", "\"layer_norm_epsilon\": 1e-05",
                   "layer_norm_epsilon"),
        {"\"pad_token_id\": 0", "\"pad_token_id\": 3", "pad_token_id"},
        {"\"decoder_start_token_id\": 0", "\"decoder_start_token_id\": 2",
         "decoder_start_token_id"},
        {"\"feed_forward_proj\": \"relu\"", "\"feed_forward_proj\": \"gelu_fast\"",
         "feed_forward_proj"},
        {"\"use_cache\": true", "\"rope_theta\": 10000", "rope_theta"},
        {"\"d_kv\": 8", "\"d_kv\": 9", "d_kv"},
        {"\"d_kv\": 8", "\"d_kv\": \"8\"", "d_kv"}}) {
    const Copy copy("t5_1_0");
    copy.replace("config.json", from, to);
    const std::string what = copy.problem();
    // A size that is merely wrong shows in a tensor of another shape.
    EXPECT_NE(what.find(to == std::string("\"d_kv\": 9") ? "SelfAttention.q.weight" : name),
              std::string::npos)
        << what;
  }
}

TEST(RefusedHuggingFace, WeightsThatAreMissingOrTooMany) {
  const Copy fewer("t5_1_0");
  fewer.replace("config.json", "\"num_layers\": 2", "\"num_layers\": 3");
  EXPECT_NE(fewer.problem().find("'encoder.block.2.layer.0.layer_norm.weight'"), std::string::npos)
      << fewer.problem();
  const Copy more("t5_1_0");
  more.replace("config.json", "\"num_layers\": 2", "\"num_layers\": 1");
  EXPECT_NE(more.problem().find("belong to nothing"), std::string::npos) << more.problem();
  const Copy encoder("encoder");
  encoder.replace("config.json", "T5EncoderModel", "T5ForConditionalGeneration");
  EXPECT_NE(encoder.problem().find("an encoder and no decoder"), std::string::npos)
      << encoder.problem();
}

TEST(RefusedHuggingFace, PointersOfGitLfs) {
  const Copy copy("t5_1_0");
  copy.write("model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 308\n");
  EXPECT_NE(copy.problem().find("model.safetensors: is Git LFS's pointer"), std::string::npos)
      << copy.problem();
}

TEST(RefusedHuggingFace, ShardsThatAreMissing) {
  const Copy copy("flan");
  fs::remove(copy.path() / "model-00002-of-00002.safetensors");
  EXPECT_NE(copy.problem().find("model-00002-of-00002.safetensors"), std::string::npos);
  const Copy outside("flan");
  outside.replace("model.safetensors.index.json", "model-00001-of", "../el-00001-of");
  EXPECT_NE(outside.problem().find("beside it"), std::string::npos) << outside.problem();
}

}  // namespace
}  // namespace quintet
