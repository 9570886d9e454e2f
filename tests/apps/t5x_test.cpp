// Checkpoints of T5X in every form that it writes: our networks give T5X's logits from them.

#include "apps/model/checkpoint_parameters.h"
#include "checkpoint/open/open_checkpoint.h"
#include "tests/models/model_fixture.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_folders;
using testing::fixture_root;
using testing::kT1;
using testing::near_array;

TEST(T5xCheckpoint, GivesT5xsLogits) {
  const Json cases = Json::read(fixture_root() / "checkpoint/checkpoint.json")["cases"];
  int compared = 0;
  for (const auto& [name, record] : cases.members()) {
    const fs::path folder = fixture_root() / "checkpoint" / name;
    const auto batch = read_safetensors(folder / "batch.safetensors");
    const auto want = read_safetensors(folder / "logits_at_step3.safetensors").at("logits");
    for (const char* form : {"t5x", "orbax"}) {
      SCOPED_TRACE(folder / form);
      if (!fs::is_directory(folder / form)) continue;
      const auto model = testing::build_model(record["config"], {});
      const auto checkpoint = open_checkpoint(folder / form);
      EXPECT_EQ(checkpoint->step(), record["step"].as_int());
      load_parameters(*checkpoint, model->parameters());
      const HostArray logits = model->logits(batch).to_host();
      EXPECT_TRUE(near_array(logits.as<float>(), want.as<float>(), kT1));
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace quintet
