// What the parts of flaxformer's networks sow, for score_batch.return_intermediates, against T5X's (fixtures model/*/sown).

#include "apps/infer/intermediates.h"

#include <nlohmann/json.hpp>

#include "tests/harness/device.h"
#include "tests/models/model_fixture.h"

namespace quintet::testing {
namespace {

class SownFixture : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  /// The recorded network, with more bindings.
  std::unique_ptr<BaseModel> build(const std::string& bindings) const {
    const Json recorded = Json::read(GetParam() / "meta.json")["config"];
    nlohmann::ordered_json raw = recorded.raw();
    raw["gin"] = recorded["gin"].as_string() + bindings;
    const Json config = Json::parse(raw.dump(), "config");
    auto model = build_model(config, {});
    load_joined(model->parameters(),
                layers_apart(read_safetensors(GetParam() / "params.safetensors"), config));
    return model;
  }
  HostArrays batch_ = read_safetensors(GetParam() / "batch.safetensors");
};

TEST_P(SownFixture, IntermediatesAreFlaxformers) {
  HostArrays expected = read_safetensors(GetParam() / "sown.safetensors");
  const HostArray sums = std::move(expected.extract("sequence_scores").mapped());
  const auto model = build(Json::read(GetParam() / "sown.json")["gin"].as_string());
  ASSERT_TRUE(model->spec().sows());
  SownValues sown;
  const BaseModel::TokenScores tokens = model->score_tokens(batch_, &sown);
  const Intermediates got(model->spec(), batch_, tokens, sown);
  const std::vector<double> sums_of = tokens.sums();
  const std::vector<float> scores(sums_of.begin(), sums_of.end());
  EXPECT_TRUE(near_array(std::span<const float>(scores), sums.as<float>(), kT1));
  for (const auto& [name, array] : got.arrays()) EXPECT_TRUE(expected.contains(name)) << name;
  for (const auto& [name, want] : expected) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(got.arrays().contains(name));
    const HostArray& array = got.arrays().at(name);
    EXPECT_EQ(array.shape, want.shape);
    ASSERT_EQ(array.dtype, want.dtype);
    if (want.dtype == DType::f32)
      EXPECT_TRUE(near_array(array.as<float>(), want.as<float>(), kT1));
    else
      EXPECT_TRUE(std::ranges::equal(array.as<int32_t>(), want.as<int32_t>()));
    // A row of it lies where the name says, alone in a list.
    const data::Fields row = got.of_row(1);
    data::Answer answer = row;
    for (size_t at = 0; at <= name.size();) {
      const size_t slash = std::min(name.find('/', at), name.size());
      answer = data::Answer(answer.at(name.substr(at, slash - at)));
      at = slash + 1;
    }
    ASSERT_EQ(answer.items().size(), 1u);
    EXPECT_EQ(std::ssize(answer.items()[0].items()), want.shape[1]);
  }
}

TEST_P(SownFixture, WithoutTheBindingsNothingIsSown) {
  const auto model = build("");
  EXPECT_FALSE(model->spec().sows());
  SownValues sown;
  model->score_tokens(batch_, &sown);
  EXPECT_TRUE(sown.empty()) << sown.begin()->first;
}

TEST_P(SownFixture, ADeviceThatComputesInBfloat16GivesFloats) {
  if (Device::current().is_cpu()) GTEST_SKIP() << "a CPU computes in float32";
  const HostArrays expected = read_safetensors(GetParam() / "sown.safetensors");
  const auto model = build(Json::read(GetParam() / "sown.json")["gin"].as_string() +
                           "ACTIVATION_DTYPE = 'bfloat16'\n");
  SownValues sown;
  const BaseModel::TokenScores tokens = model->score_tokens(batch_, &sown);
  const Intermediates got(model->spec(), batch_, tokens, sown);
  for (const auto& [name, array] : got.arrays()) {
    SCOPED_TRACE(name);
    if (array.dtype == DType::i32) continue;
    double error = 0, norm = 0;
    const auto x = array.as<float>(), want = expected.at(name).as<float>();
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(static_cast<double>(x[i]) - static_cast<double>(want[i]), 2);
      norm += std::pow(static_cast<double>(want[i]), 2);
    }
    EXPECT_LT(std::sqrt(error),
              0.05 * std::sqrt(norm));  // a few layers of bfloat16's roundings, 2^-9 each
  }
  got.of_row(0);
}

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> found;
  for (const auto& folder : fixture_folders("model"))
    if (std::filesystem::exists(folder / "sown.json")) found.push_back(folder);
  return found;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SownFixture);
INSTANTIATE_TEST_SUITE_P(Sown, SownFixture, ::testing::ValuesIn(folders()),
                         [](const auto& its) { return its.param.filename().string(); });

}  // namespace
}  // namespace quintet::testing
