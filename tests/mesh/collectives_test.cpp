// Collectives over threads against plain loops; what happens when a rank fails, is late, or does
// something else than the others.

#include "runtime/mesh/collectives.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "runtime/base/check.h"
#include "runtime/mesh/collectives_threads.h"
#include "runtime/mesh/mesh.h"

namespace quintet {
namespace {

std::vector<float> numbers(int rank, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<float>(i) * 0.7f + static_cast<float>(rank)) *
           std::pow(10.0f, static_cast<float>(rank % 3));
  return x;
}

/// The sum from the left over `members`, as the contract says.
std::vector<float> sum_of(const std::vector<int>& members, int64_t count) {
  std::vector<float> total = numbers(members[0], count);
  for (size_t m = 1; m < members.size(); ++m) {
    const auto x = numbers(members[m], count);
    for (size_t i = 0; i < x.size(); ++i) total[i] += x[i];
  }
  return total;
}

std::vector<int> all(int n) {
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class Sizes : public ::testing::TestWithParam<std::tuple<int, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(, Sizes,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::Values(1, 7, 1000, 5'000'003 / 2)));

TEST_P(Sizes, AllReduceAddsFromTheLeftOnEveryRank) {
  const auto [n, count] = GetParam();
  if (n > 4 && count > 1000) return;
  const auto want = sum_of(all(n), count);
  run_ranks(n, [&, count = count](Comm& comm) {
    auto x = numbers(comm.rank(), count);
    comm.world().all_reduce(x.data(), count, DType::f32).wait();
    EXPECT_EQ(std::memcmp(x.data(), want.data(), x.size() * sizeof(float)), 0) << comm.rank();
    auto largest = numbers(comm.rank(), count);
    comm.world().all_reduce(largest.data(), count, DType::f32, Reduction::max).wait();
    for (size_t i = 0; i < largest.size(); i += 97) {
      float most = numbers(0, 1)[0];
      for (int r = 0; r < comm.size(); ++r) {
        const float y = std::sin(static_cast<float>(i) * 0.7f + static_cast<float>(r)) *
                        std::pow(10.0f, static_cast<float>(r % 3));
        most = r == 0 ? y : std::max(most, y);
      }
      ASSERT_EQ(largest[i], most);
    }
  });
}

TEST_P(Sizes, GatherScatterAndAllToAllMoveBlocks) {
  const auto [n, count] = GetParam();
  if (n * count > 4'000'000) return;
  run_ranks(n, [count = count](Comm& comm) {
    const Group world = comm.world();
    const int self = comm.rank(), ranks = comm.size();
    const auto blocks = static_cast<size_t>(ranks * count);
    std::vector<float> gathered(blocks), scattered(static_cast<size_t>(count));
    const auto own = numbers(self, count);
    Pending gather = world.all_gather(own.data(), gathered.data(), count, DType::f32);
    const auto everything = numbers(self, ranks * count);
    Pending scatter = world.reduce_scatter(everything.data(), scattered.data(), count, DType::f32);
    std::vector<float> swapped(blocks);
    Pending swap = world.all_to_all(everything.data(), swapped.data(), count, DType::f32);
    swap.wait();
    scatter.wait();
    gather.wait();
    const auto total = sum_of(all(ranks), ranks * count);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(scattered[static_cast<size_t>(i)], total[static_cast<size_t>(self * count + i)]);
    for (int r = 0; r < ranks; ++r) {
      const auto theirs = numbers(r, ranks * count);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(gathered[static_cast<size_t>(r * count + i)], theirs[static_cast<size_t>(i)]);
        ASSERT_EQ(swapped[static_cast<size_t>(r * count + i)],
                  theirs[static_cast<size_t>(self * count + i)]);
      }
    }
  });
}

// Member r has two slices for member s, of (r + 2 s) % 3 and of s elements, in this order; they arrive
// the last sender's first.
TEST(Collectives, AnUnevenExchangeMovesSlicesInOrder) {
  run_ranks(4, [](Comm& comm) {
    const int self = comm.rank(), ranks = comm.size();
    const auto lengths = [](int from, int to) {
      return std::array<int64_t, 2>{(from + 2 * to) % 3, to};
    };
    Slices sends, receives;
    int64_t sent = 0, received = 0;
    for (const size_t part : {0u, 1u})
      for (int to = 0; to < ranks; ++to) {
        sends.push_back({to, sent, lengths(self, to)[part]});
        sent += sends.back().count;
      }
    for (int from = ranks - 1; from >= 0; --from)
      for (const size_t part : {0u, 1u}) {
        receives.push_back({from, received, lengths(from, self)[part]});
        received += receives.back().count;
      }
    std::vector<int32_t> have(static_cast<size_t>(sent)), got(static_cast<size_t>(received)), want;
    for (const Slice& slice : sends)
      for (int64_t i = 0; i < slice.count; ++i)
        have[static_cast<size_t>(slice.first + i)] = static_cast<int32_t>(1000 * self + 100 * slice.member + i);
    for (const Slice& slice : receives)
      for (int64_t i = 0; i < slice.count; ++i)
        want.push_back(static_cast<int32_t>(1000 * slice.member + 100 * self + i));
    comm.world().exchange(have.data(), sends, got.data(), receives, 100, DType::i32).wait();
    EXPECT_EQ(got, want);
    const Traffic::Entry counted = comm.traffic().table().at({"all_to_all", "world"});
    EXPECT_EQ(counted, (Traffic::Entry{1, 100 * 4 * 3 / 4}));
  });
}

TEST_P(Sizes, BroadcastFromEveryRoot) {
  const auto [n, count] = GetParam();
  run_ranks(n, [count = std::min<int64_t>(count, 1000)](Comm& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      auto x = numbers(comm.rank(), count);
      comm.world().broadcast(x.data(), count, DType::f32, root).wait();
      ASSERT_EQ(x, numbers(root, count));
    }
  });
}

TEST(Collectives, SumsOfBfloat16AreTakenInFloat) {
  run_ranks(4, [](Comm& comm) {
    std::vector<bfloat16> x(100, bfloat16(comm.rank() == 0 ? 256.0f : 0.75f));
    comm.world().all_reduce(x.data(), 100, DType::bf16).wait();
    for (const bfloat16 y : x) ASSERT_EQ(static_cast<float>(y), 258.0f);  // each 0.75 alone is lost
  });
}

TEST(Collectives, ANaNOfOneRankIsTheMaximum) {
  run_ranks(3, [](Comm& comm) {
    float x = comm.rank() == 1 ? std::nanf("") : 5.0f;
    comm.world().all_reduce(&x, 1, DType::f32, Reduction::max).wait();
    EXPECT_TRUE(std::isnan(x));
  });
}

TEST(Collectives, SendReceiveTextAndBarrier) {
  run_ranks(3, [](Comm& comm) {
    const Group world = comm.world();
    int64_t x = comm.rank();
    if (comm.rank() == 2) world.send(&x, 1, DType::i64, 0).wait();
    if (comm.rank() == 0) {
      world.receive(&x, 1, DType::i64, 2).wait();
      EXPECT_EQ(x, 2);
    }
    world.barrier();
    const auto texts = gather_text(world, std::string(static_cast<size_t>(comm.rank()), 'x'));
    EXPECT_EQ(texts, (std::vector<std::string>{"", "x", "xx"}));
  });
}

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
    // Block i of a dimension cut by {expert, data}: expert outermost.
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
