// Cross-entropy against T5X's losses and gradients: recorded logits go in as x with an identity
// projection, so that dx is the gradient of the logits. Every model folder and every loss
// configuration it holds.

#include "kernels/cross_entropy/cross_entropy.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

// The op's results for logits [tokens..., v].
struct Losses {
  HostArray loss{DType::f32, {}}, z_loss{DType::f32, {}}, correct{DType::f32, {}};
  HostArray log_probability, dlogits;
};

View view_of(HostArray& a) { return View::of(a.as<float>().data(), a.shape); }
double scalar(const HostArray& a) { return static_cast<double>(a.as<float>()[0]); }

// The weights of the configuration divided by its normalizing factor.
HostArray scaled_weights(const HostArray& weights, const Json& config) {
  HostArray scaled = weights;
  const Json factor = config["resolved_loss_normalizing_factor"];
  if (!factor.is_null())
    for (float& w : scaled.as<float>()) w /= static_cast<float>(factor.as_double());
  return scaled;
}

Losses run(HostArray logits, HostArray targets, HostArray weights, const Json& config,
           bool transposed) {
  const int64_t vocabulary = logits.shape.back();
  HostArray identity(DType::f32, {vocabulary, vocabulary});
  for (int64_t i = 0; i < vocabulary; ++i)
    identity.as<float>()[static_cast<size_t>(i * vocabulary + i)] = 1;
  Losses made;
  made.log_probability = HostArray(DType::f32, targets.shape);
  made.dlogits = HostArray(DType::f32, logits.shape);
  const std::vector<View> in{view_of(logits), view_of(identity),
                             View::of(targets.as<int32_t>().data(), targets.shape),
                             view_of(weights)};
  const std::vector<View> out{view_of(made.loss),    view_of(made.z_loss),
                              view_of(made.correct), view_of(made.log_probability),
                              view_of(made.dlogits), View::none()};
  const Attrs attrs{{"label_smoothing", config["label_smoothing"].as_double()},
                    {"z_loss", config["z_loss"].as_double()}};
  (transposed ? cross_entropy_t_cpu : cross_entropy_cpu)(in, out, attrs, {});
  return made;
}

void near_relative(double got, double want, double relative, const char* what) {
  EXPECT_NEAR(got, want, relative * std::max(1.0, std::abs(want))) << what;
}

int check_folder(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "outputs.safetensors") ||
      !std::filesystem::exists(folder / "meta.json"))
    return 0;
  const Json meta = Json::read(folder / "meta.json");
  if (!meta.has("loss")) return 0;
  const HostArrays outputs = read_safetensors(folder / "outputs.safetensors");
  const HostArrays batch = read_safetensors(folder / "batch.safetensors");
  int checked = 0;
  for (const auto& [name, config] : meta["loss"].members())
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(name);
      const Losses got =
          run(outputs.at("logits"), batch.at("decoder_target_tokens"),
              scaled_weights(outputs.at(name + "/weights"), config), config, transposed);
      near_relative(scalar(got.loss), config["cross_entropy_plus_z"].as_double(), 1e-5, "loss");
      near_relative(scalar(got.z_loss), config["z_loss_term"].as_double(), 1e-5, "z-loss");
      EXPECT_EQ(scalar(got.correct), config["metrics"]["accuracy"]["total"].as_double());
      if (outputs.contains(name + "/dlogits")) {
        EXPECT_TRUE(
            near_array(got.dlogits.as<float>(), outputs.at(name + "/dlogits").as<float>(), kT1));
      }
      ++checked;
    }
  return checked;
}

TEST(CrossEntropyGolden, LossesAndGradientsAreTheReferences) {
  const auto folders = fixture_folders("model");
  if (folders.empty())
    GTEST_SKIP() << fixture_root() / "model"
                 << " is not there";
  int checked = 0;
  for (const auto& folder : folders) {
    SCOPED_TRACE(folder);
    checked += check_folder(folder);
  }
  EXPECT_GT(checked, 0) << "no folder under " << fixture_root() / "model"
                        << " holds losses";
}

}  // namespace
}  // namespace quintet::testing
