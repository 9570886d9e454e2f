// Checkpoints of T5X's Checkpointer: every value is read as it was written, and damage is told.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <regex>

#include "checkpoint/arrays/file_tensor.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/t5x/layers.h"
#include "checkpoint/t5x/stacks.h"
#include "checkpoint/t5x/t5x_reader.h"
#include "tests/checkpoint/foreign.h"
#include "tests/checkpoint/t5x_files.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_folders;
namespace pack = testing::pack;

/// Every checkpoint_<step> below checkpoint/*/`kind`, with the values that are in it.
std::vector<std::pair<fs::path, HostArrays>> fixtures(const std::string& kind) {
  std::vector<std::pair<fs::path, HostArrays>> found;
  for (const fs::path& model : fixture_folders("checkpoint"))
    for (const int64_t step : list_checkpoints(model / kind))
      found.emplace_back(checkpoint_path(model / kind, step),
                         read_safetensors(model / "values.safetensors"));
  return found;
}

TEST(T5xReader, ReadsFixturesBitForBit) {
  ASSERT_FALSE(fixtures("t5x").empty());
  for (const auto& [folder, want] : fixtures("t5x")) {
    SCOPED_TRACE(folder);
    for (const fs::path& path : {folder, folder / "checkpoint"}) {
      const t5x::Reader reader(path);
      EXPECT_TRUE(testing::same_state(testing::read_all(reader), want));
      EXPECT_TRUE(reader.verify().empty());
      EXPECT_EQ(checkpoint_path("", reader.step()), folder.filename());
    }
    testing::check_regions(t5x::Reader(folder), want);
  }
}

TEST(T5xReader, ReadsParametersThatWereRounded) {
  ASSERT_FALSE(fixtures("t5x_bf16").empty());
  for (auto& [folder, want] : fixtures("t5x_bf16")) {
    for (auto& [name, array] : want) {
      if (!name.starts_with("target/")) continue;
      HostArray rounded(DType::bf16, array.shape);
      for (size_t i = 0; i < array.as<float>().size(); ++i)
        rounded.as<bfloat16>()[i] = bfloat16(array.as<float>()[i]);
      array = std::move(rounded);
    }
    EXPECT_TRUE(testing::same_state(testing::read_all(t5x::Reader(folder)), want)) << folder;
  }
}

/// A checkpoint of a folder's own, to be damaged: an array in the index, one of four chunks with edges, one
/// without compression, a step.
class Small {
 public:
  Small() {
    write("checkpoint",
          pack::dict(
              {{"version", pack::number(3)},
               {"optimizer",
                pack::dict(
                    {{"state", pack::dict({{"step", pack::array("int32", {},
                                                                std::string("\5\0\0\0", 4), 3)}})},
                     {"target",
                      pack::dict({{"a", pack::array("float32", {2}, testing::floats({1, 2}))},
                                  {"b", pack::spec("target.b/", "gfile", {3, 3}, {2, 2})},
                                  {"c", pack::spec("target.c", "file", {2}, {2})}})}})}}));
    write("target.b/.zarray", testing::zarray("<f4", "[3,3]", "[2,2]", testing::kGzip));
    write("target.b/0.0", testing::gzip(testing::floats({0, 1, 3, 4})));
    write("target.b/0.1", testing::gzip(testing::floats({2, -1, 5, -1})));
    write("target.b/1.0", testing::gzip(testing::floats({6, 7, -1, -1})));
    write("target.b/1.1", testing::gzip(testing::floats({8, -1, -1, -1})));
    write("target.c/.zarray", testing::zarray("<f4", "[2]", "[2]", "null"));
    write("target.c/0", testing::floats({10, 11}));
  }
  const fs::path& path() const { return scratch_.path(); }
  std::string text(const std::string& file) const { return read_file(path() / file); }
  void write(const std::string& file, const std::string& bytes) const {
    fs::create_directories((path() / file).parent_path());
    testing::write_bytes(path() / file, bytes);
  }
  /// What opening and reading says; empty: nothing is wrong.
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
  testing::Scratch scratch_;
};

std::vector<float> values_of(const CheckpointReader& reader, const std::string& name) {
  const HostArray array = testing::read_all(reader).at(name);
  return {array.as<float>().begin(), array.as<float>().end()};
}

TEST(T5xReader, ReadsChunksOfEveryForm) {
  const Small small;
  const auto reader = open_checkpoint(small.path());
  EXPECT_EQ(reader->step(), 5);
  EXPECT_EQ(values_of(*reader, "target/a"), (std::vector<float>{1, 2}));
  EXPECT_EQ(values_of(*reader, "target/b"), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(values_of(*reader, "target/c"), (std::vector<float>{10, 11}));
  const HostArray part = testing::read_region(*reader, {"target/b", {1, 1}, {2, 1}});
  EXPECT_EQ(part.as<float>()[0], 4);
  EXPECT_EQ(part.as<float>()[1], 7);

  // Columns first, "/" in keys, a folder for each row; and without .zarray what the index says.
  small.write("target.b/.zarray",
              testing::zarray("<f4", "[3,3]", "[2,2]", testing::kGzip,
                              R"("order":"F","fill_value":0,"dimension_separator":"/")"));
  small.write("target.b/0/0", testing::gzip(testing::floats({0, 3, 1, 4})));
  small.write("target.b/0/1", testing::gzip(testing::floats({2, 5, -1, -1})));
  small.write("target.b/1/0", testing::gzip(testing::floats({6, -1, 7, -1})));
  small.write("target.b/1/1", testing::gzip(testing::floats({8, -1, -1, -1})));
  EXPECT_EQ(values_of(*open_checkpoint(small.path()), "target/b"),
            (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  fs::remove(small.path() / "target.b/.zarray");
  EXPECT_EQ(values_of(*open_checkpoint(small.path()), "target/b"),
            (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

/// Of scanned stacks, whose layers are on axis 1 of every parameter.
TEST(T5xLayers, AreAnArrayEach) {
  int compared = 0;
  for (const auto& [folder, want] : fixtures("t5x")) {
    const auto reader = open_checkpoint(folder);
    for (const auto& [name, array] : want) {
      const size_t at = std::min(name.find("encoder/encoder/"), name.find("decoder/decoder/"));
      if (at == std::string::npos || !name.starts_with("target/")) continue;
      FileTensor stacked = FileTensor::dense(array.dtype, array.shape, array.bytes);
      std::vector<int64_t> origin(array.shape.size()), sizes = array.shape;
      sizes[1] = 1;
      for (origin[1] = 0; origin[1] < array.shape[1]; ++origin[1]) {
        const std::string ours =
            fmt::format("{}layers_{}/{}", name.substr(0, at + 8), origin[1], name.substr(at + 16));
        SCOPED_TRACE(ours);
        ASSERT_TRUE(reader->tensors().contains(ours));
        HostArray layer(array.dtype, sizes);
        stacked.copy_region(origin, sizes, layer.bytes.data());
        const HostArray read = testing::read_region(
            *reader, {ours, std::vector<int64_t>(reader->tensors().at(ours).shape.size()),
                      reader->tensors().at(ours).shape});
        EXPECT_EQ(read.bytes, layer.bytes);
        EXPECT_LE(read.shape.size(), 2u);
        ++compared;
      }
    }
    testing::check_regions(*reader, testing::read_all(*reader));
  }
  EXPECT_GT(compared, 0);
}

/// Arrays of three layers, and how often they are read.
class CountingReader final : public CheckpointReader {
 public:
  CountingReader() : CheckpointReader("stacks") {
    for (const char* kernel : {"wi", "wo"})
      tensors_[fmt::format("target/encoder/encoder/mlp/{}/kernel", kernel)] = {DType::f32,
                                                                               {2, 3, 2}};
  }
  int64_t file_bytes() const override { return 0; }
  NotFinite verify(int /*part*/, int /*parts*/) const override { return {}; }
  mutable int reads = 0;

 protected:
  void read_region(const TensorRegion& region, std::byte* target) const override {
    ++reads;
    std::vector<float> values(12);
    std::iota(values.begin(), values.end(), 0.0f);
    FileTensor::dense(DType::f32, {2, 3, 2}, std::as_bytes(std::span(values)))
        .copy_region(region.origin, region.sizes, target);
  }
};

TEST(T5xLayers, OfAStackAreReadTogether) {
  const auto stored = std::make_shared<CountingReader>();
  const auto reader = t5x::by_layer(stored);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : reader->tensors()) names.push_back(name);
  ASSERT_EQ(names.size(), 6u);
  std::ranges::sort(names, {}, [&](const auto& name) { return reader->storage_key(name); });
  const auto layer = [](float i) {
    return std::vector<float>{2 * i, 2 * i + 1, 2 * i + 6, 2 * i + 7};
  };
  const auto read = [&](const std::string& name) {
    const HostArray array = testing::read_region(*reader, {name, {0, 0}, {2, 2}});
    return std::vector<float>(array.as<float>().begin(), array.as<float>().end());
  };
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(read(names[i]), layer(static_cast<float>(i % 3)));
  EXPECT_EQ(stored->reads, 2);
  // Of a stack of which no first layer was asked for, and again of one that is done.
  for (const size_t i : {1u, 5u, 2u}) EXPECT_EQ(read(names[i]), layer(static_cast<float>(i % 3)));
  EXPECT_EQ(stored->reads, 5);
}

/// As a network is made: layer by layer, each from all stacks.
int reads_layer_by_layer(int64_t most_bytes) {
  const auto stored = std::make_shared<CountingReader>();
  const auto reader = t5x::by_layer(stored, most_bytes);
  for (int layer = 0; layer < 3; ++layer)
    for (const char* kernel : {"wi", "wo"}) {
      const HostArray array = testing::read_region(
          *reader,
          {fmt::format("target/encoder/layers_{}/mlp/{}/kernel", layer, kernel), {0, 0}, {2, 2}});
      const float first = 2.0f * static_cast<float>(layer);
      EXPECT_TRUE(std::ranges::equal(array.as<float>(),
                                     std::vector<float>{first, first + 1, first + 6, first + 7}));
    }
  return stored->reads;
}

TEST(T5xLayers, OfSeveralStacksAreReadTogether) {
  EXPECT_EQ(reads_layer_by_layer(t5x::kMostStackBytes), 2);
  EXPECT_EQ(reads_layer_by_layer(96), 2);  // both of them
  EXPECT_EQ(reads_layer_by_layer(95), 4);  // the newer one
  EXPECT_EQ(reads_layer_by_layer(0), 4);   // one is always kept
}

/// flaxformer scans over groups of layers that differ: of two subblocks, group i has layers 2 i and 2 i + 1.
TEST(T5xLayers, OfSubblocksFollowOneAnother) {
  const Small small;
  const auto subblock = [](float first) {
    return pack::dict(
        {{"mlp",
          pack::dict({{"wi", pack::dict({{"kernel",
                                          pack::array("float32", {1, 2, 2},
                                                      testing::floats({first, first + 1, first + 4,
                                                                       first + 5}))}})}})}});
  };
  const auto write = [&](const std::string& name) {
    small.write(
        "checkpoint",
        pack::dict(
            {{"target",
              pack::dict(
                  {{"encoder", pack::dict({{"encoder", pack::dict({{"subblock_0", subblock(0)},
                                                                   {name, subblock(2)}})}})}})}}));
  };
  write("subblock_1");
  const auto reader = open_checkpoint(small.path());
  EXPECT_EQ(reader->tensors().size(), 4u);
  for (int layer = 0; layer < 4; ++layer) {
    const auto first = static_cast<float>(2 * layer);
    EXPECT_EQ(values_of(*reader, fmt::format("target/encoder/layers_{}/mlp/wi/kernel", layer)),
              (std::vector<float>{first, first + 1}));
  }
  write("subblock_x");
  EXPECT_NE(small.problem().find("subblock without a number"), std::string::npos);
}

/// What T5X stores of a scanned network comes again from a layer each.
TEST(T5xStacks, AreTheInverseOfLayers) {
  constexpr int64_t kHeads = 2;
  std::vector<std::pair<fs::path, int>> stored;
  for (const auto& [folder, values] : fixtures("t5x"))
    if (folder.string().find("scalable_t5") != std::string::npos) stored.emplace_back(folder, 1);
  for (const char* name : {"scanned", "scanned_adamw", "scanned_axis_0"})
    stored.emplace_back(testing::fixture_root() / "t5x" / name / "checkpoint_3",
                        std::string(name).ends_with("_0") ? 0 : 1);
  ASSERT_EQ(stored.size(), 4u);
  for (const auto& [folder, axis] : stored) {
    SCOPED_TRACE(folder);
    const HostArrays want = testing::read_all(t5x::Reader(folder));
    const auto layers = open_checkpoint(folder);
    const auto reader = t5x::stacked(layers, {.axis = axis, .heads = kHeads});
    const HostArrays got = testing::read_all(*reader);
    EXPECT_LT(got.size(), layers->tensors().size());
    for (const auto& [name, array] : got)
      if (want.contains(name))
        EXPECT_TRUE(testing::same_state({{name, array}}, {{name, want.at(name)}}));
      else
        ADD_FAILURE() << name;
    for (const auto& [name, array] : want)
      EXPECT_TRUE(got.contains(name) || array.shape == std::vector<int64_t>{1}) << name;
    testing::check_regions(*reader, got);
    EXPECT_EQ(reader->step(), 3);
  }
}

/// flaxformer's heads are in one axis with their width; with experts, blocks of two layers are stacked.
TEST(T5xStacks, AreTheInverseOfFlaxformersLayers) {
  for (const auto& [name, blocks] :
       {std::pair<const char*, std::map<std::string, int64_t>>{"scanned", {}},
        {"moe_scanned", {{"encoder", 2}, {"decoder", 2}}}}) {
    SCOPED_TRACE(name);
    const fs::path folder = testing::fixture_root() / "flaxformer" / name;
    const HostArrays want = read_safetensors(folder / "values.safetensors");
    const auto reader =
        t5x::stacked(open_checkpoint(folder), {.axis = 1, .heads = 0, .blocks = blocks});
    const HostArrays got = testing::read_all(*reader);
    for (const auto& [array, values] : got) {
      ASSERT_TRUE(want.contains(array)) << array;
      EXPECT_TRUE(testing::same_state({{array, values}}, {{array, want.at(array)}}));
    }
    for (const auto& [array, values] : want)
      EXPECT_TRUE(got.contains(array) || values.shape == std::vector<int64_t>{1}) << array;
    testing::check_regions(*reader, got);
  }
}

TEST(T5xStacks, RefuseWhatScannedNetworksHaveNotByName) {
  const auto problem = [](const fs::path& folder) -> std::string {
    try {
      t5x::stacked(open_checkpoint(folder), {.axis = 1, .heads = 2});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage) << error.what();
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problem(testing::fixture_root() / "checkpoint/t5_1_1/t5x")
                .find("relpos_bias/rel_embedding' is shared by all layers"),
            std::string::npos);
  EXPECT_NE(problem(testing::fixture_root() / "huggingface/switch").find("experts"),
            std::string::npos);
  const Small small;
  const auto write = [&](const char* second, int64_t width) {
    const auto layer = [](int64_t n) {
      const std::string kernel =
          pack::array("float32", {1, n}, std::string(static_cast<size_t>(4 * n), '\0'));
      return pack::dict({{"mlp", pack::dict({{"wi", pack::dict({{"kernel", kernel}})}})}});
    };
    const std::string layers = pack::dict({{"layers_0", layer(2)}, {second, layer(width)}});
    small.write("checkpoint", pack::dict({{"target", pack::dict({{"encoder", layers}})}}));
    return problem(small.path());
  };
  EXPECT_NE(write("layers_2", 2).find("is not of every layer"), std::string::npos);
  EXPECT_NE(write("layers_1", 3).find("is not as that of other layers"), std::string::npos);
  EXPECT_EQ(write("layers_1", 2), "");
}

/// flaxformer's trees as T5X saves them (tests/oracles/gen_flaxformer.py): no array is other than it was.
TEST(T5xReader, ReadsFlaxformersTreesBitForBit) {
  const std::vector<fs::path> folders = fixture_folders("flaxformer");
  ASSERT_FALSE(folders.empty());
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder);
    const HostArrays want = read_safetensors(folder / "values.safetensors");
    EXPECT_TRUE(testing::same_state(
        testing::read_all(t5x::Reader(folder / "checkpoint_2" / "checkpoint")), want));
    const auto layers = open_checkpoint(folder);
    EXPECT_EQ(layers->step(), 2);
    const bool is_fused = folder.filename() == "fused";
    const auto found =
        layers->tensors().find(is_fused ? "target/decoder/layers_1/o_wo_fused/kernel"
                                        : "target/encoder/layers_1/attention/out/kernel");
    ASSERT_NE(found, layers->tensors().end());
    EXPECT_EQ(found->second.shape, (std::vector<int64_t>{is_fused ? 36 : 16, 16}));
  }
}

TEST(T5xReader, ReadsTreesOfEveryWriter) {
  const Small small;
  const std::string a = pack::array("float32", {2}, testing::floats({1, 2}));
  // flax's train state; None where an optimizer has nothing; a number of Python's; flaxformer's metadata.
  small.write(
      "checkpoint",
      pack::dict({{"target", pack::dict({{"a", a},
                                         {"__save_format_metadata__",
                                          pack::dict({{"__version__", pack::number(0)}})}})},
                  {"state", pack::dict({{"step", pack::number(7)},
                                        {"param_states", pack::dict({{"a", pack::nothing()}})}})},
                  {"params_axes", pack::nothing()}}));
  auto reader = open_checkpoint(small.path());
  EXPECT_EQ(reader->step(), 7);
  EXPECT_EQ(reader->tensors().size(), 2u);
  EXPECT_EQ(values_of(*reader, "target/a"), (std::vector<float>{1, 2}));
  // Orbax before OCDBT, around a train state; TensorStore before 0.1.14; a bucket's name.
  small.write(
      "checkpoint",
      pack::dict(
          {{"_optimizer",
            pack::dict({{"target", pack::dict({{"c", pack::text("PLACEHOLDER://target.c")}})}})}}));
  reader = open_checkpoint(small.path());
  EXPECT_EQ(values_of(*reader, "target/c"), (std::vector<float>{10, 11}));
  EXPECT_EQ(reader->details().front().second, "Orbax, before OCDBT");
  small.write(
      "checkpoint",
      pack::dict(
          {{"version", pack::number(2)},
           {"optimizer",
            pack::dict(
                {{"target",
                  pack::dict(
                      {{"c", pack::dict({{"driver", pack::text("zarr")},
                                         {"kvstore",
                                          pack::dict({{"driver", pack::text("gcs")},
                                                      {"bucket", pack::text("t5x-dummy-bucket")}})},
                                         {"path", pack::text("target.c")}})}})}})}}));
  EXPECT_EQ(values_of(*open_checkpoint(small.path()), "target/c"), (std::vector<float>{10, 11}));
  // The file alone, whatever its name.
  fs::rename(small.path() / "checkpoint", small.path() / "test_t5_tiny.checkpoint_0");
  EXPECT_EQ(open_checkpoint(small.path() / "test_t5_tiny.checkpoint_0")->tensors().size(), 1u);
}

/// What neither T5X nor Orbax writes of zarr is named, with what to do.
TEST(RefusedT5x, OtherZarrByName) {
  const auto problem_of = [](const std::string& file, const std::string& text) {
    const Small small;
    small.write("target.b/" + file, text);
    return small.problem();
  };
  const auto array = [](const std::string& compressor) {
    return testing::zarray("<f4", "[3,3]", "[2,2]", compressor);
  };
  const std::string filters = std::regex_replace(
      array(testing::kGzip), std::regex("\"filters\":null"), R"("filters":[{"id":"delta"}])");
  for (const auto& [file, text, what, advice] :
       {std::tuple(".zarray", array(R"({"id":"blosc","cname":"lz4"})"),
                   "compressor 'blosc' is not read", "store the array again"),
        {".zarray", array(R"({"id":"bz2"})"), "compressor 'bz2' is not read", "gzip"},
        {".zarray", filters, "has filters", "store the array again without"},
        {"zarr.json", R"({"zarr_format":3})", "is of zarr format 3", "store it as that"}}) {
    const std::string problem = problem_of(file, text);
    EXPECT_NE(problem.find(what), std::string::npos) << problem;
    EXPECT_NE(problem.find(advice), std::string::npos) << problem;
    EXPECT_NE(problem.find("target.b"), std::string::npos) << problem;
  }
}

TEST(RefusedT5x, WhatIsMissingOrOutside) {
  const auto expect = [](const Small& small, const std::string& part) {
    const std::string what = small.problem();
    EXPECT_NE(what.find(part), std::string::npos) << what;
    EXPECT_NE(what.find(small.path().string()), std::string::npos) << what;
  };
  Small chunk;
  fs::remove(chunk.path() / "target.b/1.0");
  expect(chunk, "chunk 1.0 is missing");
  Small folder;
  fs::remove_all(folder.path() / "target.b");
  expect(folder, "'target/b' lies in 'target.b'");
  for (const char* place : {"../x", "/etc", "a/../../b", ".."}) {
    Small outside;
    outside.write(
        "checkpoint",
        pack::dict({{"target", pack::dict({{"b", pack::spec(place, "file", {3, 3}, {2, 2})}})}}));
    expect(outside, "beside the file");
  }
  Small shape;
  shape.write("target.b/.zarray", testing::zarray("<f4", "[3,4]", "[2,2]", testing::kGzip));
  expect(shape, "has shape [3, 4], checkpoint says [3, 3]");
  Small dtype;
  dtype.write("target.b/.zarray", testing::zarray("<i4", "[3,3]", "[2,2]", testing::kGzip));
  expect(dtype, "is int32, checkpoint says float32");
  Small version;
  version.write("checkpoint",
                pack::dict({{"version", pack::number(1)}, {"optimizer", pack::dict({})}}));
  expect(version, "is of version 1");
}

/// Bits that flip and ends that are missing give an error that names the file, or what was there; where gzip
/// has its checksum, never other numbers.
TEST(DamagedT5x, IsAnErrorOrUnchanged) {
  const Small small;
  const HostArrays before = testing::read_all(*open_checkpoint(small.path()));
  std::mt19937 random(11);
  for (const char* file : {"checkpoint", "target.b/.zarray", "target.b/0.0", "target.b/1.1"}) {
    SCOPED_TRACE(file);
    const std::string whole = small.text(file);
    const bool has_checksum = file != std::string("checkpoint");
    const auto check = [&](const std::string& bytes) {
      small.write(file, bytes);
      const std::string what = small.problem();
      if (!what.empty()) {
        EXPECT_NE(what.find(small.path().string()), std::string::npos) << what;
      } else if (has_checksum) {
        EXPECT_TRUE(testing::same_state(testing::read_all(*open_checkpoint(small.path())), before));
      }
    };
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = whole;
      char& byte = bytes[random() % bytes.size()];
      byte = static_cast<char>(byte ^ (1 << random() % 8));
      check(bytes);
    }
    for (size_t i = 0; i < 64; ++i) {
      small.write(file, whole.substr(0, whole.size() * i / 64));
      EXPECT_NE(small.problem(), "") << i;
    }
    small.write(file, whole);
  }
}

}  // namespace
}  // namespace quintet
