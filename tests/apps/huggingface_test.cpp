// Hugging Face directories of every kind and file format against what transformers says on them
// (tests/oracles/gen_huggingface.py).

#include <cmath>

#include "apps/model/predictor.h"
#include "apps/model/trained_model.h"
#include "checkpoint/lora/peft.h"
#include "checkpoint/open/open_checkpoint.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

using testing::fixture_folders;
using testing::near_array;

struct Expected {
  Json json;
  HostArrays arrays;
  explicit Expected(const std::filesystem::path& folder)
      : json(Json::read(folder / "expected.json")),
        arrays(read_safetensors(folder / "expected.safetensors")) {}
  bool has_decoder() const { return arrays.contains("logits_0"); }
  size_t inputs() const { return json["inputs"].size(); }
  std::vector<int64_t> input(size_t i) const { return json["inputs"][i].as_ints(); }
  std::vector<int64_t> target(size_t i) const { return json["targets"][i].as_ints(); }
};

HostArray row_of(const std::vector<int64_t>& ids) {
  HostArray row(DType::i32, {1, std::ssize(ids)});
  std::copy(ids.begin(), ids.end(), row.as<int32_t>().begin());
  return row;
}

HostArrays batch_of(const std::vector<int64_t>& input, const std::vector<int64_t>& target) {
  std::vector<int64_t> shifted{0};
  shifted.insert(shifted.end(), target.begin(), target.end() - 1);
  return {{"encoder_input_tokens", row_of(input)},
          {"decoder_input_tokens", row_of(shifted)},
          {"decoder_target_tokens", row_of(target)}};
}

class HuggingFace : public ::testing::Test {
 protected:
  static std::vector<std::filesystem::path> folders() { return fixture_folders("huggingface"); }
};

TEST_F(HuggingFace, LogitsAndEncodingsAreTransformers) {
  ASSERT_FALSE(folders().empty());
  for (const auto& folder : folders()) {
    SCOPED_TRACE(folder);
    const Expected expected(folder);
    const TrainedModel trained = open_trained_model(folder);
    const BaseModel& model = *trained.model->model;
    const double relative = expected.json["logits_rtol"].as_double();
    for (size_t i = 0; i < expected.inputs(); ++i) {
      const HostArrays batch = batch_of(expected.input(i), expected.target(i));
      const HostArray encoded = model.encode(batch, {0, 1}, {}).to_host();
      const auto want_encoded = expected.arrays.at(fmt::format("encoded_{}", i)).as<float>();
      EXPECT_TRUE(near_array(encoded.as<float>(), want_encoded, {0, relative})) << "input " << i;
      if (!expected.has_decoder()) continue;
      const HostArray logits = model.logits(batch).to_host();
      const auto want = expected.arrays.at(fmt::format("logits_{}", i)).as<float>();
      EXPECT_TRUE(near_array(logits.as<float>(), want, {0, relative})) << "input " << i;
      const double log_prob = model.score_tokens(batch).sums()[0];
      EXPECT_NEAR(log_prob, expected.json["target_log_probs"][i].as_double(),
                  expected.json["score_atol"].as_double());
    }
  }
}

// Adapters of huggingface/ against what PEFT says with them (tests/oracles/gen_lora.py).
TEST(Lora, LogitsWithAnAdapterArePefts) {
  const auto folders = fixture_folders("lora");
  ASSERT_FALSE(folders.empty());
  for (const auto& folder : folders) {
    SCOPED_TRACE(folder);
    const Json json = Json::read(folder / "expected.json");
    const HostArrays want = read_safetensors(folder / "expected.safetensors");
    const auto base = folder.parent_path().parent_path() / "huggingface" / json["base"].as_string();
    const Expected asked(base);
    const TrainedModel trained = open_trained_model(base, {}, Load::all, folder.string());
    const TrainedModel plain = open_trained_model(base);
    for (size_t i = 0; i < asked.inputs(); ++i) {
      const HostArrays batch = batch_of(asked.input(i), asked.target(i));
      const auto expected = want.at(fmt::format("logits_{}", i)).as<float>();
      const testing::Tolerance tolerance{0, json["logits_rtol"].as_double()};
      EXPECT_TRUE(near_array(trained.model->model->logits(batch).to_host().as<float>(), expected,
                             tolerance))
          << "input " << i;
      EXPECT_FALSE(
          near_array(plain.model->model->logits(batch).to_host().as<float>(), expected, tolerance))
          << "input " << i;
    }
  }
}

TEST(Lora, AWrittenAdapterIsReadBackAndCompared) {
  const auto folder = fixture_folders("lora").front();
  const auto base = open_checkpoint(folder.parent_path().parent_path() / "huggingface" /
                                    Json::read(folder / "expected.json")["base"].as_string());
  Adapter adapter = read_peft(folder, *base);
  const auto written = std::filesystem::path(::testing::TempDir()) / "written_adapter";
  std::filesystem::create_directories(written);
  write_peft(written, adapter, *base);
  check_peft(written, adapter, *base);
  adapter.kernels.begin()->second.b.bytes.back() ^= std::byte{1};
  EXPECT_THROW(check_peft(written, adapter, *base), Error);
}

std::vector<int64_t> ids_of(const decoding::Hypothesis& one) {
  const decoding::TokenList ids = one.ids();
  return {ids.begin(), ids.end()};
}

TEST_F(HuggingFace, AnswersAndScoresAreTransformers) {
  for (const auto& folder : folders()) {
    SCOPED_TRACE(folder);
    const Expected expected(folder);
    if (!expected.has_decoder()) continue;
    const TrainedModel trained = open_trained_model(folder, {}, Load::to_generate);
    const Predictor predictor(*trained.model, {}, weights_to_generate({}, trained.reader));
    for (size_t i = 0; i < expected.inputs(); ++i)
      for (const auto& [name, answers] : expected.json["answers"][i].members()) {
        SCOPED_TRACE(name);
        decoding::DecodingRequest request;
        request.rules.max_new_tokens = expected.json["new_tokens"].as_int();
        if (name != "greedy") request.num_beams = request.num_return_sequences = 4;
        if (name.ends_with("length_penalty_0")) request.length_penalty = 0;
        const auto length = static_cast<size_t>(request.rules.max_new_tokens);
        const auto found = predictor
                               .answer(batch_of(expected.input(i), std::vector<int64_t>(length)),
                                       {std::move(request)})
                               .front();
        ASSERT_EQ(found.size(), answers.size());
        for (size_t k = 0; k < found.size(); ++k) {
          EXPECT_EQ(ids_of(found[k]), answers[k]["ids"].as_ints())
              << "input " << i << " rank " << k;
          EXPECT_NEAR(static_cast<double>(found[k].score), answers[k]["score"].as_double(),
                      expected.json["score_atol"].as_double());
        }
      }
  }
}

}  // namespace
}  // namespace quintet
