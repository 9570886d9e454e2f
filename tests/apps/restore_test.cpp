// Reading a checkpoint into a trainer or a model, as RestoreCheckpointConfig says.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>

#include "apps/model/checkpoint_parameters.h"
#include "apps/model/restored_checkpoint.h"
#include "apps/train/state/state_arrays.h"
#include "checkpoint/region_reader.h"
#include "runtime/optim/optax/optax.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

Initializer constant(float value) {
  return Initializer([value](Key, std::span<const int64_t>, uint64_t, std::span<float> out) {
    for (float& v : out) v = value;
  });
}

class Arrays : public ::testing::Test {
 protected:
  Arrays() {
    Scope root(parameters_);
    (root / "encoder").param("kernel", {{"embed", 2}, {"mlp", 3}}, constant(1));
    (root / "decoder").param("scale", {{"embed", 2}}, constant(1));
    parameters_.initialize(key_from_seed(0));
    trainer_ = std::make_unique<Trainer>(LossFunction{}, parameters_, optax_optimizer(adamw(1e-3)),
                                         TrainerOptions{}, key_from_seed(0));
    trainer_->restored(3, 0);
  }
  /// Where a save of the trainer at step 3 is, after `change` to what it writes.
  std::shared_ptr<const CheckpointReader> saved(
      const std::string& dtype = "float32",
      const std::function<void(std::vector<TensorSlice>&)>& change = {}) {
    const FolderLock lock(scratch_.path());
    StateSlices slices = to_slices(*trainer_, dtype);
    if (change) change(slices.slices);
    CheckpointManager(lock).save(3, slices.slices, "{}");
    return std::make_shared<NativeCheckpointReader>(checkpoint_path(scratch_.path(), 3));
  }
  std::shared_ptr<const CheckpointReader> transformed(
      const std::shared_ptr<const CheckpointReader>& checkpoint,
      std::vector<AssignmentRule> rules) {
    RestoreCheckpointConfig config;
    config.transformations = {{.rules = std::move(rules)}};
    return restored(checkpoint, config, shapes_of(*trainer_));
  }
  std::string error_of(const std::function<void()>& call, ExitCode code) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  }
  std::span<float> kernel() { return Tensor(parameters_.at("encoder/kernel").value).data<float>(); }
  std::span<float> scale() { return Tensor(parameters_.at("decoder/scale").value).data<float>(); }
  float& moment() {
    for (const StateArray& array : trainer_->state())
      if (array.name == "state/param_states/0/mu/decoder/scale")
        return *static_cast<float*>(array.view.pointer);
    throw std::runtime_error("no moment");
  }

  const quintet::testing::Scratch scratch_;
  Parameters parameters_;
  std::unique_ptr<Trainer> trainer_;
};

void rename(std::vector<TensorSlice>& slices, const std::string& from, const std::string& to) {
  for (TensorSlice& slice : slices)
    if (slice.name == from) slice.name = to;
}

TEST_F(Arrays, AreWrittenAndReadBack) {
  kernel()[4] = 0.3f;
  const auto checkpoint = saved();
  kernel()[4] = 7;
  load_arrays(*checkpoint, *trainer_);
  EXPECT_EQ(kernel()[4], 0.3f);
  EXPECT_TRUE(checkpoint->tensors().contains("state/step"));
}

TEST_F(Arrays, OfHalfPrecisionAreWidened) {
  kernel()[4] = 0.3f;
  const auto checkpoint = saved("bfloat16");
  EXPECT_EQ(checkpoint->tensors().at("target/encoder/kernel").dtype, DType::bf16);
  load_arrays(*checkpoint, *trainer_);
  EXPECT_EQ(kernel()[4], static_cast<float>(bfloat16(0.3f)));
}

TEST_F(Arrays, EveryMisfitIsNamed) {
  const HostArray extra(DType::f32, {1}), wide(DType::f32, {2, 4});
  const auto checkpoint = saved("float32", [&](std::vector<TensorSlice>& slices) {
    for (TensorSlice& slice : slices)
      if (slice.name == "target/decoder/scale")
        slice = whole_slice("target/extra", extra);
      else if (slice.name == "target/encoder/kernel")
        slice = whole_slice(slice.name, wide);
    rename(slices, "state/param_states/0/mu/decoder/scale", "state/param_states/other");
    rename(slices, "state/param_states/0/nu/decoder/scale", "state/param_states/third");
  });
  const std::string text = error_of([&] { load_arrays(*checkpoint, *trainer_); }, ExitCode::kData);
  for (const char* part :
       {"checkpoint_3", "target/encoder/kernel: shape [2, 4] in the checkpoint, [2, 3]",
        "target/decoder/scale: not in the checkpoint", "0/mu/decoder/scale: not in",
        "0/nu/decoder/scale: not in", "target/extra: in the checkpoint, not in the model",
        "state/param_states/other: in", "state/param_states/third: in"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
}

TEST_F(Arrays, WhatIsAllowedToDifferIsGiven) {
  const auto checkpoint = saved("float32", [](std::vector<TensorSlice>& slices) {
    rename(slices, "target/decoder/scale", "target/extra");
  });
  EXPECT_THROW(load_arrays(*checkpoint, *trainer_, {.missing = true}), Error);
  EXPECT_THROW(load_arrays(*checkpoint, *trainer_, {.extra = true}), Error);
  scale()[0] = 5;
  const Differences found = load_arrays(*checkpoint, *trainer_, {.missing = true, .extra = true});
  EXPECT_EQ(found.missing, (std::vector<std::string>{"target/decoder/scale"}));
  EXPECT_EQ(found.extra, (std::vector<std::string>{"target/extra"}));
  EXPECT_EQ(scale()[0], 5);  // as it was
}

TEST_F(Arrays, AssignmentRulesRenameAndLeaveOut) {
  kernel()[0] = 5;
  moment() = 2;
  const auto checkpoint = saved("float32", [](std::vector<TensorSlice>& slices) {
    rename(slices, "target/encoder/kernel", "target/old/kernel");
  });
  kernel()[0] = 1;
  moment() = 0;
  const auto seen = transformed(checkpoint, {{R"(target/encoder/(.*))", R"(target/old/\1)"},
                                             {"state/param_states.*", std::nullopt}});
  EXPECT_FALSE(seen->tensors().contains("target/old/kernel"));
  EXPECT_THROW(load_arrays(*seen, *trainer_), Error);
  const Differences found = load_arrays(*seen, *trainer_, {.missing = true});
  EXPECT_EQ(kernel()[0], 5);
  EXPECT_EQ(moment(), 0);
  EXPECT_EQ(found.missing.size(), 5u);  // two moments of two parameters, and their count
  EXPECT_EQ(seen->step(), 3);
}

TEST_F(Arrays, ADroppedStepIsZero) {
  const auto checkpoint = saved();
  EXPECT_EQ(transformed(checkpoint, {{"state/.*", std::nullopt}})->step(), 0);
  EXPECT_EQ(transformed(checkpoint, {{"state/step", std::nullopt}})->step(), 0);
  EXPECT_EQ(transformed(checkpoint, {{"state/param_states/.*", std::nullopt}})->step(), 3);
  const auto dropped = transformed(checkpoint, {{"state/step", std::nullopt}});
  EXPECT_NE(error_of([&] { load_arrays(*dropped, *trainer_); }, ExitCode::kData)
                .find("state/step: not in the checkpoint"),
            std::string::npos);
  EXPECT_EQ(load_arrays(*dropped, *trainer_, {.missing = true}).missing,
            (std::vector<std::string>{"state/step"}));
}

TEST_F(Arrays, ARenamedStepIsRead) {
  const auto checkpoint = saved("float32", [](std::vector<TensorSlice>& slices) {
    rename(slices, "state/step", "optimizer/step");
  });
  EXPECT_EQ(transformed(checkpoint, {{"state/step", "optimizer/step"}})->step(), 3);
  const auto wrong = [&] { transformed(checkpoint, {{"state/step", "target/decoder/scale"}}); };
  EXPECT_NE(error_of(wrong, ExitCode::kData).find("expected one int32"), std::string::npos);
}

TEST_F(Arrays, RulesThatNameOrMatchNothingAreErrors) {
  const auto checkpoint = saved();
  const auto typo = [&] {
    transformed(checkpoint, {{"target/decoder/scale", "target/decoder/scales"}});
  };
  EXPECT_NE(error_of(typo, ExitCode::kUsage).find("target/decoder/scales, which is not in"),
            std::string::npos);
  const auto idle = [&] { transformed(checkpoint, {{"target/decoders/.*", std::nullopt}}); };
  EXPECT_NE(error_of(idle, ExitCode::kUsage).find("matches no name"), std::string::npos);
}

TEST_F(Arrays, ParametersAreRoundedToTheRestoredDtype) {
  kernel()[1] = 0.3f;
  moment() = 0.3f;
  const auto checkpoint = saved();
  RestoreCheckpointConfig config;
  config.dtype = DType::bf16;
  load_arrays(*restored(checkpoint, config, shapes_of(*trainer_)), *trainer_);
  EXPECT_EQ(kernel()[1], static_cast<float>(bfloat16(0.3f)));
  EXPECT_EQ(moment(), 0.3f);
  config.dtype = DType::f16;
  load_arrays(*restored(checkpoint, config, shapes_of(*trainer_)), *trainer_);
  EXPECT_EQ(kernel()[1], 0x1.334p-2f);  // 0.3 in binary16
  config.dtype = DType::f32;
  load_arrays(*restored(checkpoint, config, shapes_of(*trainer_)), *trainer_);
  EXPECT_EQ(kernel()[1], 0.3f);
  kernel()[1] = 1e6f;
  const auto large = saved();
  config.dtype = DType::f16;
  const auto overflow = [&] {
    load_arrays(*restored(large, config, shapes_of(*trainer_)), *trainer_);
  };
  EXPECT_NE(error_of(overflow, ExitCode::kData).find("too large for float16"), std::string::npos);
}

TEST_F(Arrays, ParametersAloneLeaveTheOptimizerAsItIs) {
  const auto checkpoint = saved("float32", [](std::vector<TensorSlice>& slices) {
    std::erase_if(slices,
                  [](const TensorSlice& slice) { return slice.name.starts_with("state/"); });
  });
  EXPECT_FALSE(has_optimizer_state(*checkpoint));
  moment() = 2;
  EXPECT_THROW(load_arrays(*checkpoint, *trainer_), Error);
  EXPECT_TRUE(load_arrays(*checkpoint, *trainer_, {.no_optimizer = true}).missing.empty());
  EXPECT_EQ(moment(), 2);
  EXPECT_TRUE(has_optimizer_state(*saved()));
}

TEST_F(Arrays, EveryExpertBeginsAsTheDenseArray) {
  scale()[0] = 2;
  scale()[1] = 3;
  const auto checkpoint = saved();
  Parameters experts;
  Scope(experts).param("wi", {{"expert", 4}, {"embed", 2}}, constant(0));
  RestoreCheckpointConfig config;
  config.upcycled_experts = 4;
  config.transformations = {{.rules = {{"target/wi", "target/decoder/scale"}}}};
  load_parameters(*restored(checkpoint, config, shapes_of(experts)), experts);
  const auto got = Tensor(experts.at("wi").value).data<float>();
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()),
            (std::vector<float>{2, 3, 2, 3, 2, 3, 2, 3}));
  config.upcycled_experts = 2;
  EXPECT_THROW(load_parameters(*restored(checkpoint, config, shapes_of(experts)), experts), Error);
}

TEST_F(Arrays, ParametersThatAreDroppedAreInitialised) {
  kernel()[0] = 5;
  scale()[0] = 5;
  const auto checkpoint = saved();
  RestoreCheckpointConfig config;
  config.transformations = {{.rules = {{"target/decoder/.*", std::nullopt}}}};
  const auto seen = restored(checkpoint, config, shapes_of(parameters_));
  EXPECT_NE(error_of([&] { load_parameters(*seen, parameters_); }, ExitCode::kData)
                .find("decoder/scale: not in the checkpoint"),
            std::string::npos);
  kernel()[0] = scale()[0] = 7;
  EXPECT_EQ(load_parameters(*seen, parameters_, 0), (std::vector<std::string>{"decoder/scale"}));
  EXPECT_EQ(kernel()[0], 5);
  EXPECT_EQ(scale()[0], 1);
}

TEST_F(Arrays, AFolderIsReadAtItsNewestStepAndACheckpointAsItself) {
  saved();
  {
    const FolderLock lock(scratch_.path());
    CheckpointManager(lock, {.keep = 0}).save(12, to_slices(*trainer_, "float32").slices, "{}");
  }
  const auto folders_of = [&](const std::string& mode, const std::vector<std::string>& paths) {
    RestoreCheckpointConfig config;
    config.mode = mode;
    config.path = paths;
    std::vector<std::string> names;
    for (const auto& folder : checkpoint_folders(config)) names.push_back(folder.filename());
    return names;
  };
  const auto folders = [&](const std::string& mode, const std::filesystem::path& path) {
    return folders_of(mode, {path.string()});
  };
  using Names = std::vector<std::string>;
  for (const char* mode : {"latest", "specific"}) {
    EXPECT_EQ(folders(mode, scratch_.path()), Names{"checkpoint_12"});
    EXPECT_EQ(folders(mode, scratch_.path() / "checkpoint_3"), Names{"checkpoint_3"});
  }
  EXPECT_EQ(folders("all", scratch_.path()), (Names{"checkpoint_3", "checkpoint_12"}));
  EXPECT_THROW(folders("latest", scratch_.path() / "nowhere"), Error);
  // Of a list, folders that wait for a checkpoint are passed over.
  const quintet::testing::Scratch empty, young;
  std::ofstream(young.path() / "config.gin") << "MODEL_DIR = 'here'\n";
  const std::string run = scratch_.path().string(), none = empty.path().string(),
                    soon = young.path().string();
  EXPECT_EQ(folders_of("latest", {none, soon, run, "/nowhere"}), Names{"checkpoint_12"});
  EXPECT_EQ(folders_of("all", {none, run, soon}), (Names{"checkpoint_3", "checkpoint_12"}));
  const quintet::testing::Scratch other;
  std::ofstream(other.path() / "weights.gguf") << "GGUF";
  for (const std::vector<std::string>& paths :
       {std::vector{none}, {none, soon}, {run + "/nowhere", run}, {other.path().string(), run}})
    EXPECT_THROW(folders_of("latest", paths), Error) << fmt::format("{}", fmt::join(paths, " "));
  EXPECT_THROW(folders_of("specific", {none, run + "/checkpoint_3"}), Error);
}

}  // namespace
}  // namespace quintet
