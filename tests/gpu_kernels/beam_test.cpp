// Beam search whose steps run on the device against the host's, over networks made of random numbers:
// the same tokens and, as both take the device's sums, the same scores.

#include "models/decoding/gpu/gpu_beams.h"
#include "models/decoding/search/beam_search.h"
#include "tests/gpu_kernels/on_device.h"
#include "tests/gpu_kernels/random_network.h"

namespace quintet::testing {
namespace {

using namespace decoding;

/// The network's rows, and the device's largest elements and sums of their logits.
class Rows {
 public:
  Rows(Device& device, const RandomNetwork& network)
      : device_(device),
        network_(network),
        top_(std::min<int64_t>(32, 4 * network.decodes + 4)),
        sequences_(static_cast<size_t>(network.rows())),
        logits_(static_cast<size_t>(network.rows() * network.vocab)) {}

  void read(size_t row, int32_t token, std::vector<int32_t> history) {
    history.push_back(token);
    sequences_[row] = std::move(history);
    const auto made =
        network_.logits(static_cast<int64_t>(row) / network_.decodes, sequences_[row]);
    std::copy(made.begin(), made.end(),
              logits_.begin() + static_cast<int64_t>(row) * network_.vocab);
  }
  const std::vector<std::vector<int32_t>>& sequences() const { return sequences_; }
  std::span<float> logits(size_t row) {
    return std::span(logits_).subspan(row * static_cast<size_t>(network_.vocab),
                                      static_cast<size_t>(network_.vocab));
  }
  /// What top_gpu makes of the logits, as long as the next call.
  BeamStep answer() {
    const auto places = static_cast<size_t>(network_.rows() * top_);
    on_device_.emplace(device_, logits_);
    values_.emplace(device_, std::vector<float>(places));
    indices_.emplace(device_, std::vector<int32_t>(places));
    log_sums_.emplace(device_, std::vector<float>(static_cast<size_t>(network_.rows())));
    device_.kernels().top({.logits = on_device_->data(),
                           .rows = network_.rows(),
                           .vocab = network_.vocab,
                           .top = top_,
                           .values = values_->data(),
                           .indices = indices_->data(),
                           .log_sums = log_sums_->data()},
                          device_.stream());
    return {.vocab = network_.vocab,
            .logits = on_device_->data(),
            .top = top_,
            .values = values_->data(),
            .indices = indices_->data(),
            .log_sums = log_sums_->data()};
  }
  std::vector<float> log_sums() const { return log_sums_->back(); }

 private:
  Device& device_;
  const RandomNetwork& network_;
  int64_t top_;
  std::vector<std::vector<int32_t>> sequences_;
  std::vector<float> logits_;
  std::optional<OnDevice<float>> on_device_, values_, log_sums_;
  std::optional<OnDevice<int32_t>> indices_;
};

class OnHost : public TokenModel {
 public:
  OnHost(Device& device, const RandomNetwork& network)
      : network_(network), rows_(device, network) {}
  int64_t vocab_size() const override { return network_.vocab; }
  std::span<float> step(const StepInput& input) override {
    const auto before = rows_.sequences();
    logits_.clear();
    read_.assign(input.rows.begin(), input.rows.end());
    for (size_t i = 0; i < input.rows.size(); ++i) {
      const auto row = static_cast<size_t>(input.rows[i]);
      const auto& history = before[static_cast<size_t>(input.sources[i])];
      EXPECT_EQ(std::ssize(history), input.positions[i]);
      rows_.read(row, input.tokens[i], history);
      const auto logits = rows_.logits(row);
      logits_.insert(logits_.end(), logits.begin(), logits.end());
    }
    rows_.answer();
    return logits_;
  }
  std::vector<RowSelection> select_last(const SelectOptions& options) override {
    std::vector<RowSelection> selected = TokenModel::select_last(options);
    const std::vector<float> sums = rows_.log_sums();
    for (size_t i = 0; i < selected.size(); ++i)
      selected[i].summary.log_sum = sums[static_cast<size_t>(read_[i])];
    return selected;
  }

 private:
  const RandomNetwork& network_;
  Rows rows_;
  std::vector<int32_t> read_;
  std::vector<float> logits_;
};

class Here : public TokenModel {
 public:
  Here(Device& device, const RandomNetwork& network)
      : device_(device), network_(network), rows_(device, network) {}
  int64_t vocab_size() const override { return network_.vocab; }
  std::span<float> step(const StepInput&) override { throw Bug("the host takes no step"); }
  std::optional<BeamTrace> run_beams(const BeamPlan& plan) override {
    constexpr int32_t kRests = 1000;
    GpuBeams beams(plan);
    beams.start(plan);
    std::vector<int32_t> tokens, positions, parents;
    for (int64_t row = 0; row < network_.rows(); ++row) {
      tokens.push_back(plan.first_tokens[static_cast<size_t>(row / plan.beams)]);
      positions.push_back(plan.prompt_lengths[static_cast<size_t>(row / plan.beams)]);
      parents.push_back(static_cast<int32_t>(row));
    }
    for (int64_t i = 0; i < plan.steps; ++i) {
      const auto before = rows_.sequences();
      for (size_t row = 0; row < tokens.size(); ++row)
        if (positions[row] != kRests) {
          const auto& history = before[static_cast<size_t>(parents[row])];
          EXPECT_EQ(std::ssize(history), positions[row]);
          rows_.read(row, tokens[row], history);
        }
      const OnDevice<int32_t> next_tokens(device_, tokens), next_positions(device_, positions),
          next_parents(device_, parents);
      BeamStep step = rows_.answer();
      step.resting_position = kRests;
      step.next_tokens = next_tokens.data();
      step.next_positions = next_positions.data();
      step.next_parents = next_parents.data();
      beams.queue(step);
      tokens = next_tokens.back(), positions = next_positions.back(), parents = next_parents.back();
      settled_ = beams.all_settled();
    }
    return beams.trace();
  }
  bool settled() const { return settled_; }

 private:
  Device& device_;
  const RandomNetwork& network_;
  Rows rows_;
  bool settled_ = false;
};

class Beams : public DeviceTest {
 protected:
  /// Returns whether all items were settled before the last step.
  bool check(const RandomNetwork& network, const std::vector<int32_t>& prompts, float alpha) {
    const Prompts inputs{network.items, std::ssize(prompts) / network.items, prompts};
    const BeamOptions options{.num_decodes = network.decodes, .alpha = alpha};
    OnHost on_host(device(), network);
    Here here(device(), network);
    const Decodes want = beam_search(inputs, on_host, 1, options);
    const Decodes got = beam_search(inputs, here, 1, options);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.scores, want.scores);
    return here.settled();
  }
};

TEST_F(Beams, AreThoseOfTheHost) {
  on_every_schedule(
      [&] { check({.items = 2, .decodes = 3, .vocab = 40}, free_prompts(2, 7), 0.6f); });
  EXPECT_TRUE(check({.items = 3, .decodes = 4, .vocab = 300, .end = 4}, free_prompts(3, 12), 0.6f));
  EXPECT_FALSE(
      check({.items = 2, .decodes = 4, .vocab = 300, .end = -9}, free_prompts(2, 6), 0.6f));
  check({.items = 1, .decodes = 1, .vocab = 50}, free_prompts(1, 6), 0);
  check({.items = 1, .decodes = 16, .vocab = 600}, free_prompts(1, 5), 1);
}

TEST_F(Beams, WithEqualLogitsToo) {
  on_every_schedule([&] {
    for (const float step : {0.5f, 2.0f, 100.0f})
      check({.items = 2, .decodes = 3, .vocab = 200, .step_of_logits = step}, free_prompts(2, 6),
            0.6f);
  });
}

// More continuations than are listed may be equal then, and lower tokens go before larger logits.
TEST_F(Beams, WhereSumsOfLogProbabilitiesMakeLogitsEqual) {
  on_every_schedule([&] {
    for (const float spread : {1e-6f, 1e-7f})
      for (const float end : {0.0f, spread})  // with it the last of the continuations counts, too
        check({.items = 2, .decodes = 3, .vocab = 200, .end = end, .spread = spread},
              free_prompts(2, 6), 0.6f);
  });
}

TEST_F(Beams, OfVocabulariesThatAreTooSmallForTheirNumber) {
  for (const int64_t vocab : {3, 5, 9})
    check({.items = 2, .decodes = 4, .vocab = vocab}, free_prompts(2, 5), 0.6f);
}

TEST_F(Beams, FollowPrompts) {
  std::vector<int32_t> prompts = free_prompts(2, 8);
  prompts[0] = 0, prompts[1] = 5, prompts[2] = 9, prompts[9] = 4;
  check({.items = 2, .decodes = 3, .vocab = 60}, prompts, 0.6f);
}

TEST_F(Beams, OfNaNsAreAnError) {
  const RandomNetwork network{.items = 2, .decodes = 2, .vocab = 30, .nan_from = 0};
  Here here(device(), network);
  const std::vector<int32_t> prompts = free_prompts(2, 4);
  try {
    beam_search({2, 4, prompts}, here, 1, {.num_decodes = 2});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quintet::testing
