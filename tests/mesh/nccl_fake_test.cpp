// The NCCL backend against a fake of it made of threads (fake_nccl/): the order of streams and events, the
// making of communicators, every collective, and an error of NCCL's own. nccl_test.py has real GPUs.

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <future>
#include <limits>
#include <set>
#include <thread>

#include "runtime/mesh/collectives/nccl_memory.h"
#include "runtime/mesh/mesh.h"
#include "runtime/mesh/sharding.h"
#include "runtime/ops/ops.h"
#include "tests/mesh/collective_cases.h"
#include "tests/mesh/fake_nccl/fake_stream.h"
#include "tests/mesh/over_nccl.h"

namespace quintet {
namespace {

using namespace testing;

/// The CPU's memory behind a stream that is a thread, as a GPU's kernels are to the host.
class FakeGpu final : public Device {
 public:
  FakeGpu() { cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0); }
  ~FakeGpu() override { cudaStreamDestroy(stream_); }
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;
  void queue(std::function<void()> work) const { stream_->add(std::move(work)); }

  std::string kind() const override { return "fake"; }
  std::string description() const override { return "a stream that is a thread"; }
  std::span<const Kernel> ops() const override { return {}; }
  const GpuKernels& kernels() const override { return cpu().kernels(); }
  Memory& memory() override { return cpu().memory(); }
  Stream stream() const override { return {stream_}; }
  void copy_in(void* to, const void* host, int64_t bytes) override { copy(to, host, bytes); }
  void copy_out(void* host, const void* from, int64_t bytes) override {
    copy(host, from, bytes);
    synchronize();
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    queue([=] { cpu().copy(to, from, bytes); });
  }
  void copy(const StridedCopy& copy) override {
    queue([=] { cpu().copy(copy); });
  }
  void fill(void* to, int byte, int64_t bytes) override {
    queue([=] { cpu().fill(to, byte, bytes); });
  }
  void synchronize() override {
    std::promise<void> end;
    queue([&] { end.set_value(); });
    end.get_future().wait();
  }

 private:
  cudaStream_t stream_ = nullptr;
};

/// What a rank's device is.
std::function<Device&(int)> among(std::vector<FakeGpu>& gpus) {
  return [&](int rank) -> Device& { return gpus[static_cast<size_t>(rank)]; };
}

class Ranks : public Nccl, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(, Ranks, ::testing::Values(2, 3, 4));

TEST_P(Ranks, CollectivesAgreeWithPlainLoops) {
  for (const int64_t count : {1, 7, 100'000})
    EXPECT_EQ(over_nccl(GetParam(), [&](Comm& comm) { all_cases(comm, {count}, Sums::rounded); }),
              "");
}

TEST_F(Nccl, WhatIsInTheBackgroundIsOvertaken) {
  EXPECT_EQ(over_nccl(2,
                      [](Comm& comm) {
                        const Group group = comm.world(), background = group.in_background();
                        float made = 1, sum = 1, urgent = 2;
                        // A group's first collective makes what carries it, on all ranks in one order.
                        background.all_reduce(&made, 1, DType::f32).wait();
                        group.all_reduce(&made, 1, DType::f32).wait();
                        const auto start = [&] {
                          return background.all_reduce(&sum, 1, DType::f32);
                        };
                        // On rank 0 it cannot end before the urgent one, which was started later.
                        Pending first = comm.rank() == 0 ? start() : Pending();
                        group.all_reduce(&urgent, 1, DType::f32).wait();
                        EXPECT_EQ(urgent, 4);
                        if (comm.rank() == 1) first = start();
                        first.wait();
                        EXPECT_EQ(sum, 2);
                      }),
            "");
}

void pass_time(int64_t milliseconds) {
  // delay: a kernel's work
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST_F(Nccl, CollectivesAndTheirReadersAreOrderedBehindTheDevicesStream) {
  std::vector<FakeGpu> gpus(2);
  const auto body = [&](Comm& comm) {
    const FakeGpu& gpu = gpus[static_cast<size_t>(comm.rank())];
    float x = 0, read = 0;
    comm.world().all_reduce(&x, 1, DType::f32).wait();
    for (int step = 1; step <= 3; ++step) {
      gpu.queue([&] {
        pass_time(20);
        x = 1;
      });
      Pending sum = comm.world().all_reduce(&x, 1, DType::f32);
      if (comm.rank() == 1) gpu.queue([] { pass_time(20); });
      sum.wait();
      gpu.queue([&] { read += x; });
    }
    comm.device().synchronize();
    EXPECT_EQ(read, 6);
  };
  EXPECT_EQ(over_nccl(2, body, {.device = among(gpus)}), "");
}

TEST_F(Nccl, ARankWhoseDeviceIsSlowStandsStillLessThanThoseThatWaitForIt) {
  std::vector<FakeGpu> gpus(3);
  std::array<double, 3> stalled{};
  const auto body = [&](Comm& comm) {
    const FakeGpu& gpu = gpus[static_cast<size_t>(comm.rank())];
    float x = 1;
    comm.world().all_reduce(&x, 1, DType::f32).wait();
    comm.device().synchronize();
    comm.take_stalled_seconds();
    for (int step = 0; step < 5; ++step) {
      if (comm.rank() == 1) gpu.queue([] { pass_time(40); });
      comm.world().all_reduce(&x, 1, DType::f32).wait();
    }
    comm.device().synchronize();
    stalled[static_cast<size_t>(comm.rank())] = comm.take_stalled_seconds();
    EXPECT_EQ(comm.take_stalled_seconds(), 0);
  };
  EXPECT_EQ(over_nccl(3, body, {.device = among(gpus)}), "");
  EXPECT_GT(stalled[0], stalled[1] + 0.1);
  EXPECT_GT(stalled[2], stalled[1] + 0.1);
}

/// All ranks have used all groups of a mesh when `broken` happens.
std::string ended_by(const std::function<void()>& broken) {
  return over_nccl(4,
                   [&](Comm& comm) {
                     const Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
                     std::vector<float> x(8);
                     for (const MeshAxes& axes :
                          {MeshAxes{"data"}, MeshAxes{"model"}, MeshAxes{"data", "model"}})
                       mesh.group(axes).all_reduce(x.data(), 8, DType::f32).wait();
                     comm.world().barrier();
                     broken();
                   },
                   {.until_it_ends = true});
}

TEST_F(Nccl, AnErrorOfItsOwnEndsTheJobAndAbortsAllCommunicators) {
  const int before = aborts();
  const std::string ended = ended_by([] { set_fault(FakeFault::link); });
  EXPECT_TRUE(has(ended, "NCCL: remote process exited")) << ended;
  EXPECT_EQ(aborts() - before, 4 * 3);
}

TEST_F(Nccl, AKernelThatFailedEndsTheJob) {
  const auto body = [](Comm& comm) {
    std::vector<float> x(8);
    comm.world().all_reduce(x.data(), 8, DType::f32).wait();
    comm.world().barrier();
    break_fake_cuda(true);
    try {
      comm.world().all_reduce(x.data(), 8, DType::f32).wait();
    } catch (const Error&) {  // the other rank was the first to see it
    }
  };
  const std::string ended = over_nccl(2, body, {.until_it_ends = true});
  EXPECT_TRUE(has(ended, "CUDA: fake") && has(ended, "all_reduce over world")) << ended;
}

TEST_F(Nccl, CommunicatorsOfAxesAreSplitFromOneOfAllGpus) {
  const int before = splits();
  over_nccl(4, [](Comm& comm) {
    const Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
    for (int again = 0; again < 2; ++again)
      for (const MeshAxes& axes :
           {MeshAxes{"data"}, MeshAxes{"model"}, MeshAxes{"data", "model"}}) {
        auto x = static_cast<float>(1 << comm.rank());
        const Group& group = mesh.group(axes);
        float sum = 0;
        for (const int rank : group.ranks()) sum += static_cast<float>(1 << rank);
        group.all_reduce(&x, 1, DType::f32).wait();
        EXPECT_EQ(x, sum) << group.name();
      }
  });
  EXPECT_EQ(splits() - before, 4 * 2);  // the third is the world
}

/// What ends ranks whose communicators are not made.
Error start_error(FakeFault fault, double init_timeout) {
  set_fault(fault);
  std::atomic<bool> ended{false};
  std::thread patience([&] {  // the test ends, whether they are given up or not
    wait_for([&] { return ended.load(); }, std::chrono::seconds(10));
    set_fault(FakeFault::none);
  });
  const auto end = [&](const Error& error) {
    ended = true;
    patience.join();
    return error;
  };
  std::vector<float> x(8);
  try {
    over_nccl(2, [&](Comm& comm) { comm.world().all_reduce(x.data(), 8, DType::f32).wait(); },
              {.init_timeout = init_timeout});
  } catch (const Error& error) {
    return end(error);
  }
  return end(Error(ExitCode::kDone, "no error"));
}

TEST_F(Nccl, ACommunicatorThatIsNotMadeInTimeEndsTheRank) {
  const int before = aborts();
  const Error error = start_error(FakeFault::init_hangs, 0.3);
  EXPECT_EQ(error.code(), ExitCode::kEnvironment);
  EXPECT_TRUE(has(error.what(), "--init_timeout") && has(error.what(), "over all GPUs"))
      << error.what();
  EXPECT_GE(aborts() - before, 1);
}

TEST_F(Nccl, ACommunicatorThatCannotBeMadeEndsTheRank) {
  const Error error = start_error(FakeFault::init_fails, 60);
  EXPECT_EQ(error.code(), ExitCode::kPeer);
  EXPECT_TRUE(has(error.what(), "ncclCommInitRankConfig: unhandled system error")) << error.what();
}

TEST_F(Nccl, ALaunchThatBlocksIsSeen) {
  const std::string ended =
      over_nccl(2,
                [](Comm& comm) {
                  std::vector<float> x(8);
                  comm.set_step(7);
                  comm.world().all_reduce(x.data(), 8, DType::f32).wait();
                  set_fault(FakeFault::launch_blocks);
                  std::thread patience([&] {  // the test ends, whether the launch is seen or not
                                              // delay: longer than the watchdog takes
                    std::this_thread::sleep_for(std::chrono::seconds(8));
                    set_fault(FakeFault::none);
                  });
                  comm.world().all_reduce(x.data(), 8, DType::f32).wait();
                  patience.join();
                },
                {.collective_timeout = 0.3, .at_end = [] { set_fault(FakeFault::none); }});
  EXPECT_TRUE(has(ended, "all_reduce over world") && has(ended, "step 7")) << ended;
}

TEST_F(Nccl, ARankThatDoesNotComeIsNamed) {
  const std::string ended =
      over_nccl(3,
                [](Comm& comm) {
                  std::vector<float> x(8);
                  comm.world().all_reduce(x.data(), 8, DType::f32).wait();
                  if (comm.rank() == 2) return;
                  static_cast<void>(comm.world().all_reduce(x.data(), 8, DType::f32));
                },
                {.until_it_ends = true, .collective_timeout = 0.3, .at_end = [] {
                   fake<decltype(release_fake_ranks)>("release_fake_ranks")();
                 }});
  EXPECT_TRUE(has(ended, "all_reduce over world") && has(ended, "which does not answer")) << ended;
}

TEST_F(Nccl, ADeviceThatDoesNotComeToACollectiveIsNamedByItsRank) {
  std::vector<FakeGpu> gpus(2);
  std::promise<void> end;
  const std::shared_future<void> hung = end.get_future().share();
  const std::string ended = over_nccl(2,
                                      [&](Comm& comm) {
                                        float x = 1;
                                        comm.set_step(4);
                                        comm.world().all_reduce(&x, 1, DType::f32).wait();
                                        comm.device().synchronize();
                                        if (comm.rank() == 1) gpus[1].queue([&] { hung.wait(); });
                                        comm.world().all_reduce(&x, 1, DType::f32).wait();
                                        comm.device().synchronize();
                                      },
                                      {.collective_timeout = 0.5,
                                       .at_end =
                                           [&, once = std::make_shared<std::once_flag>()] {
                                             std::call_once(*once, [&] { end.set_value(); });
                                           },
                                       .device = among(gpus)});
  EXPECT_TRUE(has(ended, "rank 1 on ") &&
              has(ended, "its device has not come to all_reduce over world of 1 elements"))
      << ended;
}

/// Rank `other` of three does something else at step 5; steps go on.
std::string message_of_order(int other,
                             const std::function<void(const Group&, float*)>& something) {
  std::mutex mutex;
  std::set<std::string> messages;
  over_nccl(3, [&](Comm& comm) {
    std::vector<float> x(64);
    try {
      for (int step = 0; step < 64; ++step) {
        comm.set_step(step);
        if (step == 5 && comm.rank() == other)
          something(comm.world(), x.data());
        else
          comm.world().all_reduce(x.data(), 8, DType::f32).wait();
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kPeer);
      const std::lock_guard lock(mutex);
      messages.insert(error.what());
    }
  });
  EXPECT_LE(messages.size(), 1u);
  return messages.empty() ? "" : *messages.begin();
}

TEST_F(Nccl, RanksThatCallDifferentCollectivesAreNamed) {
  EXPECT_EQ(message_of_order(
                2, [](const Group& all, float* x) { all.all_reduce(x, 8, DType::f32).wait(); }),
            "");
  for (const int other : {0, 2}) {
    const std::string message = message_of_order(
        other, [](const Group& all, float* x) { all.all_gather(x, x + 8, 8, DType::f32).wait(); });
    EXPECT_TRUE(has(message, "collectives out of order: rank 0 on ") &&
                has(message, other == 0 ? "called all_gather over world of 8 elements, step 5"
                                        : "called all_reduce over world of 8 elements, step 5") &&
                has(message, other == 0 ? "rank 1 on " : "rank 2 on "))
        << message;
  }
}

TEST_F(Nccl, ItsMaximumPassesOverNanAndItsSumDoesNot) {
  over_nccl(2, [](Comm& comm) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> most = {comm.rank() == 0 ? nan : 1.0f}, sum = most;
    comm.world().all_reduce(most.data(), 1, DType::f32, Reduction::max).wait();
    comm.world().all_reduce(sum.data(), 1, DType::f32).wait();
    EXPECT_EQ(most[0], 1.0f);
    EXPECT_TRUE(std::isnan(sum[0]));
  });
}

TEST_F(Nccl, ALossOfNanIsNanOverAShardedVocabulary) {
  over_nccl(2, [](Comm& comm) {
    const Mesh mesh({{"model", 2}}, &comm);
    const Sharding sharding(mesh, {{"vocab", {"model"}}});
    const Sharding::Use use(sharding);
    for (const float bad : {0.5f, std::numeric_limits<float>::quiet_NaN()}) {
      HostArray kernel(DType::f32, {2, 8}), x(DType::f32, {1, 1, 2}), ids(DType::i32, {1, 1}),
          weights(DType::f32, {1, 1});
      std::ranges::fill(kernel.as<float>(), 0.25f);
      kernel.as<float>()[7] = bad;  // of the last token, which rank 1 has
      std::ranges::fill(x.as<float>(), 1.0f);
      weights.as<float>()[0] = 1;
      const auto result = ops::cross_entropy(Tensor::from_host(x, {"batch", "length", "embed"}),
                                             Tensor::from_host(kernel, {"embed", "vocab"}),
                                             Tensor::from_host(ids, {"batch", "length"}),
                                             Tensor::from_host(weights, {"batch", "length"}), {});
      EXPECT_EQ(std::isnan(result.loss.item()), std::isnan(bad));
    }
  });
}

/// Ordinary memory that counts its blocks.
class CountedMemory final : public MemorySource {
 public:
  void* allocate(int64_t bytes) override {
    ++blocks;
    return std::malloc(static_cast<size_t>(bytes));
  }
  void release(void* block, int64_t) override {
    --blocks;
    std::free(block);
  }
  std::string name() const override { return "counted"; }
  int blocks = 0;
};
constexpr int64_t kLargeBlock = 4 << 20, kSmallBlock = 64 << 10;

TEST_F(Nccl, AllocatesLargeBlocksThatItRegistersAndTakesThemBack) {
  CountedMemory source;
  const int before = nccl_blocks();
  {
    Memory memory(source);
    const Buffer older = memory.allocate(kLargeBlock);
    allocate_by_nccl(memory);
    const Buffer large = memory.allocate(kLargeBlock), small = memory.allocate(kSmallBlock);
    EXPECT_EQ(nccl_blocks() - before, 1);
    EXPECT_EQ(source.blocks, 2);
    std::memset(large.get(), 1, kLargeBlock);
  }
  EXPECT_EQ(nccl_blocks(), before);
  EXPECT_EQ(source.blocks, 0);
}

TEST_F(Nccl, QueuedWorkMayUseABlockUntilItIsFreed) {
  CountedMemory source;
  Memory memory(source);
  allocate_by_nccl(memory);
  memory.allocate(kLargeBlock);  // kept for the next
  const int waits = fake_device_synchronizations();
  memory.release_cached();
  EXPECT_EQ(fake_device_synchronizations() - waits, 1);
}

TEST_F(Nccl, LeavesMemoryAsItIsWhereItHasNone) {
  CountedMemory source;
  Memory memory(source);
  use("libz.so.1");  // as NCCL before 2.19, without its allocator
  allocate_by_nccl(memory);
  const Buffer first = memory.allocate(kLargeBlock);
  use(FAKE_NCCL);
  allocate_by_nccl(memory);
  set_fault(FakeFault::no_memory);
  const Buffer second = memory.allocate(kLargeBlock);
  EXPECT_EQ(source.blocks, 2);
}

TEST_F(Nccl, SaysItsVersion) { EXPECT_EQ(nccl_version(), "2.21.5"); }

/// What starting says; its exit code is the environment's.
std::string refusal() {
  try {
    over_nccl(2, [](Comm&) {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
    return error.what();
  }
  return "no error";
}

TEST_F(Nccl, IsMissedBySentenceWhereItIsNot) {
  use("/nowhere/libnccl.so.2");
  const std::string said = refusal();
  for (const char* part :
       {"ranks with a GPU each talk by NCCL", "/nowhere/libnccl.so.2", "libnccl2", "QUINTET_NCCL"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST_F(Nccl, ThatLacksAFunctionIsRefusedByName) {
  use("libz.so.1");
  const std::string said = refusal();
  for (const char* part : {"libz.so.1 has no function ncclGetVersion", "QUINTET_NCCL"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

}  // namespace
}  // namespace quintet
