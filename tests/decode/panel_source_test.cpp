// Panels of a product among threads: each is made once, by its own thread or by one that waits for it.

#include "kernels/prepacked_matmul/panel_source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

namespace quintet {
namespace {

/// Panels as a source gives them.
std::vector<int64_t> all_of(PanelSource& source, int64_t count) {
  std::vector<int64_t> panels;
  for (PanelRange taken = source.take(count); taken.count() > 0; taken = source.take(count))
    for (int64_t panel = taken.begin; panel < taken.end; ++panel) panels.push_back(panel);
  return panels;
}

TEST(PanelSource, GivesARangeInOrder) {
  PanelSource source(PanelRange{3, 8});
  EXPECT_EQ(source.left(), 5);
  EXPECT_EQ(source.take(2).end, 5);
  EXPECT_EQ(source.left(), 3);
  EXPECT_EQ(all_of(source, 2), (std::vector<int64_t>{5, 6, 7}));
  EXPECT_EQ(source.left(), 0);
}

TEST(PanelSource, TakesTheLastOfAThreadThatIsBehindButNotItsFirst) {
  SharedPanels shared(2);
  PanelSource late(shared, 0, {0, 6}), early(shared, 1, {6, 8});
  EXPECT_EQ(early.take(1).begin, 6);
  EXPECT_EQ(early.take(1).begin, 7);
  EXPECT_EQ(early.take(1).count(), 0) << "the other has not begun";
  EXPECT_EQ(late.take(1).begin, 0);
  EXPECT_EQ(early.take(1).begin, 5);
  EXPECT_EQ(early.take(2).begin, 3);
  EXPECT_EQ(late.left(), 2);
  EXPECT_EQ(all_of(late, 1), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(early.take(1).count(), 0);
}

TEST(PanelSource, UnitsStayTogether) {
  SharedPanels shared(2);
  PanelSource late(shared, 0, {0, 8}, 2), early(shared, 1, {8, 8}, 2);
  EXPECT_EQ(late.take(1).end, 1);
  for (const int64_t panel : {6, 7, 4, 5}) EXPECT_EQ(early.take(1).begin, panel);
  EXPECT_EQ(late.left(), 3);
  EXPECT_EQ(all_of(late, 1), (std::vector<int64_t>{1, 2, 3}));
}

TEST(PanelSource, ThreadsTakeEachPanelOnceProductAfterProduct) {
  constexpr int64_t kThreads = 3, kProducts = 300, kPanels = 64;
  SharedPanels shared(kThreads);
  std::vector<std::atomic<int>> taken(kProducts * kPanels);
  std::barrier all(kThreads);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int64_t product = 0; product < kProducts; ++product, all.arrive_and_wait()) {
        PanelSource source(shared, t, {kPanels * t / kThreads, kPanels * (t + 1) / kThreads});
        for (const int64_t panel : all_of(source, 1 + product % 2))
          ++taken[static_cast<size_t>(product * kPanels + panel)];
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& times : taken) ASSERT_EQ(times, 1);
}

}  // namespace
}  // namespace quintet
