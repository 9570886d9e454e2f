#include "apps/train/state/run_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/base/check.h"

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

}  // namespace
}  // namespace quintet
