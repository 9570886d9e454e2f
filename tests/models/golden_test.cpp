// Forward passes, losses, metrics and gradients against T5X's (fixtures model/).

#include "runtime/execution/tape.h"
#include "tests/harness/device.h"
#include "tests/models/model_fixture.h"

namespace quintet::testing {
namespace {

class ModelFixture : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    meta_ = std::make_unique<Json>(Json::read(GetParam() / "meta.json"));
    if (!supported((*meta_)["config"])) GTEST_SKIP() << "network of a later version";
    batch_ = read_safetensors(GetParam() / "batch.safetensors");
    outputs_ = read_safetensors(GetParam() / "outputs.safetensors");
  }
  std::unique_ptr<BaseModel> build(const LossOptions& options,
                                   const std::string& remat_policy = "none") const {
    auto model = build_model((*meta_)["config"], options, remat_policy);
    load_joined(model->parameters(), arrays_of("params.safetensors"));
    return model;
  }
  HostArrays arrays_of(const std::string& file) const {
    return layers_apart(read_safetensors(GetParam() / file), (*meta_)["config"]);
  }
  void expect_near(const Tensor& got, const std::string& name, Tolerance tolerance) const {
    EXPECT_TRUE(near_array(got.to_host().as<float>(), outputs_.at(name).as<float>(), tolerance))
        << name;
  }
  std::unique_ptr<Json> meta_;
  HostArrays batch_, outputs_;
};

TEST_P(ModelFixture, GivesTheSameLogits) {
  const auto model = build({});
  expect_near(model->logits(batch_), "logits", kT1);
  if (!model->spec().decoder_only())
    expect_near(model->encode(batch_, Rows::all(batch_), {}), "encoded", kT1);
}

TEST_P(ModelFixture, GivesTheSameLossesAndMetrics) {
  for (const auto& [name, loss] : (*meta_)["loss"].members()) {
    SCOPED_TRACE(name);
    const LossOptions options = read_loss(loss);
    const LossWeights weights = loss_weights(batch_, options.loss_normalizing_factor);
    EXPECT_TRUE(near_array(weights.weights.as<float>(), outputs_.at(name + "/weights").as<float>(),
                           {0, 1e-6}));
    const LossOutput out = build(options)->loss_fn(batch_, Rows::all(batch_), {});
    const double want = loss["loss"].as_double();
    EXPECT_NEAR(out.loss.item(), want, 1e-5 * std::abs(want));
    const Metrics metrics = metrics_of(out, batch_);
    for (const auto& [metric, value] : loss["metrics"].members()) {
      SCOPED_TRACE(metric);
      if (is_unsound((*meta_)["config"], metric)) continue;
      ASSERT_TRUE(metrics.contains(metric));
      const Metric& got = metrics.at(metric);
      const double total = value["total"].as_double();
      EXPECT_NEAR(got.total, total, 1e-5 * std::abs(total) + 1e-9);
      EXPECT_EQ(got.per_step, value.has("steps"));
      EXPECT_NEAR(got.count, value[got.per_step ? "steps" : "count"].as_double(), 1e-5);
    }
    EXPECT_EQ(metrics.size(), loss["metrics"].size());
  }
}

TEST_P(ModelFixture, GivesTheSameGradients) {
  for (const auto& entry : std::filesystem::directory_iterator(GetParam())) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("grads.")) continue;
    SCOPED_TRACE(file);
    const std::string name = file.substr(6, file.size() - 6 - std::string(".safetensors").size());
    for (const std::string policy : {"none", "minimal", "full"}) {
      SCOPED_TRACE("remat " + policy);
      auto model = build(read_loss((*meta_)["loss"][name]), policy);
      Tape tape;
      Tensor loss;
      {
        Tape::Recording recording(tape);
        loss = model->loss_fn(batch_, Rows::all(batch_), {}).loss;
      }
      tape.backward(loss);
      for (const auto& [parameter, want] : arrays_of(file)) {
        const Tensor got = model->parameters().at(parameter).value.grad();
        ASSERT_TRUE(got) << parameter;
        EXPECT_TRUE(near_array(got.to_host().as<float>(), want.as<float>(), kT2)) << parameter;
      }
    }
  }
}

std::string fixture_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.filename().string();
}
std::vector<std::filesystem::path> model_folders() {
  std::vector<std::filesystem::path> found;
  for (const auto& folder : fixture_folders("model"))
    if (std::filesystem::exists(folder / "params.safetensors") &&
        std::filesystem::exists(folder / "meta.json"))
      found.push_back(folder);
  return found;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModelFixture);
INSTANTIATE_TEST_SUITE_P(Model, ModelFixture, ::testing::ValuesIn(model_folders()), fixture_name);

}  // namespace
}  // namespace quintet::testing
