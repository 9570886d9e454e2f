#include "apps/train/state/run_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apps/train/state/state_arrays.h"
#include "checkpoint/region_reader.h"
#include "runtime/optim/optax/optax.h"
#include "tests/checkpoint/scratch.h"

namespace quintet {
namespace {

TEST(RunState, ComesBackFromJsonEqual) {
  RunState state;
  state.step = 12345678901;
  state.first_step = 100;
  state.skipped_updates = 3;
  state.skipped_in_a_row = 1;
  state.evaluated_step = 90;
  state.metrics_bytes = 777;
  state.seed = -5;
  state.data_position = R"({"epoch": 1, "quote": "\""})";
  state.window["loss"] = {0.1 + 0.2, 3, true};
  state.window["accuracy"] = {1.0 / 3, 1e-300, false};
  state.window["bad"] = {std::numeric_limits<double>::quiet_NaN(), 1, false};
  state.window["worse"] = {-std::numeric_limits<double>::infinity(), 1, false};
  state.actions["INFER_EVAL: EarlyStopping task/accuracy max"] = {{"best", 0.1 + 0.2},
                                                                  {"waited", 2}};
  data::VocabularyFile file;
  file.path = "a \"b\"/sp.model";
  file.bytes = 12345;
  file.crc = 0x00c0ffee;
  state.vocabularies["inputs"] = {"SentencePieceVocabulary(pieces=32)", file};
  state.vocabularies["targets"] = {"ByteVocabulary(extra_ids=0)", std::nullopt};
  const RunState back = run_state_from_json(to_json(state), "test");
  EXPECT_EQ(back.vocabularies.at("inputs").file->crc, 0x00c0ffee);
  EXPECT_EQ(difference(back.vocabularies.at("inputs"), state.vocabularies["inputs"]), "");
  EXPECT_FALSE(back.vocabularies.at("targets").file.has_value());
  EXPECT_EQ(back.actions, state.actions);
  EXPECT_EQ(to_json(back), to_json(state));
  EXPECT_EQ(back.step, state.step);
  EXPECT_EQ(back.seed, state.seed);
  EXPECT_EQ(back.data_position, state.data_position);
  EXPECT_EQ(back.window.at("loss").total, 0.1 + 0.2);  // every bit
  EXPECT_TRUE(back.window.at("loss").per_step);
  EXPECT_EQ(back.window.at("accuracy").count, 1e-300);
  EXPECT_TRUE(std::isnan(back.window.at("bad").total));
  EXPECT_TRUE(std::isinf(back.window.at("worse").total));
}

TEST(RunState, OfACheckpointFromBeforeActionsHadAStateHasNone) {
  std::string text = to_json(RunState{});
  const size_t at = text.find(",\"actions\":{}");
  ASSERT_NE(at, std::string::npos);
  text.erase(at, std::string(",\"actions\":{}").size());
  EXPECT_TRUE(run_state_from_json(text, "test").actions.empty());
}

TEST(RunState, OfACheckpointFromBeforeVocabulariesWereRecordedHasNone) {
  std::string text = to_json(RunState{});
  const std::string member = ",\"vocabularies\":{}";
  ASSERT_NE(text.find(member), std::string::npos);
  text.erase(text.find(member), member.size());
  EXPECT_TRUE(run_state_from_json(text, "test").vocabularies.empty());
}

TEST(RunState, ADamagedDocumentIsADataError) {
  for (const char* text : {"", "{}", "[1]", R"({"step": "7"})"}) {
    try {
      run_state_from_json(text, "checkpoint_7: state");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      EXPECT_NE(std::string(error.what()).find("checkpoint_7"), std::string::npos) << error.what();
    }
  }
}

Initializer ones() {
  return Initializer([](Key, std::span<const int64_t>, uint64_t, std::span<float> out) {
    for (float& v : out) v = 1;
  });
}

class Arrays : public ::testing::Test {
 protected:
  Arrays() {
    Scope root(parameters_);
    (root / "encoder").param("kernel", {{"embed", 2}, {"mlp", 3}}, ones());
    (root / "decoder").param("scale", {{"embed", 2}}, ones());
    parameters_.initialize(key_from_seed(0));
    trainer_ = std::make_unique<Trainer>(LossFunction{}, parameters_, optax_optimizer(adamw(1e-3)),
                                         TrainerOptions{}, key_from_seed(0));
  }
  /// Where a save of the trainer is, after `change` to what it writes.
  NativeCheckpointReader saved(const std::string& dtype = "float32",
                               const std::function<void(std::vector<TensorSlice>&)>& change = {}) {
    const FolderLock lock(scratch_.path());
    StateSlices slices = to_slices(*trainer_, dtype);
    if (change) change(slices.slices);
    CheckpointManager(lock).save(3, slices.slices, "{}");
    return NativeCheckpointReader(checkpoint_path(scratch_.path(), 3));
  }
  std::span<float> kernel() { return Tensor(parameters_.at("encoder/kernel").value).data<float>(); }

  const quintet::testing::Scratch scratch_;
  Parameters parameters_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(Arrays, AreWrittenAndReadBack) {
  kernel()[4] = 0.3f;
  const NativeCheckpointReader checkpoint = saved();
  kernel()[4] = 7;
  load_arrays(checkpoint, *trainer_);
  EXPECT_EQ(kernel()[4], 0.3f);
  EXPECT_TRUE(checkpoint.tensors().contains("state/step"));
}

TEST_F(Arrays, OfHalfPrecisionAreWidened) {
  kernel()[4] = 0.3f;
  const NativeCheckpointReader checkpoint = saved("bfloat16");
  EXPECT_EQ(checkpoint.tensors().at("target/encoder/kernel").dtype, DType::bf16);
  load_arrays(checkpoint, *trainer_);
  EXPECT_EQ(kernel()[4], static_cast<float>(bfloat16(0.3f)));
}

TEST_F(Arrays, EveryMisfitIsNamed) {
  const HostArray extra(DType::f32, {1}), wide(DType::f32, {2, 4});
  const NativeCheckpointReader checkpoint = saved("float32", [&](std::vector<TensorSlice>& slices) {
    for (TensorSlice& slice : slices)
      if (slice.name == "target/decoder/scale")
        slice = whole_slice("target/extra", extra);
      else if (slice.name == "target/encoder/kernel")
        slice = whole_slice(slice.name, wide);
  });
  try {
    load_arrays(checkpoint, *trainer_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    for (const char* part :
         {"checkpoint_3", "target/decoder/scale", "target/extra", "[2, 4]", "[2, 3]"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << error.what();
  }
}

TEST_F(Arrays, AssignmentRulesRenameAndLeaveOut) {
  kernel()[0] = 5;
  const NativeCheckpointReader checkpoint = saved("float32", [](std::vector<TensorSlice>& slices) {
    for (TensorSlice& slice : slices)
      if (slice.name == "target/encoder/kernel") slice.name = "target/old/kernel";
  });
  kernel()[0] = 1;
  RestoreCheckpointConfig config;
  config.assignment_map = {{R"(target/encoder/(.*))", R"(target/old/\1)"},
                           {"state.*", std::nullopt}};
  config.fallback_to_scratch = true;
  load_arrays(checkpoint, config, *trainer_);
  EXPECT_EQ(kernel()[0], 5);
  config.assignment_map.push_back({"no/such/name", std::nullopt});
  EXPECT_THROW(load_arrays(checkpoint, config, *trainer_), Error);
}

}  // namespace
}  // namespace quintet
