// Temperature sampling whose steps run on the device against the host's, over networks made of random
// numbers: the same tokens, and scores as near as the draws' own log probabilities (sample_test.cpp).

#include "models/decoding/gpu/gpu_samples.h"
#include "models/decoding/search/temperature_sample.h"
#include "tests/gpu_kernels/on_device.h"
#include "tests/gpu_kernels/random_network.h"

namespace quintet::testing {
namespace {

using namespace decoding;

/// The sequences of all rows, read token by token.
class History {
 public:
  explicit History(const RandomNetwork& network)
      : network_(network), sequences_(static_cast<size_t>(network.rows())) {}
  /// The logits after one more token; prefixes that a cache would hold read as zeros.
  std::vector<float> read(int32_t row, int32_t token, int32_t position) {
    std::vector<int32_t>& sequence = sequences_[static_cast<size_t>(row)];
    if (sequence.empty()) sequence.resize(static_cast<size_t>(position));
    EXPECT_EQ(std::ssize(sequence), position) << "row " << row;
    sequence.push_back(token);
    return network_.logits(row / network_.decodes, sequence);
  }

 private:
  const RandomNetwork& network_;
  std::vector<std::vector<int32_t>> sequences_;
};

class OnHost : public TokenModel {
 public:
  explicit OnHost(const RandomNetwork& network) : vocab_(network.vocab), history_(network) {}
  int64_t vocab_size() const override { return vocab_; }
  std::span<float> step(const StepInput& input) override {
    logits_.clear();
    for (size_t i = 0; i < input.rows.size(); ++i) {
      const auto row = history_.read(input.rows[i], input.tokens[i], input.positions[i]);
      logits_.insert(logits_.end(), row.begin(), row.end());
    }
    return logits_;
  }

 private:
  int64_t vocab_;
  History history_;
  std::vector<float> logits_;
};

class Here : public TokenModel {
 public:
  Here(Device& device, const RandomNetwork& network) : device_(device), network_(network) {}
  int64_t vocab_size() const override { return network_.vocab; }
  std::span<float> step(const StepInput&) override { throw Bug("the host takes no step"); }
  std::optional<SampleTrace> run_samples(const SamplePlan& plan) override {
    constexpr int32_t kRests = 1000;
    constexpr int kIdleSteps = 3;  // behind the last: they change nothing
    History history(network_);
    GpuSamples samples(plan);
    samples.start(plan);
    std::vector<int32_t> tokens(plan.first_tokens.begin(), plan.first_tokens.end());
    std::vector<int32_t> positions(plan.indices.begin(), plan.indices.end());
    std::vector<float> logits(static_cast<size_t>(network_.rows() * network_.vocab));
    for (int64_t i = 0; i < plan.steps + kIdleSteps; ++i) {
      for (size_t row = 0; row < tokens.size(); ++row)
        if (positions[row] != kRests)
          std::ranges::copy(history.read(static_cast<int32_t>(row), tokens[row], positions[row]),
                            logits.begin() + static_cast<int64_t>(row) * network_.vocab);
      const OnDevice<float> answer(device_, logits);
      const OnDevice<int32_t> next_tokens(device_, tokens), next_positions(device_, positions);
      samples.queue(answer.data(), network_.vocab,
                    {.resting_position = kRests,
                     .next_tokens = next_tokens.data(),
                     .next_positions = next_positions.data()});
      tokens = next_tokens.back(), positions = next_positions.back();
    }
    EXPECT_TRUE(samples.all_ended());
    return samples.trace();
  }

 private:
  Device& device_;
  const RandomNetwork& network_;
};

class SampleLoop : public DeviceTest {
 protected:
  void check(const RandomNetwork& network, const std::vector<int32_t>& prompts,
             const SampleOptions& asked) {
    const int64_t length = std::ssize(prompts) / network.items;
    const Prompts inputs{network.items, length, prompts};
    SampleOptions options = asked;
    options.num_decodes = network.decodes;
    options.decode_rng = key_from_seed(3);
    OnHost on_host(network);
    Here here(device(), network);
    const Decodes want = temperature_sample(inputs, on_host, 1, options);
    const Decodes got = temperature_sample(inputs, here, 1, options);
    EXPECT_EQ(got.tokens, want.tokens);
    for (size_t i = 0; i < want.scores.size(); ++i)
      EXPECT_NEAR(got.scores[i], want.scores[i], 2e-5 * static_cast<double>(length));
  }
};

TEST_F(SampleLoop, IsThatOfTheHost) {
  on_every_schedule(
      [&] { check({.items = 2, .decodes = 3, .vocab = 40}, free_prompts(2, 7), {.topk = 0}); });
  check({.items = 3, .decodes = 2, .vocab = 300, .end = 4}, free_prompts(3, 20),
        {.topk = 0, .topp = 0.8f, .rescale_log_probs = false});
  check({.items = 1, .decodes = 4, .vocab = 300, .end = -9}, free_prompts(1, 9), {.topk = 20});
  check({.items = 100, .decodes = 3, .vocab = 8}, free_prompts(100, 5),
        {.topk = 0});  // more rows than threads
}

TEST_F(SampleLoop, WithATemperatureForEachItemAndGreedyOnes) {
  check({.items = 3, .decodes = 2, .vocab = 90}, free_prompts(3, 8),
        {.temperature = {0.7f, 0, 3}, .topk = 0});
  check({.items = 3, .decodes = 1, .vocab = 90}, free_prompts(3, 8),
        {.temperature = {0}, .rescale_log_probs = false});
}

TEST_F(SampleLoop, FollowsPromptsAndEndsInsideThem) {
  // Item 0: a gap where it may end, and tokens behind; item 1: the end token as part of the prompt.
  const std::vector<int32_t> prompts{0, 5, 0, 0, 0, 7, 0, 0,  //
                                     0, 9, 1, 4, 0, 0, 0, 0};
  for (const float end : {-9.0f, 3.0f, 9.0f})
    check({.items = 2, .decodes = 3, .vocab = 30, .end = end}, prompts, {.topk = 0});
}

TEST_F(SampleLoop, EndsAtEachRowsAllowanceAndBeginsBehindItsPrefix) {
  const std::vector<int32_t> prompts{0, 5, 6, 0, 0, 0, 0, 0,  //
                                     0, 9, 8, 4, 3, 0, 0, 0};
  check({.items = 2, .decodes = 2, .vocab = 30, .end = -9}, prompts,
        {.topk = 0, .initial_index = {{2, 4}}, .max_decode_steps = 2});
}

}  // namespace
}  // namespace quintet::testing
