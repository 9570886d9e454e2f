// One train state in every form that T5X and TensorFlow wrote it in: each gives the same logits and the same
// training from there on, bit for bit. That T5X's own form gives T5X's is t5x_test's matter.

#include "apps/model/checkpoint_parameters.h"
#include "apps/train/state/state_arrays.h"
#include "checkpoint/open/open_checkpoint.h"
#include "tests/models/train_fixture.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::fixture_root;
using testing::kT1;
using testing::near_array;

constexpr const char* kForms[] = {"t5x", "orbax", "tf"};

/// Cases of checkpoint/checkpoint.json by their folders.
std::map<fs::path, Json> cases() {
  const Json all = Json::read(fixture_root() / "checkpoint/checkpoint.json")["cases"];
  std::map<fs::path, Json> found;
  for (const auto& [name, record] : all.members())
    found.emplace(fixture_root() / "checkpoint" / name, record);
  return found;
}

/// Every array of the optimizer that T5X calls as we do and keeps in our shape.
void check_state(Trainer& trainer, const HostArrays& values) {
  int compared = 0;
  for (const StateArray& array : trainer.state()) {
    const auto want = values.find(array.name);
    if (want == values.end() || want->second.shape != global_shape_of(array.view)) continue;
    EXPECT_EQ(host_copy(array).bytes, want->second.bytes) << array.name;
    compared += array.name.starts_with("state/") ? 1 : 0;
  }
  EXPECT_GT(compared, 0);
}

/// Losses of three steps that begin with a checkpoint's state.
std::vector<double> next_losses(const CheckpointReader& checkpoint, const Json& record,
                                const HostArrays& batch, const HostArrays& values) {
  LossOptions loss;
  loss.z_loss = 1e-4;
  const auto model = testing::build_model(record["config"], loss);
  AdafactorOptions options;
  options.decay_rate = 0.8;
  options.min_dim_size_to_factor = record["min_dim_size_to_factor"].as_int();
  options.logical_factor_rules = standard_logical_factor_rules();
  TrainerOptions training;
  training.learning_rate = constant_schedule(record["learning_rates"].as_doubles().back());
  model->parameters().allocate();
  Trainer trainer(
      [&](const HostArrays& rows, int64_t begin, int64_t end, Key key) {
        return model->loss_fn(rows, {begin, end}, {.train = true, .dropout_key = key});
      },
      model->parameters(), adafactor(options), training, Key{});
  load_arrays(checkpoint, trainer);
  check_state(trainer, values);
  trainer.restored(checkpoint.step(), 0);
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) losses.push_back(trainer.train(batch).metrics.at("loss").value());
  return losses;
}

TEST(CheckpointForms, GiveT5xsLogits) {
  for (const auto& [folder, record] : cases()) {
    const HostArrays batch = read_safetensors(folder / "batch.safetensors");
    const auto want = read_safetensors(folder / "logits_at_step3.safetensors").at("logits");
    for (const char* form : kForms) {
      SCOPED_TRACE(folder / form);
      if (!fs::is_directory(folder / form)) continue;
      const auto model = testing::build_model(record["config"], {});
      const auto checkpoint = open_checkpoint(folder / form);
      EXPECT_EQ(checkpoint->step(), record["step"].as_int());
      load_parameters(*checkpoint, model->parameters());
      const HostArray logits = model->logits(batch).to_host();
      EXPECT_TRUE(near_array(logits.as<float>(), want.as<float>(), kT1));
    }
  }
}

TEST(CheckpointForms, TrainingGoesOnAlike) {
  int compared = 0;
  for (const auto& [folder, record] : cases()) {
    const HostArrays batch = read_safetensors(folder / "batch.safetensors");
    const HostArrays values = read_safetensors(folder / "values.safetensors");
    std::vector<double> first;
    for (const char* form : kForms) {
      SCOPED_TRACE(folder / form);
      if (!fs::is_directory(folder / form)) continue;
      const auto losses = next_losses(*open_checkpoint(folder / form), record, batch, values);
      if (first.empty()) first = losses;
      EXPECT_EQ(losses, first);
      EXPECT_LT(losses.front(), record["losses_steps_0_1_2"].as_doubles().back());
      ++compared;
    }
  }
  EXPECT_GT(compared, 1);
}

}  // namespace
}  // namespace quintet
