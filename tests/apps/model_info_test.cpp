#include "apps/model/model_info.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "models/base_model.h"
#include "runtime/base/formats/json.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

/// The lines of parameters and of their number; T5X sorts them by name.
std::set<std::string> parameter_lines(const std::string& text) {
  std::set<std::string> lines;
  std::istringstream in(text.substr(0, text.find("\n\n")));
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

TEST(ModelInfo, IsT5xs) {
  const auto file = testing::fixture_root() / "semantics" / "model_info.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& row : Json::read(file).items()) {
    const Json sizes = row["config"];
    T5Config config;
    config.vocab_size = sizes["vocab_size"].as_int();
    config.emb_dim = sizes["emb_dim"].as_int();
    config.num_heads = sizes["num_heads"].as_int();
    config.head_dim = sizes["head_dim"].as_int();
    config.mlp_dim = sizes["mlp_dim"].as_int();
    config.num_encoder_layers = sizes["num_encoder_layers"].as_int();
    config.num_decoder_layers = sizes["num_decoder_layers"].as_int();
    config.mlp_activations = {"gelu", "linear"};
    config.logits_via_embedding = false;
    const EncoderDecoderModel model(config, {});
    const auto rules =
        standard_logical_axis_rules({.parameter_partitioning_dims = static_cast<int>(
                                         row["parameter_partitioning_dims"].as_int())});
    const std::string text = model_info(model.parameters(), rules), want = row["text"].as_string();
    EXPECT_EQ(parameter_lines(text), parameter_lines(want));
    EXPECT_NE(want.find(text.substr(text.find("\n\n") + 2)), std::string::npos) << "the step";
  }
}

TEST(ModelInfo, SizesAreOfWholeArraysAlsoWhereThisRankHasAPart) {
  View part = View::none();
  part.rank = 2;
  part.sizes = {48, 24};
  part.global = {96, 24};
  const std::string text = model_info(Parameters(), standard_logical_axis_rules({}),
                                      {{"state/param_states/table/v", {"vocab", "embed"}, part}});
  EXPECT_NE(text.find("size 2304 "), std::string::npos) << text;
  EXPECT_NE(text.find("shape (vocab=96, embed=24)"), std::string::npos) << text;
  EXPECT_NE(text.find("Variable param_states/table/v "), std::string::npos) << text;
  EXPECT_NE(text.find("partition spec ('model', None)"), std::string::npos) << text;
}

}  // namespace
}  // namespace quintet
