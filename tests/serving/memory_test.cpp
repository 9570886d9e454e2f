// Memory of the engine: within its limit at every step, shared by equal inputs, free when a job is
// over.

#include "models/serving/cpu_pages.h"
#include "models/serving/paged_rows.h"
#include "tests/serving/serving_fixture.h"

namespace quintet::testing {
namespace {

using serving::CpuPages;
using serving::PagedRows;
using serving::Refused;

Refused::Reason reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Refused& refused) {
    return refused.reason();
  }
}

DecodingRequest samples(int64_t n, int64_t tokens) {
  return {.rules = {.eos_ids = {}, .max_new_tokens = tokens},
          .sampling = {.temperature = 1},
          .num_return_sequences = n};
}

TEST(PagedRows, PagesOfRowsThatHaveEndedAreFreedUnlessOthersGoOnFromThem) {
  const auto network = tiny_network("encdec");
  CpuPages pages(network->spec().decoder, 2, CacheType::native);
  PagedRows rows(pages, {.rows = 3, .max_length = 6}, {});
  using Step = std::vector<decoding::RowStep>;
  EXPECT_EQ(rows.reserved(), 9);
  rows.follow(Step{{.row = 0, .position = 0, .source = 0}});
  EXPECT_EQ(rows.pages(), 1);
  const Step second{{0, 0, 1, 0}, {1, 0, 1, 0}, {2, 0, 1, 0}};
  rows.follow(second);
  EXPECT_EQ(rows.pages(), 3);
  EXPECT_EQ(rows.past(second[1])[0], rows.past(second[0])[0]);
  EXPECT_NE(rows.past(second[1])[1], rows.past(second[0])[1]);
  rows.follow(Step{{0, 0, 2, 0}, {1, 0, 2, 1}, {2, 0, 2, 2}});
  EXPECT_EQ(rows.pages(), 6);
  rows.follow(Step{{1, 0, 3, 1}, {2, 0, 3, 2}});  // row 0 ended; its first token is everyone's
  EXPECT_EQ(rows.pages(), 5);
  EXPECT_EQ(rows.reserved(), 7);
  rows.follow(Step{{1, 0, 4, 1}});
  EXPECT_EQ(rows.pages(), 1 + 3);
}

TEST(PagedRows, DraftsThatWereDroppedAreOverwritten) {
  const auto network = tiny_network("encdec");
  CpuPages pages(network->spec().decoder, 2, CacheType::native);
  PagedRows rows(pages, {.rows = 1, .max_length = 6}, {});
  using Step = std::vector<decoding::RowStep>;
  const Step drafts{{0, 9, 0, 0}, {0, 8, 1, 0}, {0, 7, 2, 0}};
  rows.follow(drafts);
  EXPECT_EQ(rows.pages(), 2);
  EXPECT_EQ(rows.past(drafts[0]).size(), 1u);
  EXPECT_EQ(rows.past(drafts[2]).size(), 3u);
  float* const second = rows.past(drafts[1]).back();
  const Step again{{0, 6, 1, 0}, {0, 5, 2, 0}, {0, 4, 3, 0}, {0, 3, 4, 0}};
  rows.follow(again);
  rows.follow(again);  // a step that failed
  EXPECT_EQ(rows.past(again[0]).back(), second);
  EXPECT_EQ(rows.past(again[3]).size(), 5u);
  EXPECT_EQ(rows.pages(), 3);
}

TEST(EngineMemory, StaysWithinItsLimitAndIsFreeAtTheEnd) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  const int64_t limit = 40 * page_bytes(*network, 4);
  int64_t most_used = 0, most_running = 0;
  std::unique_ptr<RunningEngine> running;
  std::atomic<Engine*> engine = nullptr;
  running = std::make_unique<RunningEngine>(
      *network,
      EngineOptions{.memory_bytes = limit, .max_rows = 12, .page_tokens = 4, .before_step = [&] {
                      if (engine == nullptr) return;
                      const auto state = engine.load()->state();
                      EXPECT_LE(state.memory_reserved, limit);
                      EXPECT_LE(state.memory_used, state.memory_reserved);
                      most_used = std::max(most_used, state.memory_used);
                      most_running = std::max(most_running, state.running);
                    }});
  engine = &running->engine;
  std::vector<Ended> ended(60);
  for (size_t i = 0; i < ended.size(); ++i) {
    const auto n = static_cast<int64_t>(i);
    TokenList inputs(1 + i % 9, static_cast<int32_t>(2 + i % 7));
    Job job = generation_job(std::move(inputs), samples(1 + n % 3, 4 + n % 17), vocab);
    watch(job, ended[i]);
    running->engine.submit(std::move(job));
  }
  running->wait();
  for (const Ended& one : ended) EXPECT_TRUE(one.over && one.error == nullptr);
  const auto state = running->engine.state();
  EXPECT_EQ(state.memory_reserved, 0);
  EXPECT_EQ(state.memory_used, 0);
  EXPECT_GT(most_used, 0);
  EXPECT_GT(most_running, 1);
}

/// A byte an element and 4 a vector: of the inputs as of the rows.
TEST(EngineMemory, CachesInBytesTakeSoMuchLess) {
  const EngineOptions options{.memory_bytes = 1 << 22, .max_rows = 1, .page_tokens = 4};
  const serving::Tokens inputs(32, 3);
  for (const char* kind : {"encdec", "decoder_only"}) {
    const auto network = tiny_network(kind);
    const LayerConfig& layer = network->spec().decoder.layer;
    const auto bytes_of = [&](const std::string& type) {
      const auto typed = tiny_network(type + kind);
      const auto one = served(*typed, options);
      return std::pair(one->row_bytes({.rows = 1, .max_length = 4}), one->input_bytes(inputs));
    };
    const auto [row, input] = bytes_of("");
    const int64_t vectors = 4 * 2 * network->spec().decoder.num_layers * layer.kv_heads();
    const int64_t depth = row / vectors / 4;  // of a vector in float32, padding included
    for (const char* type : {"kv_int8_", "kv_fp8_"}) {
      const auto [narrow_row, narrow_input] = bytes_of(type);
      EXPECT_EQ(narrow_row, vectors * (depth + 4)) << type << kind;
      EXPECT_LT(narrow_input, input / 2) << type << kind;
    }
  }
}

TEST(EngineMemory, WhatCanNeverFitIsRefusedAtOnce) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  Engine engine(*network,
                {.memory_bytes = 12 * page_bytes(*network, 16), .max_rows = 4, .max_length = 100});
  for (auto [rows, tokens, why] : {std::tuple{4, 60, "the caches"},
                                   {5, 2, "the largest batch, 4"},
                                   {1, 101, "the longest sequence, 100"}}) {
    try {
      engine.submit(generation_job({3}, samples(rows, tokens), vocab));
      ADD_FAILURE() << rows << " rows of " << tokens;
    } catch (const Refused& refused) {
      EXPECT_EQ(refused.reason(), Refused::Reason::kTooLarge);
      EXPECT_NE(std::string(refused.what()).find(why), std::string::npos) << refused.what();
    }
  }
  EXPECT_THROW(engine.submit(generation_job({static_cast<int32_t>(vocab)}, samples(1, 2), vocab)),
               Error);
  EXPECT_THROW(engine.submit(generation_job({-1}, samples(1, 2), vocab)), Error);
}

TEST(EngineMemory, EqualInputsAreEncodedOnce) {
  for (const char* kind : {"encdec", "decoder_only"}) {
    SCOPED_TRACE(kind);
    const auto network = tiny_network(kind);
    const int64_t vocab = network->spec().vocab_size;
    Engine engine(*network, {});
    std::vector<Ended> ended(8);
    for (Ended& one : ended) {
      Job job = generation_job({0, 4, 5, 6}, samples(2, 6), vocab);
      watch(job, one);
      engine.submit(std::move(job));
    }
    Job other = generation_job({0, 4, 5}, samples(2, 6), vocab);
    engine.submit(std::move(other));
    engine.close();
    engine.run();
    EXPECT_EQ(engine.state().shared_inputs, 7);
    EXPECT_EQ(engine.state().encoder_tokens, 4 + 3);
    for (const Ended& one : ended) {
      EXPECT_EQ(one.error, nullptr);
      EXPECT_EQ(one.results[1].ids(), ended[0].results[1].ids());
    }
  }
}

TEST(EngineMemory, CancellingFreesItBeforeTheNextStep) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  std::atomic<Engine*> engine = nullptr;
  std::atomic<uint64_t> victim = 0;
  std::atomic<int> steps_after = -1, steps = 0;
  std::atomic<int64_t> reserved_when_done = -1;
  RunningEngine running(*network, {.before_step = [&] {
    if (++steps == 5) {
      engine.load()->cancel(victim);
      steps_after = 0;
    } else if (steps_after >= 0 && reserved_when_done < 0) {
      ++steps_after;
    }
  }});
  engine = &running.engine;
  Job job = generation_job({3, 4}, samples(3, 90), vocab);
  Ended ended;
  job.done = [&](const Outcome& outcome) {
    reserved_when_done = running.engine.state().memory_reserved;
    ended.error = outcome.error;
    ended.results = outcome.search->results();
  };
  // Waits in the queue until the victim's number is known.
  std::atomic<bool> known = false;
  job.on_step = [&](const decoding::RequestDecoder&) {
    while (!known) std::this_thread::yield();
  };
  victim = running.engine.submit(std::move(job));
  known = true;
  running.wait();
  EXPECT_EQ(reserved_when_done, 0);
  EXPECT_EQ(steps_after, 0);
  EXPECT_EQ(reason_of(ended.error), Refused::Reason::kCancelled);
  EXPECT_LT(ended.results.front().tokens.size(), 10u);
}

TEST(DeviceMemory, WhatTheDeviceHasNotIsReportedBeforeAnyJob) {
  if (on_cpu()) GTEST_SKIP() << "the CPU takes pages one by one";
  const auto network = tiny_network("encdec");
  const auto code_of = [&](int64_t bytes) {
    try {
      served(*network, {.memory_bytes = bytes});
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kDone;
  };
  EXPECT_EQ(code_of(page_bytes(*network, 16)), ExitCode::kDone);
  EXPECT_EQ(code_of(page_bytes(*network, 16) - 1), ExitCode::kUsage);
  EXPECT_EQ(code_of(int64_t{1} << 45), ExitCode::kEnvironment);
}

}  // namespace
}  // namespace quintet::testing
