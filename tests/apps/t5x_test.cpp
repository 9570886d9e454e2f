// Checkpoints of T5X in every form that it writes: our networks give T5X's logits from them, and training goes
// on as T5X's does (tests/oracles/gen_t5x.py).

#include "apps/model/checkpoint_parameters.h"
#include "apps/train/state/state_arrays.h"
#include "checkpoint/open/open_checkpoint.h"
#include "tests/models/train_fixture.h"

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

OptimizerPtr optimizer_of(const std::string& kind, double learning_rate) {
  AdafactorOptions options{.decay_rate = 0.8,
                           .step_offset = 0,
                           .min_dim_size_to_factor = 16,
                           .logical_factor_rules = standard_logical_factor_rules()};
  if (kind == "adafactor") return adafactor(options);
  if (kind == "adamw")
    return optax_optimizer(
        chain({clip_by_global_norm(1),
               adamw(learning_rate, {.b1 = 0.9, .b2 = 0.98, .eps = 1e-6, .weight_decay = 0.1})}));
  AdafactorOptions unfactored = options;
  unfactored.beta1 = 0.9;
  unfactored.factored = false;
  return multi_optimizer({{matching("^/encoder/"), adafactor(options)},
                          {matching("^/decoder/"), adafactor(unfactored)}});
}

TEST(T5xCheckpoint, TrainingGoesOnAsT5xs) {
  for (const fs::path& folder : fixture_folders("t5x")) {
    SCOPED_TRACE(folder);
    const Json expected = Json::read(folder / "expected.json");
    const double learning_rate = expected["learning_rate"].as_double();
    const auto model =
        testing::build_model(expected["config"], {.z_loss = 1e-4, .loss_normalizing_factor = {}});
    model->parameters().initialize(Key{});
    Trainer trainer(
        [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
          LossOutput out = model->loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
          return StepLoss{out.loss, out.metrics};
        },
        model->parameters(), optimizer_of(expected["optimizer"].as_string(), learning_rate),
        TrainerOptions{.learning_rate = constant_schedule(learning_rate)}, Key{});
    const auto checkpoint = open_checkpoint(folder);
    load_arrays(*checkpoint, trainer);
    trainer.restored(checkpoint->step(), 0);
    EXPECT_EQ(trainer.step(), expected["step"].as_int());
    const HostArrays batch = read_safetensors(folder / "batch.safetensors");
    for (const double want : expected["next_losses"].as_doubles()) {
      const double loss = trainer.train(batch).metrics.at("loss").value();
      EXPECT_NEAR(loss, want, want * expected["loss_rtol"].as_double());
    }
  }
}

}  // namespace
}  // namespace quintet
