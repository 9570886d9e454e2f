// A seed gives T5X's own initial parameters (fixtures init/).

#include "tests/models/model_fixture.h"

namespace quintet::testing {
namespace {

constexpr Tolerance kInit{2e-6, 2e-6};  // fixtures README, init/

TEST(Initialisation, GivesTheReferencesParameters) {
  const auto root = fixture_root() / "init";
  if (!std::filesystem::exists(root / "meta.json")) GTEST_SKIP() << "no fixtures under " << root;
  const Json meta = Json::read(root / "meta.json");
  for (const auto& [name, entry] : meta["models"].members()) {
    SCOPED_TRACE(name);
    // T5X draws a scanned stack with keys of its layers' numbers; ours have the names of unscanned ones.
    if (!supported(entry["config"]) || is_scanned(entry["config"])) continue;
    auto model = build_model(entry["config"], {});
    model->parameters().initialize(key_from_seed(meta["seed"].as_int()));
    const HostArrays want = read_safetensors(root / (name + ".safetensors"));
    EXPECT_EQ(want.size(), model->parameters().all().size());
    for (const auto& [parameter, array] : want)
      EXPECT_TRUE(near_array(model->parameters().at(parameter).value.to_host().as<float>(),
                             array.as<float>(), kInit))
          << parameter;
  }
}

}  // namespace
}  // namespace quintet::testing
