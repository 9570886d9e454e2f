// Which thread does what, and what becomes of tasks at the end or when one fails.

#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>

namespace quintet {
namespace {

TEST(ThreadPool, OneThreadDoesTasksInOrder) {
  std::vector<int> done;
  {
    ThreadPool pool("to test", 1);
    ThreadPool::Tasks two;
    for (int i = 0; i < 2; ++i) two.push_back([&done, i] { done.push_back(i); });
    pool.post(std::move(two));
    for (int i = 2; i < 100; ++i) pool.post([&done, i] { done.push_back(i); });
  }
  ASSERT_EQ(done.size(), 100u);  // at the end all are done
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
}

TEST(ThreadPool, AnswersAndErrorsComeInFutures) {
  ThreadPool pool("to test", 3);
  EXPECT_EQ(pool.size(), 3);
  auto answer = pool.submit([] { return 42; });
  auto error = pool.submit([]() -> int { throw std::runtime_error("no answer"); });
  EXPECT_EQ(answer.get(), 42);
  EXPECT_THROW(error.get(), std::runtime_error);
}

TEST(ThreadPool, SeveralThreadsWorkAtTheSameTime) {
  ThreadPool pool("to test", 2);
  std::promise<void> first, second;
  auto a = pool.submit([&] { first.set_value(), second.get_future().wait(); });
  auto b = pool.submit([&] { second.set_value(), first.get_future().wait(); });
  a.wait(), b.wait();  // each waits for the other
}

TEST(ThreadPool, WhatHasNotBegunCanBeDroppedAtTheEnd) {
  std::promise<void> begun, go;
  std::atomic<int> done{0};
  std::future<void> running, dropped;
  std::thread releases;
  {
    ThreadPool pool("to test", 1, {.at_end = ThreadPool::AtEnd::drop});
    running = pool.submit([&, wait = go.get_future().share()] {
      begun.set_value();
      wait.wait();
      ++done;
    });
    dropped = pool.submit([&] { ++done; });
    begun.get_future().wait();
    releases = std::thread([&] {
      EXPECT_THROW(dropped.get(), std::future_error);  // the pool is ending
      go.set_value();
    });
  }
  releases.join();
  EXPECT_EQ(done, 1);
}

TEST(ThreadPool, ThrownByPostedTasksIsReported) {
  std::vector<std::string> errors;
  {
    ThreadPool pool("to test", 1,
                    {.failed = [&](const std::exception& e) { errors.emplace_back(e.what()); }});
    pool.post([] { throw std::runtime_error("one"); });
    pool.post([] {});
    pool.post([] { throw std::runtime_error("two"); });
  }
  EXPECT_EQ(errors, (std::vector<std::string>{"one", "two"}));
}

TEST(ThreadPool, ForEachDoesAllOnceAlsoWithoutThreads) {
  for (int threads : {0, 3}) {
    ThreadPool pool("to test", threads);
    std::vector<std::atomic<int>> done(1000);
    pool.for_each(1000, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
    pool.for_each(0, [](int64_t) { FAIL(); });
  }
}

TEST(ThreadPool, ForEachThrowsTheFirstErrorAndBeginsNothingMore) {
  for (int threads : {0, 2}) {
    ThreadPool pool("to test", threads);
    std::atomic<int64_t> begun{0};
    try {
      pool.for_each(1'000'000, [&](int64_t i) {
        ++begun;
        if (i == 10) throw std::runtime_error("number 10");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "number 10");
    }
    if (threads == 0) {
      EXPECT_EQ(begun, 11);
    }
    pool.for_each(3, [&](int64_t) { begun = -1; });  // the pool goes on
    EXPECT_EQ(begun, -1);
  }
}

}  // namespace
}  // namespace quintet
