// Checkpoints of TensorFlow: T5's variables by our names, every value as it was written; damage is told.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "checkpoint/bytes/decompress.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/tensorflow/mesh_names.h"
#include "checkpoint/tensorflow/slice_key.h"
#include "tests/checkpoint/foreign.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_folders;
using testing::fixture_root;

/// Folders checkpoint/<model>/tf, with the values that are in them.
std::vector<std::pair<fs::path, HostArrays>> fixtures() {
  const Json cases = Json::read(fixture_root() / "checkpoint/checkpoint.json")["cases"];
  std::vector<std::pair<fs::path, HostArrays>> found;
  for (const fs::path& model : fixture_folders("checkpoint")) {
    if (!fs::is_directory(model / "tf")) continue;
    const HostArrays values = read_safetensors(model / "values.safetensors");
    HostArrays want;
    for (const auto& [theirs, ours] : cases[model.filename().string()]["tf_names"].members())
      want[ours.as_string()] = values.at(ours.as_string());
    // What T5X keeps for form's sake is not there.
    for (const auto& [name, array] : values) {
      const bool is_dummy = array.shape == std::vector<int64_t>{1};
      EXPECT_TRUE(is_dummy || name.ends_with("/m") || want.contains(name)) << name;
    }
    found.emplace_back(model / "tf", want);
  }
  return found;
}

TEST(TensorFlowReader, ReadsFixturesBitForBit) {
  ASSERT_FALSE(fixtures().empty());
  for (const auto& [folder, want] : fixtures()) {
    SCOPED_TRACE(folder);
    fs::path prefix;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".index") prefix = folder / entry.path().stem();
    for (const fs::path& path : {folder, prefix}) {
      const auto reader = open_checkpoint(path);
      EXPECT_TRUE(testing::same_state(testing::read_all(*reader), want));
      EXPECT_TRUE(reader->verify().empty());
      EXPECT_EQ(reader->step(), want.at("state/step").as<int32_t>()[0]);
    }
    testing::check_regions(*open_checkpoint(folder), want);
  }
}

TEST(MeshNames, OfEveryKindOfT5) {
  const std::map<std::string, std::string> want = {
      {"global_step", "state/step"},
      {"shared/embedding", "target/token_embedder/embedding"},
      {"shared/embedding_slot_vr", "state/param_states/token_embedder/embedding/v_row"},
      {"shared/embedding_slot_vc", "state/param_states/token_embedder/embedding/v_col"},
      {"encoder/embedding", "target/encoder/token_embedder/embedding"},
      {"transformer/embedding", "target/decoder/token_embedder/embedding"},
      {"encoder/block_011/layer_000/SelfAttention/q",
       "target/encoder/layers_11/attention/query/kernel"},
      {"decoder/block_000/layer_000/SelfAttention/k_slot_m",
       "state/param_states/decoder/layers_0/self_attention/key/kernel/m"},
      {"decoder/block_000/layer_001/EncDecAttention/o_slot_v",
       "state/param_states/decoder/layers_0/encoder_decoder_attention/out/kernel/v"},
      {"encoder/block_001/layer_001/DenseReluDense/wi/kernel",
       "target/encoder/layers_1/mlp/wi/kernel"},
      {"encoder/block_001/layer_001/DenseReluDense/wi_1/kernel",
       "target/encoder/layers_1/mlp/wi_1/kernel"},
      {"encoder/block_001/layer_001/layer_norm/scale",
       "target/encoder/layers_1/pre_mlp_layer_norm/scale"},
      {"decoder/block_001/layer_001/rms_norm/scale",
       "target/decoder/layers_1/pre_cross_attention_layer_norm/scale"},
      {"transformer/block_001/layer_001/layer_norm/scale",
       "target/decoder/layers_1/pre_mlp_layer_norm/scale"},
      {"encoder/final_layer_norm/scale", "target/encoder/encoder_norm/scale"},
      {"decoder/rms_norm/scale", "target/decoder/decoder_norm/scale"},
      {"decoder/logits/kernel", "target/decoder/logits_dense/kernel"},
      {"encoder/block_000/layer_000/SelfAttention/relative_attention_bias",
       "target/encoder/relpos_bias/rel_embedding"},
      {"decoder/block_000/layer_000/SelfAttention/relative_attention_bias_slot_v",
       "state/param_states/decoder/relpos_bias/rel_embedding/v"}};
  std::vector<std::string> names;
  for (const auto& [theirs, ours] : want) names.push_back(theirs);
  EXPECT_EQ(tensorflow::mesh_to_ours(names, "here"), want);
  // A second layer with a table: no table is shared.
  names.push_back("encoder/block_001/layer_000/SelfAttention/relative_attention_bias");
  const auto apart = tensorflow::mesh_to_ours(names, "here");
  EXPECT_EQ(apart.at(names.back()), "target/encoder/layers_1/relpos_bias/rel_embedding");
  EXPECT_EQ(apart.at("encoder/block_000/layer_000/SelfAttention/relative_attention_bias"),
            "target/encoder/layers_0/relpos_bias/rel_embedding");
}

TEST(MeshNames, OthersAreRefusedByName) {
  for (const std::string name :
       {"bert/embeddings/word_embeddings", "encoder/logits/kernel", "encoder/block_x/layer_000/q",
        "encoder/block_000/layer_007/layer_norm/scale", "decoder/block_000/layer_000/q",
        "global_step_slot_v"}) {
    const std::string message =
        testing::error_of(ExitCode::kData, [&] { tensorflow::mesh_to_ours({name}, "here"); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
}

/// TensorFlow's own checkpoints with slices are below, these are numbers that they do not have.
TEST(SliceKey, OfNumbersOfEverySize) {
  using tensorflow::slice_key;
  using namespace std::string_literals;
  EXPECT_EQ(slice_key("a", {0}, {tensorflow::kWholeAxis}), "\0a\0\x01\x01\x01\x80\x7f"s);
  EXPECT_EQ(slice_key("\0\xff"s, {}, {}), "\0\0\xff\xff\0\0\x01\0"s);
  EXPECT_EQ(slice_key("", {64}, {8191}), "\0\0\x01\x01\x01\xc0\x40\xdf\xff"s);
  EXPECT_EQ(slice_key("", {8192}, {1}), "\0\0\x01\x01\x01\xe0\x20\0\x81"s);
}

/// Checkpoints of variables in several parts, with their values by our names beside them.
std::vector<fs::path> fixtures_in_parts() {
  std::vector<fs::path> prefixes;
  for (const auto& entry : fs::directory_iterator(fixture_root() / "ocdbt/tf"))
    if (entry.path().extension() == ".index")
      prefixes.push_back(entry.path().parent_path() / entry.path().stem());
  return prefixes;
}

HostArrays values_of(const fs::path& prefix) {
  return read_safetensors(prefix.parent_path() / prefix.stem() += ".safetensors");
}

TEST(TensorFlowReader, ReadsVariablesInParts) {
  ASSERT_FALSE(fixtures_in_parts().empty());
  for (const fs::path& prefix : fixtures_in_parts()) {
    SCOPED_TRACE(prefix);
    const auto reader = open_checkpoint(prefix);
    EXPECT_TRUE(testing::same_state(testing::read_all(*reader), values_of(prefix)));
    EXPECT_TRUE(reader->verify().empty());
    testing::check_regions(*reader, values_of(prefix));
  }
}

/// Every tensor and every block of the index has a checksum: damage is told, or it hit what nobody reads.
TEST(DamagedTensorFlow, IsAnErrorOrUnchanged) {
  for (const fs::path& prefix : fixtures_in_parts()) {
    const testing::Scratch scratch;
    for (const auto& entry : fs::directory_iterator(prefix.parent_path()))
      fs::copy(entry.path(), scratch.path() / entry.path().filename());
    const fs::path copy = scratch.path() / prefix.filename();
    const HostArrays want = values_of(prefix);
    const int64_t size = testing::bytes_of_files(scratch.path());
    const auto is_reported = [&] {
      try {
        testing::read_within(size, [&] { return open_checkpoint(copy); });
        EXPECT_TRUE(testing::same_state(testing::read_all(*open_checkpoint(copy)), want));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kData);
        EXPECT_NE(std::string(error.what()).find(copy.string()), std::string::npos) << error.what();
        return true;
      }
      return false;
    };
    ASSERT_FALSE(is_reported());
    std::mt19937 random(9);
    for (const auto& entry : fs::directory_iterator(scratch.path())) {
      if (entry.path().extension() == ".safetensors") continue;
      SCOPED_TRACE(entry.path());
      const std::string whole = read_file(entry.path());
      int told = 0;
      for (int i = 0; i < 2000; ++i) {
        std::string bytes = whole;
        char& byte = bytes[random() % bytes.size()];
        byte = static_cast<char>(byte ^ (1 << random() % 8));
        testing::write_bytes(entry.path(), bytes);
        told += is_reported() ? 1 : 0;
      }
      EXPECT_GT(told, 1700) << "the footer of an index has bytes that nobody reads";
      for (size_t i = 0; i < 64; ++i) {
        testing::write_bytes(entry.path(), whole.substr(0, whole.size() * i / 64));
        EXPECT_TRUE(is_reported()) << i;
      }
      testing::write_bytes(entry.path(), whole);
    }
  }
}

TEST(RefusedTensorFlow, WhatIsMissing) {
  const fs::path prefix = fixtures_in_parts().front();
  const testing::Scratch scratch;
  fs::copy(prefix.string() + ".index", scratch.path() / "a.ckpt-3.index");
  const std::string what =
      testing::error_of(ExitCode::kData, [&] { open_checkpoint(scratch.path()); });
  EXPECT_NE(what.find("a.ckpt-3.data-00000-of-00001"), std::string::npos) << what;
}

TEST(Snappy, AsItIsDescribed) {
  // "abcdabcdabcdab": a literal of four bytes, a copy of ten from four bytes before.
  using namespace std::string_literals;
  const auto unpack = [](const std::string& bytes, size_t limit) {
    const Bytes out = decompress(Codec::snappy, std::as_bytes(std::span(bytes)), limit, "here");
    return std::string(reinterpret_cast<const char*>(out.data()), out.size());
  };
  EXPECT_EQ(unpack("\x0e\x0c"
                   "abcd\x19\x04"s,
                   100),
            "abcdabcdabcdab");
  EXPECT_EQ(unpack("\x0e\x0c"
                   "abcd\x26\x04\x00"s,
                   100),
            "abcdabcdabcdab");
  EXPECT_EQ(unpack("\x0e\x0c"
                   "abcd\x27\x04\x00\x00\x00"s,
                   100),
            "abcdabcdabcdab");
  EXPECT_EQ(unpack("\x05\xf0\x04hello"s, 100), "hello");
  for (const std::string& bad : {"\x0e\x0c"
                                 "abcd\x19\x05"s,
                                 "\x0e\x0c"
                                 "abcd\x19\x00"s,
                                 "\x0f\x0c"
                                 "abcd\x19\x04"s,
                                 "\x0d\x0c"
                                 "abcd\x19\x04"s,
                                 "\x0e\x0c"
                                 "abc"s,
                                 "\x05\xf4\xff"s})
    testing::error_of(ExitCode::kData, [&] { unpack(bad, 100); });
  testing::error_of(ExitCode::kData, [&] {
    unpack(
        "\x0e\x0c"
        "abcd\x19\x04"s,
        13);
  });
}

}  // namespace
}  // namespace quintet
