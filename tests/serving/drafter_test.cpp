// Draft tokens: answers are what they are without them, and right guesses save steps.

#include "models/serving/drafter.h"

#include <utility>

#include "tests/harness/threads.h"
#include "tests/serving/request_cases.h"

namespace quintet::testing {
namespace {

using serving::Drafter;
using serving::DraftJob;
using serving::DraftRequest;
using serving::DraftState;

/// Knows the answers, and is wrong in every `wrong`-th of its guesses; 0: never.
class Knowing : public Drafter {
 public:
  Knowing(std::vector<TokenList> answers, int64_t wrong)
      : answers_(std::move(answers)), wrong_(wrong) {}
  std::vector<std::unique_ptr<DraftState>> start(std::span<const DraftJob> jobs) override {
    std::vector<std::unique_ptr<DraftState>> states(jobs.size());
    for (auto& state : states) state = std::make_unique<DraftState>();
    return states;
  }
  void draft(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      const auto written = request.tokens.subspan(1);
      for (const TokenList& answer : answers_) {
        const auto [own, rest] = std::ranges::mismatch(written, answer);
        if (own != written.end()) continue;
        request.drafts.assign(rest, rest + std::min(request.most, answer.end() - rest));
        for (int32_t& draft : request.drafts)
          if (wrong_ > 0 && ++made_ % wrong_ == 0) draft = draft == 2 ? 3 : 2;
        break;
      }
    }
  }

 private:
  const std::vector<TokenList> answers_;
  const int64_t wrong_;
  int64_t made_ = 0;
};

/// Runs all at a time, with drafts where there is a drafter.
std::vector<Ended> answers(const TinyNetwork& network, const std::vector<RequestCase>& all,
                           std::unique_ptr<Drafter> drafter, serving::EngineState* state = nullptr,
                           int64_t max_rows = 12) {
  const EngineOptions options{
      .max_rows = max_rows, .page_tokens = 3, .draft_tokens = drafter == nullptr ? 0 : 4};
  serving::Engine engine(served(network, options), options, std::move(drafter));
  std::vector<Ended> ended(all.size());
  int64_t draft_memory = 0;  // at most
  for (size_t i = 0; i < all.size(); ++i) {
    Job job = all[i].job(network.spec().vocab_size);
    watch(job, ended[i]);
    if (state != nullptr && i == 0)
      job.on_step = [&](const decoding::RequestDecoder&) {
        draft_memory = std::max(draft_memory, engine.state().draft_memory);
      };
    engine.submit(std::move(job));
  }
  engine.run_until_idle();
  if (state != nullptr) {
    *state = engine.state();
    EXPECT_EQ(std::exchange(state->draft_memory, draft_memory), 0);
  }
  return ended;
}

std::vector<TokenList> ids_of(const std::vector<Ended>& all) {
  std::vector<TokenList> ids;
  for (const Ended& ended : all)
    for (const Hypothesis& one : ended.results) ids.push_back(one.ids());
  return ids;
}

std::unique_ptr<Drafter> same_network(const TinyNetwork& network, int64_t memory_bytes = 1 << 26) {
  const EngineOptions options{
      .memory_bytes = memory_bytes, .max_rows = 5, .page_tokens = 2, .draft_tokens = 1};
  return serving::network_drafter(served(network, options), options);
}

class Drafts : public ::testing::TestWithParam<std::string> {};

TEST_P(Drafts, ChangeNoAnswer) {
  const auto network = tiny_network(GetParam());
  Asking asking(5, *network);
  std::vector<RequestCase> all;
  for (int i = 0; i < (on_cpu() ? 24 : 8); ++i) all.push_back(asking.ask());
  // Rules that look at what was written, and one sample.
  all.push_back({.inputs = all[0].inputs,
                 .request = {.rules = {.max_new_tokens = 15, .repetition_penalty = 1.5f},
                             .sampling = {.temperature = 1, .seed = 3}},
                 .targets = {}});
  all.push_back({.inputs = all[0].inputs,
                 .request = {.rules = {.max_new_tokens = 15, .no_repeat_ngram_size = 2}},
                 .targets = {}});
  all.push_back({.inputs = all[0].inputs,
                 .request = {.rules = {.eos_ids = {}, .max_new_tokens = 15},
                             .sampling = {.temperature = 1, .seed = 4, .alternatives = 2}},
                 .targets = {}});
  const std::vector<Ended> plain = answers(*network, all, nullptr);
  const auto expect_same = [&](const std::vector<Ended>& drafted) {
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same_bits(plain[i], drafted[i]);
    }
  };
  for (const int64_t wrong : {0, 1, 3}) {
    SCOPED_TRACE(wrong);
    expect_same(answers(*network, all, std::make_unique<Knowing>(ids_of(plain), wrong)));
  }
  expect_same(answers(*network, all, serving::prompt_lookup(network->spec().decoder_only())));
  expect_same(answers(*network, all, same_network(*network)));
}

INSTANTIATE_TEST_SUITE_P(Networks, Drafts,
                         ::testing::Values("encdec", "decoder_only", "int8_encdec",
                                           "sparse_decoder_only", "umt5_encdec", "rotary_encdec",
                                           "multi_query_encdec", "parallel_encdec",
                                           "fused_decoder_only", "kv_int8_encdec",
                                           "kv_fp8_decoder_only", "kv_int8_multi_query_encdec"),
                         [](const auto& named) { return named.param; });

/// One answer of 17 tokens.
std::vector<RequestCase> long_answer() {
  return {{.inputs = {5, 6, 7},
           .request = {.rules = {.eos_ids = {}, .max_new_tokens = 17}},
           .targets = {}}};
}

TEST(DraftTokens, RightGuessesSaveSteps) {
  const auto network = tiny_network("encdec");
  serving::EngineState plain, right, wrong, itself;
  const auto ids = ids_of(answers(*network, long_answer(), nullptr, &plain));
  ASSERT_EQ(ids.front().size(), 17u);
  EXPECT_EQ(plain.steps, 17);
  EXPECT_EQ(plain.draft_tokens, 0);
  answers(*network, long_answer(), std::make_unique<Knowing>(ids, 0), &right);
  // 3 steps of five tokens, and one of the last two.
  EXPECT_EQ(right.steps, 4);
  EXPECT_EQ(right.draft_tokens, 13);
  EXPECT_EQ(right.accepted_drafts, 13);
  answers(*network, long_answer(), std::make_unique<Knowing>(ids, 1), &wrong);
  EXPECT_EQ(wrong.steps, 17);
  EXPECT_EQ(wrong.accepted_drafts, 0);
  answers(*network, long_answer(), same_network(*network), &itself);
  EXPECT_GE(itself.draft_memory, page_bytes(*network, 2));
  EXPECT_EQ(itself.accepted_drafts, 13);
}

TEST(DraftTokens, HaveTheRowsThatNoJobNeeds) {
  const auto network = tiny_network("encdec");
  std::vector<RequestCase> all = long_answer();
  all.push_back(
      {.inputs = {9}, .request = {.rules = {.eos_ids = {}, .max_new_tokens = 17}}, .targets = {}});
  const auto ids = ids_of(answers(*network, all, nullptr));
  // The second answer's first drafts are those of the first, which it does not follow.
  for (const auto& [rows, steps] : {std::pair{2, 17}, {3, 12}, {12, 5}}) {
    serving::EngineState state;
    answers(*network, all, std::make_unique<Knowing>(ids, 0), &state, rows);
    EXPECT_EQ(state.steps, steps) << rows;
  }
}

TEST(DraftTokens, OfANetworkWithoutMemoryAreNone) {
  const auto network = tiny_network("encdec");
  serving::EngineState state;
  const auto plain = answers(*network, long_answer(), nullptr);
  const auto drafted =
      answers(*network, long_answer(), same_network(*network, page_bytes(*network, 2)), &state);
  expect_same_bits(plain.front(), drafted.front());
  EXPECT_EQ(state.draft_tokens, 0);
}

/// Has no memory, at first or later.
class WithoutMemory : public Knowing {
 public:
  WithoutMemory(bool at_start, std::vector<TokenList> answers)
      : Knowing(std::move(answers), 0), at_start_(at_start) {}
  std::vector<std::unique_ptr<DraftState>> start(std::span<const DraftJob> jobs) override {
    if (at_start_ && !jobs.empty()) throw std::bad_alloc();
    return Knowing::start(jobs);
  }
  void draft(std::span<DraftRequest> requests) override {
    if (++calls_ == 2 && !at_start_) throw std::bad_alloc();
    Knowing::draft(requests);
  }

 private:
  const bool at_start_;
  int calls_ = 0;
};

TEST(DraftTokens, JobsGoOnWithoutADrafterThatFindsNoMemory) {
  const auto network = tiny_network("encdec");
  const auto plain = answers(*network, long_answer(), nullptr);
  for (const bool at_start : {true, false}) {
    serving::EngineState state;
    const auto drafted = answers(*network, long_answer(),
                                 std::make_unique<WithoutMemory>(at_start, ids_of(plain)), &state);
    expect_same_bits(plain.front(), drafted.front());
    EXPECT_EQ(state.accepted_drafts, at_start ? 0 : 4);
  }
}

TEST(NetworkDrafter, TakesNoMoreMemoryThanItHas) {
  const auto network = tiny_network("encdec");
  const TokenList one(9, 5), other(9, 6);
  const auto alone = served(*network, {.memory_bytes = 1 << 24, .max_rows = 1, .page_tokens = 2});
  const int64_t rows = alone->row_bytes({.rows = 1, .max_length = 4});
  const int64_t inputs = alone->input_bytes(one);
  const DraftJob jobs[] = {{.inputs = &one, .max_length = 4}, {.inputs = &other, .max_length = 4}};
  for (const int both : {0, 1}) {
    const auto states = same_network(*network, 2 * rows + (1 + both) * inputs)->start(jobs);
    EXPECT_NE(states[0], nullptr);
    EXPECT_EQ(states[1] != nullptr, both == 1);
  }
}

TEST(DraftTokens, AreReadByEveryNumberOfThreads) {
  const int before = omp_get_max_threads();
  for (const char* kind : {"encdec", "multi_query_encdec"}) {
    const auto network = tiny_network(kind);
    const auto ids = ids_of(answers(*network, long_answer(), nullptr));
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(threads);
      use_threads(threads);
      EXPECT_EQ(ids_of(answers(*network, long_answer(), std::make_unique<Knowing>(ids, 0))), ids);
    }
  }
  use_threads(before);
}

TEST(NetworkDrafter, GuessesOnFromWhatWasWrittenInstead) {
  const auto network = tiny_network("encdec");
  const TokenList inputs{5, 6, 7}, written{0, 9}, other{0, 9, 4, 8, 3, 9, 2};
  const auto drafts = [&](std::initializer_list<TokenList> asked) {
    const auto drafter = same_network(*network);
    const DraftJob job{.inputs = &inputs, .max_length = 16};
    const auto states = drafter->start({&job, 1});
    TokenList last;
    for (const TokenList& tokens : asked) {
      DraftRequest request{.state = states.front().get(), .tokens = tokens, .most = 4};
      drafter->draft({&request, 1});
      last = request.drafts;
    }
    return last;
  };
  EXPECT_EQ(drafts({written}).size(), 4u);
  EXPECT_NE(drafts({written}), TokenList(other.begin() + 2, other.begin() + 6));
  EXPECT_EQ(drafts({written, other}), drafts({other}));
}

TEST(PromptLookup, GuessesWhatFollowedTheLastTokens) {
  struct Case {
    TokenList inputs, tokens;
    int64_t most;
    TokenList drafts;
  };
  const std::vector<Case> encoder_decoder{
      {{5, 6, 7, 8, 1}, {0, 6}, 2, {7, 8}},
      {{5, 6, 7, 8, 1}, {0, 6}, 9, {7, 8, 1}},     // up to the inputs' end
      {{5, 6, 7, 9, 6, 8}, {0, 9, 6}, 4, {8}},     // the longer match
      {{5, 6}, {0, 7, 8, 9, 7, 8}, 4, {9, 7, 8}},  // the answer's own
      {{5, 6}, {0}, 4, {}},
      {{5, 6}, {0, 9}, 4, {}}};
  const std::vector<Case> decoder_only{{{0, 5, 6, 7, 5}, {5}, 2, {6, 7}},
                                       {{0, 5, 6, 7}, {7, 5, 6}, 4, {7, 5, 6}}};
  for (const bool alone : {false, true})
    for (const Case& one : alone ? decoder_only : encoder_decoder) {
      const auto drafter = serving::prompt_lookup(alone);
      const DraftJob job{.inputs = &one.inputs, .max_length = 16};
      const auto states = drafter->start({&job, 1});
      TokenList drafts;
      for (size_t read = 1; read <= one.tokens.size(); ++read) {  // as its answer grows
        DraftRequest request{.state = states.front().get(),
                             .tokens = std::span(one.tokens).first(read),
                             .most = one.most};
        drafter->draft({&request, 1});
        drafts = request.drafts;
      }
      EXPECT_EQ(drafts, one.drafts) << fmt::format("{}", fmt::join(one.tokens, " "));
    }
}

}  // namespace
}  // namespace quintet::testing
