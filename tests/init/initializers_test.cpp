// Every parameter that T5X's module.init made for a seed (fixtures init/<model>.safetensors).

#include "runtime/tensor/initializers.h"

#include <cmath>
#include <numeric>

#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

using testing::fixture_root;

/// The initializer T5's network gives a parameter of this path.
Initializer initializer_for(const std::string& path, int64_t head_dim) {
  const auto is = [&](const char* part) { return path.find(part) != std::string::npos; };
  if (is("/scale")) return t5_init::norm_scale();
  if (is("rel_embedding")) return t5_init::relative_bias();
  if (is("/embedding")) return t5_init::embedding();
  if (is("/query/")) return t5_init::query_kernel(head_dim);
  if (is("attention/")) return t5_init::attention_kernel();
  return t5_init::mlp_kernel();
}

TEST(Initializers, GiveT5xInitialParameters) {
  const auto meta_file = fixture_root() / "init/meta.json";
  if (!std::filesystem::exists(meta_file)) GTEST_SKIP() << "no " << meta_file;
  const Json meta = Json::read(meta_file);
  const Key root = key_from_seed(meta["seed"].as_int());
  int checked = 0;
  for (const auto& [model, entry] : meta["models"].members()) {
    const int64_t head_dim = entry["config"]["head_dim"].as_int();
    for (const auto& [path, want] :
         read_safetensors(fixture_root() / "init" / (model + ".safetensors"))) {
      SCOPED_TRACE(model + " " + path);
      std::vector<float> got(static_cast<size_t>(want.elements()));
      const Key key = key_of_parameter(root, path);
      initializer_for(path, head_dim)(key, want.shape, got);
      const auto close =
          testing::near_array(std::span<const float>(got), want.as<float>(), {2e-6, 0});
      EXPECT_TRUE(close);
      // A block drawn alone is the same piece of the array.
      std::vector<float> block(got.size() / 3);
      initializer_for(path, head_dim).block(key, want.shape, got.size() / 2, block);
      for (size_t i = 0; i < block.size(); ++i) ASSERT_EQ(block[i], got[got.size() / 2 + i]);
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

TEST(Initializers, VarianceScalingTakesTheAxesAndModeItIsGiven) {
  const std::vector<int64_t> shape{3, 200, 5, 400};
  std::vector<float> x(3 * 200 * 5 * 400);
  const auto deviation = [&](const VarianceScalingOptions& options) {
    variance_scaling(options)(key_from_seed(5), shape, x);
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) /
                     static_cast<double>(x.size()));
  };
  for (Distribution distribution :
       {Distribution::kNormal, Distribution::kTruncatedNormal, Distribution::kUniform}) {
    const auto near = [&](FanMode mode, int in, int out, double fan) {
      const double want = std::sqrt(2.0 / fan);
      EXPECT_NEAR(deviation({2.0, mode, distribution, in, out}), want, 0.01 * want);
    };
    near(FanMode::kIn, -2, -1, 5 * 600);
    near(FanMode::kIn, 1, 3, 200 * 15);
    near(FanMode::kOut, 1, 3, 400 * 15);
    near(FanMode::kAverage, -3, -1, 300 * 15);
  }
}

TEST(Initializers, ConstantsAndPlainNormals) {
  std::vector<float> x(10000);
  const std::vector<int64_t> shape{10000};
  ones_initializer()(key_from_seed(1), shape, x);
  EXPECT_EQ(std::accumulate(x.begin(), x.end(), 0.0), 10000);
  zeros_initializer()(key_from_seed(1), shape, x);
  EXPECT_EQ(std::accumulate(x.begin(), x.end(), 0.0), 0);
  normal_initializer(0.1)(key_from_seed(1), shape, x);
  EXPECT_NEAR(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / 10000, 0.01, 6e-4);
  EXPECT_THROW(t5_init::mlp_kernel()(key_from_seed(1), shape, x), Error);
}

}  // namespace
}  // namespace quintet
