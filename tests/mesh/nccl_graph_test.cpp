// Recordings with collectives in them (CUDA graphs), of emulated GPUs that talk over the fake of NCCL: what
// is repeated, what the watchdog, the check of the order and the time that a device stands still know of it.

#include <cmath>
#include <future>
#include <set>

#include "runtime/abstract/abstract_device.h"
#include "runtime/abstract/step_clock.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/execution/tape.h"
#include "runtime/mesh/device_group.h"
#include "runtime/ops/ops.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/profile/profile.h"
#include "runtime/trainer/batch_rows.h"
#include "tests/layouts/expect.h"
#include "tests/mesh/nccl_gpus.h"

namespace quintet::testing {
namespace {

namespace emulator = emulated::simt::emulator;

/// Work of a rank that has been run once, recorded.
struct Repeatable {
  std::unique_ptr<RecordedCollectives> collectives;
  std::unique_ptr<Recording> recording;

  Repeatable(Comm& comm, const std::function<void()>& work) {
    work();
    collectives = comm.record();
    recording = comm.device().record([&] {
      work();
      collectives->close();
    });
  }
  void launch() const {
    collectives->launch([this] { recording->launch(); });
  }
};

struct Trained {
  std::vector<Metrics> metrics;
  HostArrays parameters;  // this rank's blocks
  std::vector<bool> launched;
  std::vector<int64_t> launches;  // of each step
  std::map<std::string, int64_t>
      calls;  // of each op, in all steps that were not launched as graphs
  Traffic::Table traffic;
  int64_t kept = 0, most_held = 0;  // bytes: since before the first step; then and there by tensors
};

class ShardedSteps : public NcclGraphs {
 protected:
  /// What each rank makes of some steps.
  std::map<int, Trained> train(const Training& training, const Partitioning& partitioning,
                               bool graph,
                               const std::function<LossFunction(LossFunction, Comm&)>& wrap = {}) {
    int count = 1;
    for (const MeshAxis& axis : partitioning.mesh) count *= axis.size;
    std::mutex mutex;
    std::map<int, Trained> runs;
    const auto body = [&](Comm& comm) {
      const Mesh mesh(partitioning.mesh, &comm);
      const Sharding sharding(mesh, partitioning.rules);
      const Sharding::Use use(sharding);
      Trained run = train(training, comm, graph, wrap);
      const std::lock_guard lock(mutex);
      runs[comm.rank()] = std::move(run);
    };
    EXPECT_EQ(over_gpus(count, body), "");
    return runs;
  }

 private:
  Trained train(const Training& training, Comm& comm, bool graph,
                const std::function<LossFunction(LossFunction, Comm&)>& wrap) {
    const std::unique_ptr<BaseModel> model = make_model(training);
    model->parameters().initialize(key_from_seed(7));
    LossFunction loss = loss_of(*model);
    if (wrap) loss = wrap(loss, comm);
    Trainer trainer(loss, model->parameters(), adafactor({.min_dim_size_to_factor = 16}),
                    {.num_microbatches = training.microbatches,
                     .reduction = training.reduction,
                     .reduction_dtype = training.reduction_dtype,
                     .interleave = training.interleave,
                     .loss_is_total = true,
                     .learning_rate = [](int64_t) { return 0.01F; },
                     .step_graph = graph},
                    key_from_seed(9));
    Trained run;
    const Memory& memory = comm.device().memory();
    const int64_t used = memory.used_bytes();
    MemoryMeter meter;
    const MemoryMeter::Use use_meter(meter);
    Profile profile;
    const Profile::Use use_profile(graph ? nullptr : &profile);
    for (int64_t step = 0; step < training.steps; ++step) {
      comm.set_step(step);
      const int64_t before = comm.device().counters().read().launches;
      run.metrics.push_back(
          trainer.train(local_rows(make_batch(training, step), training.microbatches)).metrics);
      run.launches.push_back(comm.device().counters().read().launches - before);
      run.launched.push_back(trainer.launched_graph());
    }
    run.kept = memory.used_bytes() - used;
    run.most_held = MemoryMeter::sum(meter.peak());
    for (const ParamInfo& info : model->parameters().all())
      run.parameters[info.name] = info.value.to_host();
    for (const auto& [name, entry] : profile.entries()) run.calls[name] = entry.calls;
    run.traffic = comm.traffic().table();
    return run;
  }
};

void expect_same_bits(const Trained& got, const Trained& want) {
  for (size_t step = 0; step < want.metrics.size(); ++step)
    for (const auto& [name, metric] : want.metrics[step])
      EXPECT_EQ(got.metrics[step].at(name).total, metric.total) << name << " of step " << step;
  for (const auto& [name, array] : want.parameters)
    EXPECT_EQ(got.parameters.at(name).bytes, array.bytes) << name;
  EXPECT_EQ(got.traffic, want.traffic);
}

TEST_F(ShardedSteps, AreRecordedOnceAndGiveTheBitsOfThoseThatAreNot) {
  const Training training{.num_layers = 1, .rows = 4, .steps = 3, .optimizer = {}};
  Training turns = training;
  turns.microbatches = 2;
  turns.interleave = true;
  Training once = training;
  once.microbatches = 2;
  once.reduction = GradientReduction::step;
  once.reduction_dtype = DType::bf16;
  const std::tuple<Training, std::vector<int>, int> cases[] = {{training, {2, 1}, 1},
                                                               {training, {2, 1}, 2},
                                                               {training, {1, 2}, 1},
                                                               {once, {2, 2}, 2},
                                                               {turns, {1, 2}, 1}};
  for (const auto& [what, sizes, parameter_dims] : cases) {
    SCOPED_TRACE(describe(what, sizes, 1, parameter_dims));
    const Partitioning layout = partitioning(sizes, 1, parameter_dims);
    const auto plain = train(what, layout, false), runs = train(what, layout, true);
    for (const auto& [rank, run] : runs) {
      EXPECT_EQ(run.launched, (std::vector<bool>{false, true, true}));
      expect_same_bits(run, plain.at(rank));
      EXPECT_LT(4 * run.launches.back(), plain.at(rank).launches.back());
    }
  }
}

/// How often a simulated step of rank 0 calls each op, on GPUs or on CPUs.
std::map<std::string, int64_t> planned_calls(const Training& training, const Partitioning& on,
                                             bool are_gpus) {
  AbstractDevice device(are_gpus);
  const Device::Use use_device(device);
  Axes mesh;
  for (const MeshAxis& axis : on.mesh) mesh.push_back({axis.name, axis.size});
  const Sharding sharding(mesh, std::vector<int64_t>(mesh.size()), on.rules);
  const Sharding::Use use(sharding);
  StepClock clock({});
  const StepClock::Use use_clock(clock);
  const auto model = make_model(training);
  model->parameters().allocate();
  const HostArrays batch = local_rows(make_batch(training, 0));
  Tape tape;
  Tensor loss;
  {
    const Tape::Recording recording(tape);
    loss = model->loss_fn(batch, Rows::all(batch), {.train = true}).loss;
  }
  tape.backward(loss);
  std::map<std::string, int64_t> calls;
  for (const auto& [op, total] : clock.ops()) calls[op] = total.calls;
  return calls;
}

// Of weights that each rank has whole, as on one GPU, and of the heads that are a rank's; of those that are cut each is
// gathered by itself. Sums of two ranks have one order. A plan of GPUs has the calls of the run.
TEST_F(ShardedSteps, MultiplyByQueryKeyAndValueTogetherWhereTheyLieOnARank) {
  const Training training{.num_layers = 1, .rows = 4, .steps = 2, .optimizer = {}};
  const Partitioning rows = partitioning({2, 1}, 1, 1), zero = partitioning({2, 1}, 1, 2),
                     heads = partitioning({1, 2}, 1, 1), both = partitioning({2, 2}, 1, 1);
  const auto whole = train(training, rows, false), cut = train(training, zero, false);
  for (const auto& [on, batches] :
       {std::pair{rows, true}, {zero, false}, {heads, true}, {both, true}}) {
    const auto planned = planned_calls(training, on, true),
               on_cpus = planned_calls(training, on, false);
    for (const auto& [rank, run] : train(training, on, false))
      for (const char* op : {"batched_matmul", "batched_matmul_grad_x", "batched_matmul_grad_w"}) {
        EXPECT_EQ(run.calls.contains(op), batches) << op;
        if (batches) {
          EXPECT_EQ(run.calls.at(op), 3 * training.steps) << op;
          EXPECT_EQ(planned.at(op), 3) << op;
        }
        EXPECT_EQ(planned.contains(op), batches) << op;
        EXPECT_FALSE(on_cpus.contains(op)) << op;
      }
  }
  for (const auto& [rank, run] : whole) {
    EXPECT_EQ(run.metrics[0].at("loss").total, cut.at(rank).metrics[0].at("loss").total);
    // Two of each three launches less, of a cross-attention one of two, forward and of the weights' gradients.
    const int64_t weights = 3 + 3 + 2;
    EXPECT_EQ(run.calls.at("matmul") + weights * training.steps, cut.at(rank).calls.at("matmul"));
  }
}

// Weights, results and gradients lie side by side, so that of three products each way one is launched: of results and of weights'
// gradients; those of x are one product each. Of weights that a rank has whole, and of its heads of them.
TEST_F(ShardedSteps, OfWholeWeightsLaunchOneProductForThree) {
  for (const std::vector<int>& sizes : {std::vector<int>{2, 1}, {1, 2}}) {
    const Partitioning on = partitioning(sizes, 1, 1);
    const auto body = [&](Comm& comm) {
      const Mesh mesh(on.mesh, &comm);
      const Sharding sharding(mesh, on.rules);
      const Sharding::Use use(sharding);
      Parameters parameters;
      std::vector<Param> kernels;
      for (const char* name : {"query", "key", "value"})
        kernels.push_back((Scope(parameters) / name)
                              .param("kernel", {{axis::kEmbed, 32}, {axis::kJoinedKv, 16}},
                                     t5_init::attention_kernel()));
      parameters.initialize(key_from_seed(3));
      const Tensors w(kernels.begin(), kernels.end());
      const auto placed = [&](const char* axis, int64_t size, size_t count) {
        const Spec spec{{{axis::kBatch, 4}, {axis::kLength, 8}, {axis, size}}, DType::f32};
        const bool is_half =
            sizes[0] == 2 || std::string_view(axis) == axis::kJoinedKv;  // of rows or columns
        const int64_t bytes = spec.elements() * size_of(DType::f32) / (is_half ? 2 : 1);
        Tensors all;
        for (Buffer& memory : comm.device().memory().allocate_side_by_side(bytes, count)) {
          all.emplace_back(spec, sharding.place(spec), full_slice(spec), std::move(memory));
          std::vector<float> numbers(static_cast<size_t>(bytes) / sizeof(float));
          for (size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = static_cast<float>(std::sin(i * (40 + all.size())));
          all.back().device().copy_in(all.back().raw(), numbers.data(), bytes);
        }
        return all;
      };
      const Tensor x = placed(axis::kEmbed, 32, 1)[0].set_needs_grad(true);
      const Tensors dy = placed(axis::kJoinedKv, 16, 3);
      Tensors y;
      const auto launches_of = [&](const std::function<Tensors()>& multiply) {
        const int64_t before = comm.device().counters().read().launches;
        Tape tape;
        {
          const Tape::Recording recording(tape);
          y = multiply();
        }
        tape.backward(y, dy);
        return comm.device().counters().read().launches - before;
      };
      struct Products {
        int64_t first, second;                            // launches
        std::vector<std::vector<std::byte>> arrays = {};  // on this rank
      };
      const auto of_first_and_second_pass = [&](const std::function<Tensors()>& multiply) {
        for (const Tensor& leaf : {x, w[0], w[1], w[2]}) leaf.set_grad({});
        Products made{launches_of(multiply),
                      launches_of(multiply)};  // the second adds to reduced gradients
        for (const Tensor& t :
             {y[0], y[1], y[2], x.grad(), w[0].grad(), w[1].grad(), w[2].grad()}) {
          std::vector<std::byte>& bytes = made.arrays.emplace_back(static_cast<size_t>(t.bytes()));
          comm.device().copy_out(bytes.data(), t.raw(), t.bytes());
        }
        return made;
      };
      const auto together = of_first_and_second_pass([&] { return ops::matmul(x, w); });
      const auto each = of_first_and_second_pass([&] {
        return Tensors{ops::matmul(x, w[0]), ops::matmul(x, w[1]), ops::matmul(x, w[2])};
      });
      EXPECT_EQ(together.first, each.first - 2 - 2);
      EXPECT_EQ(together.second, each.second - 2 - 2);
      EXPECT_EQ(together.arrays, each.arrays);
    };
    EXPECT_EQ(over_gpus(2, body), "");
  }
}

// The first step gathers each parameter when it is used, those after it all of them ahead.
TEST_F(ShardedSteps, HavePlacesForWhatIsGatheredAhead) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "nothing is placed for AddressSanitizer";
#endif
  const Training training{.num_layers = 4, .rows = 4, .steps = 2, .optimizer = {}};
  for (const auto& [rank, run] : train(training, partitioning({2, 1}, 1, 2), true)) {
    EXPECT_EQ(run.launched, (std::vector<bool>{false, true}));
    const double kept = static_cast<double>(run.kept) / static_cast<double>(run.most_held);
    EXPECT_GE(kept, 0.9) << "it has the recording in it";
    EXPECT_LE(kept, 1.1);
  }
}

TEST_F(ShardedSteps, AreRecordedByAllRanksAsOftenAsByOneThatDiffers) {
  const Training training{.num_layers = 1, .rows = 4, .steps = 3, .optimizer = {}};
  std::array<int, 2> calls{};
  const auto wrap = [&](const LossFunction& loss, Comm& comm) -> LossFunction {
    int& mine = calls[static_cast<size_t>(comm.rank())];
    return [&, loss](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
      if (++mine > 1 && comm.rank() == 1) comm.device().memory().allocate(1 << 20);
      return loss(batch, begin, end, key);
    };
  };
  for (const auto& [rank, run] : train(training, partitioning({2, 1}, 1, 1), true, wrap))
    EXPECT_EQ(run.launched, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(calls, (std::array{3, 3})) << "the first step, two recordings";
}

// Recorded collectives are met by recorded ones alone.
TEST_F(ShardedSteps, ThatOneRankCannotRecordAreRunByAll) {
  const Training training{.num_layers = 1, .rows = 4, .steps = 3, .optimizer = {}};
  const Partitioning layout = partitioning({2, 1}, 1, 2);
  const auto wrap = [](const LossFunction& loss, Comm& comm) -> LossFunction {
    return [&, loss](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
      LossOutput result = loss(batch, begin, end, key);
      if (comm.rank() == 1) comm.device().synchronize();
      return result;
    };
  };
  const auto plain = train(training, layout, false);
  ::testing::internal::CaptureStderr();
  const auto runs = train(training, layout, true, wrap);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "steps are not recorded as a graph: a wait for the device cannot be recorded\n");
  for (const auto& [rank, run] : runs) {
    EXPECT_EQ(run.launched, std::vector<bool>(3));
    expect_same_bits(run, plain.at(rank));
  }
}

TEST_F(ShardedSteps, OfRanksThatTalkThroughTheHostAreNotRecorded) {
  ::testing::internal::CaptureStderr();
  run_threads({.count = 2, .device = &gpu(0)}, [&](Comm& comm) {
    const Device::Use use_device(gpu(0));
    const Mesh mesh({{"data", 2}}, &comm);
    const Sharding sharding(mesh, {{"batch", {"data"}}});
    const Sharding::Use use(sharding);
    Parameters none;
    StepGraph graph(
        none, [](const HostArrays&, Key, const auto&) {}, true);
    for (int step = 0; step < 3; ++step) graph.run({}, {});
    EXPECT_FALSE(graph.launched());
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "steps are not recorded as a graph: its ranks talk through ordinary memory\n");
}

TEST_F(NcclGraphs, ACollectiveThatHangsInALaunchIsNamedByWhoHasNotComeToIt) {
  std::promise<void> end;
  const std::shared_future<void> hung = end.get_future().share();
  std::atomic<int> launches{0};
  const auto body = [&](Comm& comm) {
    std::vector<float> x(8);
    const Repeatable step(comm, [&] {
      comm.world().all_reduce(x.data(), 8, DType::f32).wait();
      if (comm.rank() == 1)
        emulator::queue([&] {
          // The first was no launch. The test ends, whether it is seen or not.
          if (++launches == 4) hung.wait_for(std::chrono::seconds(20));
        });
      comm.world().all_reduce(x.data(), 5, DType::f32).wait();
      comm.world().all_reduce(x.data(), 3, DType::f32).wait();
    });
    for (int i = 0; i < 3; ++i) {
      comm.set_step(10 + i);
      step.launch();
    }
    comm.device().synchronize();
  };
  const std::string ended = over_gpus(2, body,
                                      {.collective_timeout = 0.5,
                                       .judge = 1,
                                       .at_end = [&, once = std::make_shared<std::once_flag>()] {
                                         std::call_once(*once, [&] { end.set_value(); });
                                       }});
  EXPECT_TRUE(has(ended, "rank 1 on ") &&
              has(ended, "its device has not come to all_reduce over world of 5 elements") &&
              has(ended, "step 12"))
      << ended;
}

TEST_F(NcclGraphs, ARankThatDoesNotLaunchIsWaitedForWhereItsCollectiveIs) {
  const auto body = [](Comm& comm) {
    std::vector<float> x(8);
    const Repeatable step(comm, [&] { comm.world().all_reduce(x.data(), 8, DType::f32).wait(); });
    step.launch();
    if (comm.rank() == 0) return;
    step.launch();
  };
  const std::string ended =
      over_gpus(2, body, {.collective_timeout = 0.5, .at_end = [] {
                            fake<decltype(release_fake_ranks)>("release_fake_ranks")();
                          }});
  EXPECT_TRUE(has(ended, "rank 1 on ") && has(ended, "has waited") &&
              has(ended, "all_reduce over world of 8 elements (collective 2)"))
      << ended;
}

TEST_F(NcclGraphs, AnErrorDuringALaunchAbortsAllCommunicators) {
  const int before = aborts();
  std::promise<void> end;
  const std::shared_future<void> hung = end.get_future().share();
  std::atomic<int> reached{0};
  const auto body = [&](Comm& comm) {
    const Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
    std::vector<float> x(8);
    const Repeatable step(comm, [&] {
      mesh.group({"model"}).all_reduce(x.data(), 8, DType::f32).wait();
      emulator::queue([&] {
        if (++reached > 4) hung.wait();
      });
      mesh.group({"data"}).all_reduce(x.data(), 8, DType::f32).wait();
    });
    comm.world().barrier();
    set_fault(FakeFault::link);
    step.launch();
  };
  const std::string ended =
      over_gpus(4, body, {.at_end = [&, once = std::make_shared<std::once_flag>()] {
                  std::call_once(*once, [&] { end.set_value(); });
                }});
  EXPECT_TRUE(has(ended, "NCCL: remote process exited")) << ended;
  EXPECT_EQ(aborts() - before, 4 * 3);
}

TEST_F(NcclGraphs, LaunchesOfDifferentCollectivesAreNamed) {
  std::mutex mutex;
  std::set<std::string> messages;
  over_gpus(3, [&](Comm& comm) {
    std::vector<float> x(64);
    const Group all = comm.world();
    try {
      const Repeatable step(comm, [&] {
        comm.rank() == 2 && emulator::is_recording()
            ? all.all_gather(x.data(), x.data() + 8, 8, DType::f32).wait()
            : all.all_reduce(x.data(), 8, DType::f32).wait();
      });
      for (int i = 0; i < 64; ++i) {
        comm.set_step(i);
        step.launch();
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kPeer);
      const std::lock_guard lock(mutex);
      messages.insert(error.what());
    }
  });
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(has(*messages.begin(), "called all_reduce over world of 8 elements, step 0") &&
              has(*messages.begin(), "rank 2 on "))
      << *messages.begin();
}

// Ranks that hold a model together answer examples of their own between the steps.
TEST_F(NcclGraphs, GroupsOutOfStepCallWhatOthersDoNot) {
  const auto body = [](Comm& comm) {
    const int first = comm.rank() / 2 * 2;
    const Group pair = Group(&comm, {first, first + 1}, "ranks of a model").out_of_step();
    std::vector<float> x(8);
    const Repeatable step(comm, [&] { pair.all_reduce(x.data(), 8, DType::f32).wait(); });
    for (int i = 0; i < 64; ++i) {
      comm.set_step(i);
      if (first == 0) step.launch();
      if (first == 0) pair.all_reduce(x.data(), 3, DType::f32).wait();
      comm.world().all_reduce(x.data(), 8, DType::f32).wait();
    }
  };
  EXPECT_EQ(over_gpus(4, body), "");
}

// The first collective after the groups are made is one group's.
TEST_F(NcclGraphs, AGroupOfDevicesWaitsForNoOther) {
  const auto body = [](Comm& comm) {
    const int first = comm.rank() / 2 * 2;
    const Group pair = device_group(comm, first, 2);
    float x = 1 + static_cast<float>(comm.rank());
    if (first == 0) pair.all_reduce(&x, 1, DType::f32).wait();
    comm.host().world().barrier();
    EXPECT_EQ(x, first == 0 ? 3 : 1 + static_cast<float>(comm.rank()));
    if (first == 2) pair.all_reduce(&x, 1, DType::f32).wait();
    EXPECT_EQ(x, first == 0 ? 3 : 7);
  };
  EXPECT_EQ(over_gpus(4, body, {.collective_timeout = 10, .init_timeout = 10}), "");
}

TEST_F(NcclGraphs, ARankWhoseDeviceIsSlowStandsStillLessThanThoseThatWaitForIt) {
  std::array<double, 3> stalled{};
  const auto body = [&](Comm& comm) {
    float x = 1;
    const Repeatable step(comm, [&] {
      if (comm.rank() == 1)
        emulator::queue([] {
          // delay: a kernel's work
          std::this_thread::sleep_for(std::chrono::milliseconds(40));
        });
      comm.world().all_reduce(&x, 1, DType::f32).wait();
    });
    comm.take_stalled_seconds();
    for (int i = 0; i < 5; ++i) step.launch();
    comm.device().synchronize();
    stalled[static_cast<size_t>(comm.rank())] = comm.take_stalled_seconds();
    EXPECT_EQ(comm.take_stalled_seconds(), 0);
  };
  EXPECT_EQ(over_gpus(3, body), "");
  EXPECT_GT(stalled[0], stalled[1] + 0.1);
  EXPECT_GT(stalled[2], stalled[1] + 0.1);
}

TEST_F(NcclGraphs, EndWithTheStreamsOfTheirCollectives) {
  over_gpus(2, [](Comm& comm) {
    std::vector<float> x(8), y(8);
    const Group all = comm.world();
    const Repeatable step(comm, [&] {
      Pending sum = all.in_background().all_reduce(x.data(), 8, DType::f32);
      all.all_reduce(y.data(), 8, DType::f32).wait();
      sum.wait();
    });
    all.barrier();
    EXPECT_EQ(fake_unjoined_streams(), 0);
    all.barrier();
  });
}

TEST_F(NcclGraphs, AGroupThatWasNotUsedBeforeIsNotRecorded) {
  over_gpus(2, [](Comm& comm) {
    float x = 1;
    const auto collectives = comm.record();
    EXPECT_THROW(comm.device().record([&] { comm.world().all_reduce(&x, 1, DType::f32).wait(); }),
                 NotRecordable);
  });
}

}  // namespace
}  // namespace quintet::testing
