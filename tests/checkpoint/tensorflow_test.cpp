// Checkpoints of TensorFlow: T5's variables by our names, every value as it was written; damage is told.

#include <gtest/gtest.h>

#include <algorithm>

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

/// Written by TensorFlow 2.16 (tests/oracles/gen_ocdbt.py).
TEST(SliceKey, IsTensorFlows) {
  EXPECT_EQ(tensorflow::slice_key("a", {0}, {tensorflow::kWholeAxis}),
            std::string("\0a\0\x01\x01\x01\x80\x7f", 8));
}

}  // namespace
}  // namespace quintet
