// Collectives over threads against plain loops; what happens when a rank fails, is late, or does
// something else than the others.

#include "runtime/mesh/collectives/collectives.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <functional>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/execution_context.h"
#include "runtime/mesh/collectives/collectives_host.h"
#include "runtime/mesh/collectives/collectives_mpi.h"
#include "runtime/mesh/collectives/collectives_threads.h"
#include "runtime/mesh/mesh.h"
#include "tests/harness/device.h"
#include "tests/mesh/collective_cases.h"

namespace quintet {
namespace {

using namespace testing;

TEST(Gpus, OfTwoRanksAreNotOneUnlessMeant) {
  EXPECT_TRUE(each_has_its_gpu({"3b of a", "af of a", "3b of b", ""}, false));
  EXPECT_FALSE(each_has_its_gpu({"3b of a", "", ""}, false));  // nobody to talk to
  EXPECT_FALSE(each_has_its_gpu({"", ""}, false));
  const std::vector<std::string> bound_badly{"3b of a", "3b of b", "", "3b of a"};
  EXPECT_FALSE(each_has_its_gpu(bound_badly, true));
  try {
    each_has_its_gpu(bound_badly, false);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    const std::string what = error.what();
    EXPECT_NE(what.find("ranks 0 and 3 have the same GPU, 3b of a;"), std::string::npos) << what;
    EXPECT_NE(what.find("--share_gpus"), std::string::npos) << what;
  }
}

class Sizes : public ::testing::TestWithParam<std::tuple<int, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(, Sizes,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8, 9, 13, 16),
                                            ::testing::Values(1, 7, 1000, 5'000'003 / 2)));

TEST_P(Sizes, AllReduceAddsFromTheLeftOnEveryRank) {
  const auto [n, count] = GetParam();
  if (n > 4 && count > 1000) return;
  run_ranks(n, [count = count](Comm& comm) { all_reduce_case(comm, count, Sums::from_the_left); });
}

TEST_P(Sizes, GatherScatterAndAllToAllMoveBlocks) {
  const auto [n, count] = GetParam();
  if (n * count > 4'000'000) return;
  run_ranks(n, [count = count](Comm& comm) { blocks_case(comm, count, Sums::from_the_left); });
}

TEST(Collectives, AnUnevenExchangeMovesSlicesInOrder) {
  run_ranks(4, [](Comm& comm) {
    exchange_case(comm);
    const Traffic::Entry counted = comm.traffic().table().at({"all_to_all", "world"});
    EXPECT_EQ(counted, (Traffic::Entry{1, 100 * 4 * 3 / 4}));
  });
}

TEST_P(Sizes, BroadcastFromEveryRoot) {
  const auto [n, count] = GetParam();
  run_ranks(n,
            [count = std::min<int64_t>(count, 1000)](Comm& comm) { broadcast_case(comm, count); });
}

TEST(Collectives, TakeSeveralArrays) {
  for (const int n : {2, 3})
    run_ranks(n, [](Comm& comm) { several_case(comm, Sums::from_the_left); });
}

TEST(Collectives, KeepTheMemoryOfMessagesForTheNext) {
  run_ranks(2, [](Comm& comm) {
    const int64_t count = 1 << 20;
    const std::vector<float> in(static_cast<size_t>(2 * count), 1.0f);
    std::vector<float> sum(static_cast<size_t>(count)), both = in;
    const auto pages_of_a_call = [&] {
      rusage before{}, after{};
      comm.world().barrier();
      ::getrusage(RUSAGE_SELF, &before);
      comm.world().reduce_scatter(in.data(), sum.data(), count, DType::f32).wait();
      comm.world().all_reduce(both.data(), 2 * count, DType::f32).wait();
      comm.world().barrier();
      ::getrusage(RUSAGE_SELF, &after);
      return after.ru_minflt - before.ru_minflt;
    };
    pages_of_a_call();
    EXPECT_LT(pages_of_a_call(), 256);  // 4 MB are 1,024
    EXPECT_EQ(sum.back(), 2.0f);
  });
}

TEST(Collectives, SumsOfBfloat16AreTakenInFloat) { run_ranks(4, bfloat16_case); }

// What goes through the host lies in blocks that the next collective must not have meanwhile.
TEST(Collectives, ADevicesArraysWaitUntilTheyAreSent) {
  constexpr int kCalls = 6;
  constexpr int64_t kCount = 300;
  Device& device = Device::current();
  run_ranks({.count = 2, .device = &device}, [&](Comm& comm) {
    // delay: the other rank has begun all of its calls
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<Buffer> in, out;
    std::vector<Pending> pending;
    for (int i = 0; i < kCalls; ++i) {
      const std::vector<float> values(2 * kCount, static_cast<float>(10 * i + comm.rank()));
      in.push_back(device.memory().allocate(2 * kCount * 4));
      out.push_back(device.memory().allocate(kCount * 4));
      device.copy_in(in.back().get(), values.data(), 2 * kCount * 4);
      pending.push_back(
          comm.world().reduce_scatter(in.back().get(), out.back().get(), kCount, DType::f32));
    }
    for (int i = 0; i < kCalls; ++i) {
      pending[static_cast<size_t>(i)].wait();
      std::vector<float> sums(kCount);
      device.copy_out(sums.data(), out[static_cast<size_t>(i)].get(), kCount * 4);
      EXPECT_EQ(sums, std::vector<float>(kCount, static_cast<float>(20 * i + 1))) << "call " << i;
    }
  });
}

TEST(Collectives, AWaitForAnotherIsCountedOnce) {
  Pending inner([] {
    const auto begin = Clock::now();
    while (seconds_since(begin) < 0.02) {
    }
  });
  Pending outer([&] { inner.wait(); });
  double waited = 0;
  const ContextMember<&ExecutionContext::waited> use(waited);
  const auto start = Clock::now();
  outer.wait();
  EXPECT_GE(waited, 0.02);
  EXPECT_LE(waited, seconds_since(start));
}

TEST(Collectives, GroupsOfAMesh) { run_ranks(4, groups_case); }

TEST(Collectives, ANaNOfOneRankIsTheMaximum) {
  run_ranks(3, [](Comm& comm) {
    float x = comm.rank() == 1 ? std::nanf("") : 5.0f;
    comm.world().all_reduce(&x, 1, DType::f32, Reduction::max).wait();
    EXPECT_TRUE(std::isnan(x));
  });
}

TEST(Collectives, SendReceiveTextAndBarrier) { run_ranks(3, messages_case); }

TEST(Collectives, TrafficIsCountedByCollectiveAndGroup) {
  run_ranks(4, [](Comm& comm) {
    const Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
    std::vector<float> x(100), y(400);
    mesh.group({"model"}).all_reduce(x.data(), 100, DType::f32).wait();
    mesh.group({"data", "model"}).all_gather(x.data(), y.data(), 100, DType::f32).wait();
    mesh.group({"expert"}).all_reduce(x.data(), 100, DType::f32).wait();  // of one: nothing
    const Traffic::Table want = {{{"all_reduce", "model"}, {1, 400}},
                                 {{"all_gather", "data,model"}, {1, 1200}}};
    EXPECT_EQ(comm.traffic().table(), want);
  });
}

/// How often a rank of n sends for a gather: to all others where they are few, else in rounds of
/// twice as many blocks each. In a round whose blocks wrap round the end there are two messages.
int64_t gather_messages(int64_t n, int64_t rank) {
  if (n <= 8) return n - 1;
  int64_t messages = 0;
  for (int64_t distance = 1; distance < n; distance *= 2)
    messages += rank + std::min(distance, n - distance) > n ? 2 : 1;
  return messages;
}

/// A carrier on which this rank alone exists: counts what it would send.
class CountingTransport final : public Transport {
 public:
  CountingTransport(int rank, int ranks, int64_t& bytes)
      : rank_(rank), hosts_(static_cast<size_t>(ranks), "host"), bytes_(bytes) {}
  int rank() const override { return rank_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  void exchange(std::span<const Message> sends, std::span<const Message>,
                const Activity&) override {
    for (const Message& message : sends) bytes_ += message.bytes;
  }
  std::unique_ptr<Transport> channel() override { return nullptr; }

 private:
  int rank_;
  std::vector<std::string> hosts_;
  int64_t& bytes_;
};

/// Messages that a call sends.
int64_t messages_of(Comm& comm, const std::function<void(const Group&)>& call) {
  const int64_t before = comm.traffic().messages();
  call(comm.world());
  return comm.traffic().messages() - before;
}

void expect_few_messages(Comm& comm) {
  SCOPED_TRACE(fmt::format("rank {} of {}", comm.rank(), comm.size()));
  const int64_t few = gather_messages(comm.size(), comm.rank());
  EXPECT_EQ(few, messages_of(comm, [](const Group& all) { all.barrier(); }));
  EXPECT_EQ(few, messages_of(comm, [](const Group& all) {
              int64_t number = all.rank();
              all.all_reduce(&number, 1, DType::i64, Reduction::max).wait();
            }));
  std::vector<float> whole(static_cast<size_t>(comm.size()) * 3);
  EXPECT_EQ(few, messages_of(comm, [&](const Group& all) {
              all.all_gather(&whole[static_cast<size_t>(3 * all.rank())], whole.data(), 3,
                             DType::f32)
                  .wait();
            }));
  EXPECT_LE(
      messages_of(comm,
                  [&](const Group& all) { all.broadcast(whole.data(), 3, DType::f32, 1).wait(); }),
      std::bit_width(static_cast<unsigned>(comm.size())));
}

TEST(Messages, OfWhatAllGatherAreAsManyAsRounds) {
  for (const int n : {2, 4, 8, 9, 16, 21}) run_ranks(n, expect_few_messages);
}

// What the ranks above send is counted by the same formula for ranks that nobody has here.
TEST(Messages, Of512And4096Ranks) {
  for (const int n : {512, 4096})
    for (const int rank : {0, n / 2 + 1, n - 1}) {
      int64_t bytes = 0;
      const auto comm =
          host_comm(std::make_unique<CountingTransport>(rank, n, bytes), Device::cpu());
      expect_few_messages(*comm);
      const int64_t rounds = std::bit_width(static_cast<unsigned>(n)) - 1;
      EXPECT_LE(gather_messages(n, rank), 2 * rounds);
      bytes = 0;
      comm->world().barrier();
      EXPECT_EQ(bytes, n - 1);
    }
}

TEST(Collectives, AnotherChannelHasAnOrderOfItsOwn) {
  run_ranks(2, [](Comm& comm) {
    const auto other = comm.channel();
    float x = 1, y = 2;
    if (comm.rank() == 0) {
      Pending first = comm.world().all_reduce(&x, 1, DType::f32);
      other->world().all_reduce(&y, 1, DType::f32).wait();
      first.wait();
    } else {
      Pending first = other->world().all_reduce(&y, 1, DType::f32);
      comm.world().all_reduce(&x, 1, DType::f32).wait();
      first.wait();
    }
    EXPECT_EQ(x, 2);
    EXPECT_EQ(y, 4);
  });
}

TEST(Collectives, ARankThatFailsEndsTheOthers) {
  try {
    run_ranks(4, [](Comm& comm) {
      if (comm.rank() == 2) fail(ExitCode::kData, "bad record");
      comm.world().barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_STREQ(error.what(), "bad record");
  }
}

TEST(Collectives, ALateRankIsNamed) {
  try {
    run_ranks({.count = 2, .hosts = {"here", "there"}, .timeout = std::chrono::milliseconds(100)},
              [](Comm& comm) {
                comm.set_step(7);
                if (comm.rank() == 0) comm.world().barrier();
                // Rank 1 never comes.
              });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kPeer);
    const std::string text = error.what();
    for (const char* part : {"rank 0 on here", "rank 1 on there", "barrier", "step 7"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Collectives, RanksInDifferentCollectivesAreRefused) {
  try {
    run_ranks(2, [](Comm& comm) {
      std::vector<float> x(8);
      if (comm.rank() == 0)
        comm.world().all_reduce(x.data(), 4, DType::f32).wait();
      else
        comm.world().all_gather(x.data(), x.data() + 4, 2, DType::f32).wait();
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part : {"out of order", "all_reduce", "all_gather"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Mesh, CoordinatesAndGroups) {
  run_ranks(8, [](Comm& comm) {
    const Mesh mesh({{"data", 2}, {"expert", 2}, {"model", 2}}, &comm);
    const int r = comm.rank();
    EXPECT_EQ(mesh.rank(), r);
    EXPECT_EQ(mesh.coordinate("data"), r / 4);
    EXPECT_EQ(mesh.coordinate("expert"), r / 2 % 2);
    EXPECT_EQ(mesh.coordinate("model"), r % 2);
    EXPECT_EQ(mesh.coordinate("elsewhere"), 0);
    // Block i of a dimension sharded by {expert, data}: expert outermost.
    EXPECT_EQ(mesh.group({"expert", "data"}).rank(),
              mesh.coordinate("expert") * 2 + mesh.coordinate("data"));
    const auto texts = gather_text(mesh.group({"expert", "data"}), std::to_string(r));
    const int m = r % 2;
    const std::vector<std::string> want = {std::to_string(m), std::to_string(m + 4),
                                           std::to_string(m + 2), std::to_string(m + 6)};
    EXPECT_EQ(texts, want);
    EXPECT_EQ(to_string(mesh), "data=2 x expert=2 x model=2");
  });
}

TEST(Mesh, ModelNeighboursShareAHost) {
  run_ranks({.count = 4, .hosts = {"a", "b", "a", "b"}}, [](Comm& comm) {
    const Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
    const auto hosts =
        gather_text(mesh.group({"model"}), comm.hosts()[static_cast<size_t>(comm.rank())]);
    EXPECT_EQ(hosts[0], hosts[1]);
  });
}

TEST(Mesh, TooFewRanksAreRefused) {
  EXPECT_THROW(Mesh({{"data", 2}}, nullptr), Error);
  EXPECT_THROW(run_ranks(2, [](Comm& comm) { Mesh({{"data", 4}}, &comm); }), Error);
  const Mesh alone({{"data", 1}, {"model", 1}}, nullptr);
  EXPECT_EQ(alone.group({"data", "model"}).size(), 1);
}

}  // namespace
}  // namespace quintet
