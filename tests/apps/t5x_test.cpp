// Training goes on from T5X's checkpoints as T5X's own does (tests/oracles/gen_t5x.py).

#include "apps/train/state/state_arrays.h"
#include "checkpoint/open/open_checkpoint.h"
#include "tests/models/train_fixture.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_folders;

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
  const std::vector<fs::path> folders = fixture_folders("t5x");
  if (folders.empty()) GTEST_SKIP() << "no fixtures t5x/";
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder);
    const Json expected = Json::read(folder / "expected.json");
    const double learning_rate = expected["learning_rate"].as_double();
    const auto model =
        testing::build_model(expected["config"], {.z_loss = 1e-4, .loss_normalizing_factor = {}});
    model->parameters().initialize(Key{});
    Trainer trainer(
        [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
          return model->loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
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
