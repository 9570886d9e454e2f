// Which job comes next, and what happens to jobs that come too late or fail.

#include <set>

#include "tests/harness/wait_for.h"
#include "tests/serving/serving_fixture.h"

namespace quintet::testing {
namespace {

using serving::Refused;
using std::chrono::milliseconds;
using std::chrono::seconds;

DecodingRequest greedy(int64_t tokens) {
  return {.rules = {.eos_ids = {}, .max_new_tokens = tokens}};
}

std::string what(const std::exception_ptr& error) {
  if (error == nullptr) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// Jobs of a batch of one, which are done one after the other: in which order?
class Order {
 public:
  explicit Order(const TinyNetwork& network)
      : vocab_(network.spec().vocab_size), engine(network, {.max_rows = 1}) {}
  void submit(const std::string& name, int priority, const std::string& client,
              std::optional<Clock::time_point> deadline = {}, int64_t tokens = 3) {
    Job job = generation_job({5}, greedy(tokens), vocab_);
    job.priority = priority;
    job.client = client;
    job.deadline = deadline;
    job.done = [this, name](const Outcome& outcome) {
      order += name + (outcome.error == nullptr ? " " : "! ");
    };
    engine.submit(std::move(job));
  }
  std::string run() {
    engine.close();
    engine.run();
    return order;
  }

 private:
  const int64_t vocab_;

 public:
  Engine engine;
  std::string order;
};

TEST(EngineFairQueue, PrioritiesThenDeadlinesThenArrival) {
  const auto network = tiny_network("encdec");
  Order order(*network);
  order.submit("a", 0, "x");
  order.submit("b", 0, "x", Clock::now() + seconds(50));
  order.submit("c", 0, "x", Clock::now() + seconds(40));
  order.submit("d", 2, "x");
  order.submit("e", 1, "x");
  EXPECT_EQ(order.run(), "d e c b a ");
}

TEST(EngineFairQueue, AClientWithOneJobDoesNotWaitForTheMany) {
  const auto network = tiny_network("encdec");
  Order order(*network);
  for (const char* name : {"a", "b", "c", "d"}) order.submit(name, 0, "many");
  order.submit("one", 0, "single");
  EXPECT_EQ(order.run(), "a one b c d ");
}

TEST(EngineFairQueue, WaitingRaisesAJobsPriority) {
  serving::FairQueue list;
  const auto now = Clock::now();
  const auto add = [&](uint64_t id, int priority, Clock::time_point since) {
    list.add({.id = id, .job = {.priority = priority}, .since = since});
  };
  add(1, 0, now - seconds(31));
  add(2, 3, now);
  add(3, 2, now);
  EXPECT_EQ(list.take_next(now).id, 1u);
  EXPECT_EQ(list.take_next(now).id, 2u);
}

TEST(EngineFairQueue, WhatIsLateIsRefusedWaitingOrRunning) {
  const auto network = tiny_network("encdec");
  Order order(*network);
  order.submit("late", 5, "x", Clock::now() - milliseconds(1));
  order.submit("runs", 1, "x", Clock::now() + milliseconds(100), 4000);
  order.submit("good", 0, "x");
  EXPECT_EQ(order.run(), "late! runs! good ");
  EXPECT_EQ(order.engine.state().encoder_tokens, 2);  // what was late was not begun
}

TEST(EngineFairQueue, AFullQueueAndAClosedEngineRefuse) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  Engine engine(*network, {.max_waiting = 2});
  const auto submit = [&] { engine.submit(generation_job({5}, greedy(2), vocab)); };
  submit();
  submit();
  const auto refused = [&](Refused::Reason reason) {
    try {
      submit();
    } catch (const Refused& error) {
      return error.reason() == reason;
    }
    return false;
  };
  EXPECT_TRUE(refused(Refused::Reason::kQueueFull));
  engine.close();
  EXPECT_TRUE(refused(Refused::Reason::kClosed));
  engine.run();
  EXPECT_EQ(engine.state().waiting, 0);
}

// docs/reference/faults.md S6.
TEST(EngineFaults, AJobThatThrowsEndsAlone) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  Engine engine(*network, {});
  std::vector<Ended> ended(6);
  for (size_t i = 0; i < ended.size(); ++i) {
    Job job = generation_job({5}, greedy(8), vocab);
    watch(job, ended[i]);
    if (i == 2)
      job.on_step = [n = 0](const decoding::RequestDecoder&) mutable {
        if (++n == 3) throw std::runtime_error("injected");
      };
    engine.submit(std::move(job));
  }
  engine.close();
  engine.run();
  for (size_t i = 0; i < ended.size(); ++i) {
    EXPECT_EQ(what(ended[i].error), i == 2 ? "injected" : "");
    EXPECT_EQ(ended[i].results.front().tokens.size(), i == 2 ? 3u : 8u);
  }
  EXPECT_EQ(engine.state().memory_reserved, 0);
}

TEST(EngineFaults, AFailedStepEndsItsJobsAndLaterOnesAreAnswered) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  int passes = 0;
  Engine engine(*network, {.max_rows = 2, .before_step = [&] {
                             if (++passes == 4) throw std::runtime_error("injected");
                           }});
  std::vector<Ended> ended(4);
  for (Ended& one : ended) {
    Job job = generation_job({5}, greedy(8), vocab);
    watch(job, one);
    engine.submit(std::move(job));
  }
  engine.close();
  engine.run();
  for (size_t i = 0; i < ended.size(); ++i)
    EXPECT_EQ(what(ended[i].error), i < 2 ? "injected" : "");
  EXPECT_FALSE(engine.broken());
}

/// A network whose caches of rows cannot be made, the first time; instead, steps that end without
/// memory, if some are named.
class NoRoomAtFirst final : public serving::ServedNetwork {
 public:
  explicit NoRoomAtFirst(std::unique_ptr<ServedNetwork> network, std::set<int> steps = {})
      : network_(std::move(network)), short_steps_(std::move(steps)) {}
  int64_t vocab_size() const override { return network_->vocab_size(); }
  bool decoder_only() const override { return network_->decoder_only(); }
  int64_t input_bytes(const serving::Tokens& inputs) const override {
    return network_->input_bytes(inputs);
  }
  int64_t row_bytes(const serving::RowLimits& limits) const override {
    return network_->row_bytes(limits);
  }
  std::vector<std::unique_ptr<serving::InputCache>> read(
      std::span<const serving::Tokens* const> inputs) override {
    return network_->read(inputs);
  }
  std::vector<std::vector<float>> encode(std::span<const serving::Tokens* const> inputs) override {
    return network_->encode(inputs);
  }
  std::unique_ptr<serving::RowCaches> rows(const serving::InputCache& input,
                                           const serving::RowLimits& limits) override {
    if (calls_++ == 0 && short_steps_.empty()) throw std::bad_alloc();
    return network_->rows(input, limits);
  }
  std::vector<serving::JobAnswer> step(std::span<const serving::StepJob> jobs) override {
    auto answers = network_->step(jobs);
    if (short_steps_.contains(steps_++)) throw std::bad_alloc();
    return answers;
  }

 private:
  const std::unique_ptr<ServedNetwork> network_;
  const std::set<int> short_steps_;
  int calls_ = 0, steps_ = 0;
};

TEST(EngineFaults, RowsThatCannotBeMadeAreAnErrorOfTheirJob) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  const EngineOptions options{.max_rows = 1};
  serving::Engine engine(std::make_unique<NoRoomAtFirst>(served(*network, options)), options);
  std::vector<Ended> ended(2);
  for (Ended& one : ended) {
    Job job = generation_job({5}, greedy(8), vocab);
    watch(job, one);
    engine.submit(std::move(job));
  }
  engine.close();
  engine.run();
  EXPECT_EQ(what(ended[0].error), std::bad_alloc().what());
  EXPECT_EQ(what(ended[1].error), "");
  EXPECT_EQ(engine.state().memory_reserved, 0);
}

TEST(EngineFaults, WithoutMemoryTheLargestJobEndsAndTheOthersAreAnsweredAsEver) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  DecodingRequest beams = greedy(10);
  beams.num_beams = beams.num_return_sequences = 3;
  const std::vector<std::pair<DecodingRequest, int64_t>> asked{{greedy(10), 1 << 20},
                                                               {beams, 0},
                                                               {greedy(10), 4 << 20},
                                                               {greedy(10), 2 << 20},
                                                               {greedy(10), 3 << 20}};
  const auto answered = [&](std::set<int> short_steps) {
    std::vector<Ended> ended(asked.size());
    serving::Engine engine(
        std::make_unique<NoRoomAtFirst>(served(*network, EngineOptions{}), std::move(short_steps)),
        EngineOptions{});
    for (size_t i = 0; i < asked.size(); ++i) {
      Job job = generation_job({5}, asked[i].first, vocab);
      job.answer_bytes = asked[i].second;
      watch(job, ended[i]);
      engine.submit(std::move(job));
    }
    engine.close();
    engine.run();
    EXPECT_FALSE(engine.broken());
    EXPECT_EQ(engine.state().memory_reserved, 0);
    return ended;
  };
  const auto whole = answered({-1}), cut = answered({2, 3, 4, 7});
  for (size_t i : {0, 2, 3, 4}) EXPECT_EQ(what(cut[i].error), std::bad_alloc().what()) << i;
  EXPECT_GT(cut[0].results.front().tokens.size(),
            cut[3].results.front().tokens.size());  // the least goes last
  EXPECT_EQ(cut[2].results.front().tokens.size(), 2u);
  ASSERT_EQ(what(cut[1].error), "");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(cut[1].results[i].ids(), whole[1].results[i].ids());
}

TEST(EngineFaults, WhatTheEndOfAJobThrowsIsItsError) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  Engine engine(*network, {});
  std::vector<Ended> ended(3);
  for (size_t i = 0; i < ended.size(); ++i) {
    Job job = generation_job({5}, greedy(8), vocab);
    watch(job, ended[i]);
    if (i == 1)
      job.done = [&, kept = job.done](const Outcome& outcome) {
        if (outcome.search != nullptr) throw std::runtime_error("no room for it");
        kept(outcome);
      };
    engine.submit(std::move(job));
  }
  engine.close();
  engine.run();
  for (size_t i = 0; i < ended.size(); ++i) {
    EXPECT_TRUE(ended[i].over);
    EXPECT_EQ(what(ended[i].error), i == 1 ? "no room for it" : "");
  }
}

TEST(EngineFaults, ADeviceThatKeepsFailingEndsTheEngineAndEveryJob) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  Engine engine(*network, {.max_rows = 1, .before_step = [] { throw std::runtime_error("lost"); }});
  std::vector<Ended> ended(9);
  for (Ended& one : ended) {
    Job job = generation_job({5}, greedy(8), vocab);
    watch(job, one);
    engine.submit(std::move(job));
  }
  engine.run();  // not closed: it returns by itself
  EXPECT_TRUE(engine.broken());
  for (const Ended& one : ended) EXPECT_NE(one.error, nullptr);
  EXPECT_THROW(engine.submit(generation_job({5}, greedy(8), vocab)), Refused);
}

TEST(EngineFaults, ABrokenEngineEndsTheOthersOfItsThreadToo) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  const auto signal = std::make_shared<serving::WorkSignal>();
  Engine sound(*network, {.signal = signal});
  Engine lost(*network, {.max_rows = 1, .signal = signal, .before_step = [] {
                           throw std::runtime_error("lost");
                         }});
  std::vector<Ended> ended(3);
  serving::Engine* const both[] = {&sound, &lost};
  for (Ended& one : ended) {
    Job job = generation_job({5}, greedy(8), vocab);
    watch(job, one);
    lost.submit(std::move(job));
  }
  serving::run_engines(both);  // the sound one has no work and was not closed
  EXPECT_TRUE(lost.broken());
  EXPECT_FALSE(sound.broken());
  EXPECT_THROW(sound.submit(generation_job({5}, greedy(8), vocab)), Refused);
}

TEST(EngineFaults, AbortingEndsAllJobsWithAnAnswer) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  std::vector<Ended> ended(20);
  {
    RunningEngine running(*network, {.max_rows = 4});
    for (Ended& one : ended) {
      Job job = generation_job({5}, greedy(3000), vocab);
      watch(job, one);
      running.engine.submit(std::move(job));
    }
    EXPECT_TRUE(wait_for([&] { return running.engine.state().steps > 0; }));
    running.engine.abort();
  }
  for (const Ended& one : ended) EXPECT_TRUE(one.over && one.error != nullptr);
}

}  // namespace
}  // namespace quintet::testing
