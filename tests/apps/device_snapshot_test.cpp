// A save of a GPU's state beside the steps that follow it: the checkpoint is of the step it is named after, and
// the host waits for no copy.

#include "apps/train/state/device_snapshot.h"

#include "checkpoint/region_reader.h"
#include "models/base_model.h"
#include "runtime/optim/optax/optax.h"
#include "tests/checkpoint/scratch.h"
#include "tests/harness/device.h"

namespace quintet {
namespace {

HostArrays batch_of_tokens() {
  HostArrays batch;
  for (const char* name :
       {"decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights"}) {
    HostArray& array = batch[name] = HostArray(DType::i32, {2, 8});
    std::ranges::fill(array.as<int32_t>(), 1);
  }
  return batch;
}

class DeviceSnapshots : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::current().is_cpu()) GTEST_SKIP() << "needs a GPU, emulated or real";
    TransformerConfig config;
    config.vocab_size = 32;
    config.emb_dim = 16;
    config.num_heads = 2;
    config.head_dim = 8;
    config.mlp_dim = 24;
    config.num_layers = 1;
    model_ = std::make_unique<DecoderOnlyModel>(config, LossOptions{}, false);
    start({});
  }
  void start(TrainerOptions options) {
    trainer_.reset();
    model_->parameters().initialize(key_from_seed(3));
    trainer_ = std::make_unique<Trainer>(
        [this](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
          return model_->loss_fn(batch, {begin, end}, {.train = true, .dropout_key = key});
        },
        model_->parameters(), optax_optimizer(adamw(1e-2)), std::move(options), key_from_seed(1));
    step();
  }
  void step() { trainer_->train(batch_of_tokens()); }
  HostArrays state() {
    HostArrays all;
    for (const StateArray& array : trainer_->state()) all[array.name] = host_copy(array);
    return all;
  }
  /// The checkpoint that was begun before a step and written after it.
  HostArrays saved_beside_a_step(const std::string& dtype) {
    const testing::Scratch scratch;
    const FolderLock lock(scratch.path());
    CheckpointManager manager(lock);
    snapshot_.take(to_slices(*trainer_, dtype), dtype, Device::current());
    step();
    manager.save_async(
        1, [&] { return snapshot_.finish(); }, "{}");
    manager.finish();
    return read_checkpoint(checkpoint_path(scratch.path(), 1)).arrays;
  }

  const testing::Scratch scratch_;
  std::unique_ptr<BaseModel> model_;
  std::unique_ptr<Trainer> trainer_;
  DeviceSnapshot snapshot_;
};

TEST_F(DeviceSnapshots, HoldTheStateBeforeTheStepThatFollows) {
  for (const bool offload : {false, true}) {
    start({.learning_rate = {}, .optimizer_offload = offload});
    const HostArrays before = state();
    const HostArrays saved = saved_beside_a_step("float32");
    EXPECT_EQ(saved.at("state/step").as<int32_t>()[0], 1);
    for (const auto& [name, array] : before) EXPECT_EQ(saved.at(name).bytes, array.bytes) << name;
    EXPECT_NE(state().at("target/decoder/decoder_norm/scale").bytes,
              before.at("target/decoder/decoder_norm/scale").bytes);
  }
}

TEST_F(DeviceSnapshots, RoundParametersAlone) {
  const HostArrays before = state();
  const HostArrays saved = saved_beside_a_step("bfloat16");
  for (const auto& [name, array] : before) {
    if (!is_saved_rounded(name, "bfloat16")) {
      EXPECT_EQ(saved.at(name).bytes, array.bytes) << name;
      continue;
    }
    const auto want = array.as<float>();
    const auto got = saved.at(name).as<bfloat16>();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(static_cast<float>(got[i]), static_cast<float>(bfloat16(want[i]))) << name;
  }
}

TEST_F(DeviceSnapshots, TheHostDoesNotWaitForTheCopies) {
  const DeviceCounts before = Device::current().counters().read();
  snapshot_.take(to_slices(*trainer_, "float32"), "float32", Device::current());
  const DeviceCounts counts = Device::current().counters().read() - before;
  EXPECT_EQ(counts.host_waits, 0);
  const auto on_device = [](const StateArray& array) { return !array.device->is_cpu(); };
  EXPECT_EQ(counts.copies, std::ranges::count_if(trainer_->state(), on_device));
  snapshot_.finish();
}

TEST_F(DeviceSnapshots, NumbersThatAreNotFiniteAreNotSaved) {
  const float bad = std::numeric_limits<float>::infinity();
  for (const StateArray& array : trainer_->state())
    if (array.name == "target/decoder/decoder_norm/scale")
      array.device->copy_in(array.view.pointer, &bad, sizeof bad);
  const FolderLock lock(scratch_.path());
  CheckpointManager manager(lock);
  snapshot_.take(to_slices(*trainer_, "float32"), "float32", Device::current());
  manager.save_async(
      1, [&] { return snapshot_.finish(); }, "{}");
  try {
    manager.finish();
    ADD_FAILURE() << "it was saved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kNonFinite);
    EXPECT_NE(std::string(error.what()).find("target/decoder/decoder_norm/scale (1 value)"),
              std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(list_checkpoints(scratch_.path()).empty());
}

}  // namespace
}  // namespace quintet
