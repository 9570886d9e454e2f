// What a rank holds and sends: with parameters sharded over both mesh axes its share of parameters,
// gradients and optimizer state, never more than two layers gathered; and a simulated step sends what
// a step on ranks does.

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <sstream>

#include "runtime/abstract/abstract_device.h"
#include "runtime/base/memory/memory_meter.h"
#include "runtime/execution/gather_cache.h"
#include "runtime/execution/gradient_buckets.h"
#include "runtime/execution/tape.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/profile/step_log.h"
#include "runtime/trainer/batch_rows.h"
#include "runtime/trainer/trainer.h"
#include "tests/harness/stacks.h"
#include "tests/layouts/expect.h"

namespace quintet::testing {
namespace {

OptimizerPtr with_momentum() {
  return adafactor({.beta1 = 0.9,
                    .min_dim_size_to_factor = 16,
                    .logical_factor_rules = standard_logical_factor_rules()});
}

struct Held {
  std::map<std::string, int64_t> parameters, gradients, state;  // bytes
  std::map<std::string, int64_t> gathered_layers;  // bytes of a layer with `data` gathered
  int64_t most_gathered = 0;
};

/// "encoder/layers_0" of "encoder/layers_0/mlp/wi_0/kernel"; embedding and logits are their own.
std::string layer_of(const std::string& name) {
  const size_t at = name.find("layers_");
  return at == std::string::npos ? name : name.substr(0, name.find('/', at));
}

Held hold() {
  const Training training{.optimizer = {}};
  const auto model = make_model(training);
  model->parameters().initialize(key_from_seed(7));
  Held held;
  const LossFunction loss = loss_of(*model);
  const auto with_gradients = [&](const HostArrays& batch, int64_t begin, int64_t end, Key key) {
    LossOutput step = loss(batch, begin, end, key);
    step.metrics = [&, metrics = step.metrics](const HostArrays& of,
                                               std::span<const HostArray> values) {
      for (const ParamInfo& info : model->parameters().all())
        held.gradients[info.name] = info.value.grad().bytes();
      return metrics(of, values);
    };
    return step;
  };
  int64_t largest_layer = 0;
  for (const ParamInfo& info : model->parameters().all()) {
    held.parameters[info.name] = info.value.bytes();
    const Sharding* sharding = ExecutionContext::current().sharding;
    const int64_t parts = sharding == nullptr ? 1 : parts_of({"data"}, sharding->mesh());
    const auto& dims = info.value.layout().dims;
    if (std::find(dims.begin(), dims.end(), MeshAxes{"data"}) == dims.end()) continue;
    int64_t& layer = held.gathered_layers[layer_of(info.name)];
    largest_layer = std::max(largest_layer, layer += info.value.bytes() * parts);
  }
  Trainer trainer(
      with_gradients, model->parameters(), with_momentum(),
      {.learning_rate = [](int64_t) { return 0.01F; }, .gather_ahead_bytes = largest_layer},
      key_from_seed(9));
  for (int64_t i = 0; i < 3; ++i) {
    trainer.train(local_rows(make_batch(training, i)));
    held.most_gathered = std::max(held.most_gathered, trainer.gather_cache().peak_bytes());
    EXPECT_EQ(trainer.gather_cache().live_bytes(), 0);
  }
  for (const StateArray& array : trainer.state())
    held.state[array.name] = array.view.elements() * size_of(array.view.dtype);
  return held;
}

class Accounting : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(Accounting, ARankHoldsItsShareAndTwoGatheredLayers) {
  const Held unsharded = hold();
  const int data = GetParam()[0], model = GetParam()[1];
  std::mutex mutex;
  on_ranks(partitioning(GetParam(), 1, 2), [&](Comm&) {
    const Held rank = hold();
    const std::lock_guard lock(mutex);
    int64_t sharded = 0;
    for (const auto& [name, bytes] : unsharded.parameters) {
      if (!name.ends_with("/kernel") && !name.ends_with("/embedding")) continue;
      SCOPED_TRACE(name);
      ++sharded;
      EXPECT_EQ(rank.parameters.at(name) * data * model, bytes);
      EXPECT_EQ(rank.gradients.at(name) * data * model, unsharded.gradients.at(name));
      const std::string state = "state/param_states/" + name;
      EXPECT_EQ(rank.state.at(state + "/m") * data * model, unsharded.state.at(state + "/m"));
      const int64_t moments = rank.state.at(state + "/v_row") + rank.state.at(state + "/v_col");
      EXPECT_LE(moments,
                unsharded.state.at(state + "/v_row") + unsharded.state.at(state + "/v_col"));
    }
    EXPECT_GT(sharded, 20);
    std::multiset<int64_t, std::greater<>> layers;
    for (const auto& [layer, bytes] : rank.gathered_layers) layers.insert(bytes);
    EXPECT_GT(rank.most_gathered, 0);
    // An op's own and a layer ahead.
    EXPECT_LE(rank.most_gathered, *layers.begin() + *std::next(layers.begin()));
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, Accounting,
                         ::testing::Values(std::vector{2, 1}, std::vector{2, 2}));

/// Forward and backward of one batch.
void run_gradients(const Training& training, BaseModel& model, DType travels = DType::f32) {
  const HostArrays batch = local_rows(make_batch(training, 0));
  Tape tape;
  LossOutput step;
  {
    const Tape::Recording recording(tape);
    step = loss_of(model)(batch, 0, Rows::all(batch).end, key_from_seed(5));
  }
  GradientBuckets buckets(1, ParameterLayers::none(), {.travels = travels});
  tape.backward(step.loss, buckets);
  buckets.finish();
}

TEST(Gradients, OfSmallArraysAreSummedTogether) {
  const Training training{.optimizer = {}};
  on_ranks(partitioning({4, 1}, 1, 1), [&](Comm& comm) {
    MemoryMeter meter;
    const MemoryMeter::Use use(meter);
    const auto model = make_model(training);
    model->parameters().initialize(key_from_seed(7));
    comm.traffic().reset();
    run_gradients(training, *model);
    int64_t bytes = 0;
    for (const ParamInfo& info : model->parameters().all()) bytes += info.value.grad().bytes();
    // Target tokens; three sums of the loss; all gradients.
    const Traffic::Table want = {
        {{"all_reduce", "data"}, {1 + 3 + 1, Traffic::sent("all_reduce", bytes + 8 + 3 * 4, 4)}}};
    EXPECT_EQ(comm.traffic().table(), want);
    EXPECT_EQ(meter.used()[static_cast<size_t>(MemoryKind::kGradients)], bytes);
  });
}

TEST(Gradients, InBfloat16AreHalfTheBytes) {
  const Training training{.optimizer = {}};
  on_ranks(partitioning({4, 1}, 1, 1), [&](Comm& comm) {
    const auto model = make_model(training);
    model->parameters().initialize(key_from_seed(7));
    comm.traffic().reset();
    run_gradients(training, *model, DType::bf16);
    int64_t bytes = 0;
    for (const ParamInfo& info : model->parameters().all()) {
      EXPECT_EQ(info.value.grad().spec().dtype, DType::f32);
      bytes += info.value.grad().bytes();
    }
    const Traffic::Table want = {
        {{"all_reduce", "data"},
         {1 + 3 + 1, Traffic::sent("all_reduce", bytes / 2 + 8 + 3 * 4, 4)}}};
    EXPECT_EQ(comm.traffic().table(), want);
  });
}

/// What a rank gives and the sums of all, with and without signs.
struct Parts {
  std::vector<float> mine;
  std::vector<double> sums, sizes;
};
Parts parts_of_gradient(int rank, int ranks, size_t count, uint32_t seed) {
  Parts parts{{}, std::vector<double>(count), std::vector<double>(count)};
  for (int r = 0; r < ranks; ++r)
    for (size_t i = 0; i < count; ++i) {
      const auto bits = random_bits(key_from_seed(seed + static_cast<uint32_t>(r)), i);
      const float x = static_cast<float>(bits) * 0x1p-31f - 1;  // [-1, 1)
      parts.sums[i] += static_cast<double>(x);
      parts.sizes[i] += std::abs(static_cast<double>(x));
      if (r == rank) parts.mine.push_back(x);
    }
  return parts;
}

// bfloat16 keeps 8 bits: rounding changes a number by at most 2^-8 of it. What a rank gives is rounded, and what each
// collective sums in float32: here twice, a scatter over `data` and a sum over `replica`. Parts of two passes on one
// rank are summed before.
TEST(Gradients, InBfloat16AreOffByARoundingOfPartsAndOneOfEachSum) {
  for (const bool is_sharded : {false, true})
    on_ranks(replicated(2, partitioning({2, 1}, 1, 2)), [&](Comm& comm) {
      const Spec spec{{{"rows", 12}, {"embed", 50}}, DType::f32};
      const Layout whole = Layout::replicated(2);
      Layout sharded = whole, open = whole;
      sharded.dims[1] = {"data"};
      open.partial = {"replica", "data"};
      const Tensor leaf(spec, is_sharded ? sharded : whole, full_slice(spec));
      GradientBuckets buckets(2, ParameterLayers::none(), {.travels = DType::bf16});
      std::vector<double> sums(600), sizes(600);
      for (uint32_t pass = 0; pass < 2; ++pass) {
        const Parts parts = parts_of_gradient(comm.rank(), 4, 600, 10 * pass);
        for (size_t i = 0; i < 600; ++i) sums[i] += parts.sums[i], sizes[i] += parts.sizes[i];
        const Tensor grad(spec, open, full_slice(spec));
        std::ranges::copy(parts.mine, grad.data<float>().begin());
        buckets.add(leaf, grad, 0);
      }
      buckets.finish();
      const Tensor got = resharded(leaf.grad(), whole);
      double most = 0;
      for (size_t i = 0; i < 600; ++i) {
        const double error = std::abs(static_cast<double>(got.data<float>()[i]) - sums[i]);
        const double rounding = 0x1p-8 * sizes[i];
        EXPECT_LE(error, (is_sharded ? 3 : 2) * 1.01 * rounding) << i;
        most = std::max(most, error / rounding);
      }
      EXPECT_GT(most, 0.1);
      std::vector<float> others(4 * 600);
      comm.world().all_gather(got.data<float>().data(), others.data(), 600, DType::f32).wait();
      for (size_t i = 0; i < others.size(); ++i) ASSERT_EQ(others[i], others[i % 600]);
    });
}

// Parameters are gathered and gradients scattered within a replica; shards alone are summed over replicas.
TEST(Gradients, OfReplicasAreSummedShardByShard) {
  const Training training{.optimizer = {}};
  on_ranks(replicated(2, partitioning({2, 2}, 1, 2)), [&](Comm& comm) {
    const auto model = make_model(training);
    model->parameters().initialize(key_from_seed(7));
    comm.traffic().reset();
    run_gradients(training, *model);
    Traffic::Entry shards, scattered;
    for (const ParamInfo& info : model->parameters().all()) {
      const auto& dims = info.value.layout().dims;
      if (std::ranges::find(dims, MeshAxes{"data"}) == dims.end()) continue;
      shards.bytes += Traffic::sent("all_reduce", info.value.bytes(), 2);
      scattered.bytes += Traffic::sent("reduce_scatter", info.value.bytes() * 2, 2);
    }
    shards.calls = scattered.calls = 1;  // small ones go together
    const Traffic::Table sent = comm.traffic().table();
    EXPECT_EQ(sent.at({"all_reduce", "replica"}), shards);
    EXPECT_EQ(sent.at({"reduce_scatter", "data"}), scattered);
    for (const auto& [what, entry] : sent)
      EXPECT_TRUE(what.second.find("replica") == std::string::npos || what.first == "all_reduce")
          << what.first << " over " << what.second;
  });
}

// Encoder and decoder share an embedding, which T5 1.0's logits use too.
TEST(Gradients, OfAnArrayThatIsUsedOftenAreSummedOverRanksOnce) {
  for (const Network network : {Network::t5_1_1, Network::t5_1_0_tied, Network::decoder_only}) {
    SCOPED_TRACE(static_cast<int>(network));
    const Training training{.network = network, .optimizer = {}};
    on_ranks(partitioning({4, 1}, 1, 2), [&](Comm& comm) {
      const auto model = make_model(training);
      model->parameters().initialize(key_from_seed(7));
      comm.traffic().reset();
      run_gradients(training, *model);
      Traffic::Entry scattered;
      for (const ParamInfo& info : model->parameters().all())
        if (info.value.layout().sharded())
          scattered.bytes += Traffic::sent("reduce_scatter", info.value.bytes() * 4, 4);
      scattered.calls = 1;  // small ones go together
      const Traffic::Table sent = comm.traffic().table();
      EXPECT_EQ(sent.at({"reduce_scatter", "data"}), scattered);
    });
  }
}

/// Metrics of the second of two steps of two microbatches, and what it sent; `agreed`: ranks asked each
/// other before it.
struct StepSent {
  Metrics metrics;
  Traffic::Table table;
};
StepSent second_step(const Training& training, Comm& comm, bool agreed) {
  const auto model = make_model(training);
  model->parameters().initialize(key_from_seed(7));
  Trainer trainer(
      loss_of(*model), model->parameters(), optax_optimizer(sgd(0.1)),
      {.num_microbatches = training.microbatches, .learning_rate = [](int64_t) { return 0.01F; }},
      key_from_seed(9));
  StepSent sent;
  for (int64_t i = 0; i < 2; ++i) {
    HostArrays batch = local_rows(make_batch(training, i), training.microbatches);
    comm.traffic().reset();
    if (agreed) model->agree(&batch, training.microbatches, {});
    sent.metrics = trainer.train(batch).metrics;
  }
  sent.table = comm.traffic().table();
  return sent;
}

TEST(Step, RanksAgreeOnAllTheyCountInOneCollective) {
  for (const Network network : {Network::t5_1_1, Network::decoder_only}) {
    const Training training{.network = network, .packed = true, .microbatches = 2, .optimizer = {}};
    on_ranks(partitioning({2, 2}, 1, 2), [&](Comm& comm) {
      const StepSent alone = second_step(training, comm, false);
      const StepSent agreed = second_step(training, comm, true);
      EXPECT_EQ(agreed.metrics.size(), alone.metrics.size());
      for (const auto& [name, metric] : alone.metrics)
        EXPECT_EQ(agreed.metrics.at(name).value(), metric.value()) << name;
      const auto calls = [](const StepSent& sent, const char* group) {
        const auto found = sent.table.find({"all_reduce", group});
        return found == sent.table.end() ? 0 : found->second.calls;
      };
      // Of each microbatch the factor of its loss and the counts of its metrics.
      EXPECT_EQ(calls(alone, "data") - calls(agreed, "data"), 4);
      // The agreement.
      EXPECT_EQ(calls(agreed, "data,model") - calls(alone, "data,model"), 1);
      // Three sums of each loss, and one of all gradients' squares.
      EXPECT_EQ(calls(alone, "data,model"), 2 * 3 + 1);
    });
  }
}

TEST(Step, EveryFlagOfARankIsHeardByAllAndRowsCountOnce) {
  for (int flag = 0; flag < 4; ++flag)
    on_ranks(partitioning({2, 3}, 1, 1), [&](Comm& comm) {
      const bool says = comm.rank() == 4;
      std::vector<double> counts = {comm.rank() < 3 ? 10.0 : 1.0,
                                    0.5};  // of the rows of a data shard
      const StepFlags agreed = agree_on_step(
          {.stop = says && flag == 1, .ended = says && flag == 2, .ruined = says && flag == 3},
          counts);
      EXPECT_EQ(agreed.stop, flag == 1);
      EXPECT_EQ(agreed.ended, flag == 2);
      EXPECT_EQ(agreed.ruined, flag == 3);
      EXPECT_EQ(counts, (std::vector<double>{11, 1}));
    });
}

/// Calls of gathers and bytes of scatters over `data` in the third step, whose gathers are ahead of their
/// use.
std::pair<int64_t, int64_t> gathers_and_scatters(Comm& comm, const Training& training,
                                                 const TrainerOptions& options) {
  const auto model = make_model(training);
  model->parameters().initialize(key_from_seed(7));
  Trainer trainer(loss_of(*model), model->parameters(), with_momentum(), options, key_from_seed(9));
  for (int64_t i = 0; i < 3; ++i) {
    comm.traffic().reset();
    trainer.train(local_rows(make_batch(training, i), options.num_microbatches));
    EXPECT_EQ(trainer.gather_cache().live_bytes(), 0);
  }
  const Traffic::Table sent = comm.traffic().table();
  return {sent.at({"all_gather", "data"}).calls, sent.at({"reduce_scatter", "data"}).bytes};
}

TEST(Microbatches, ThatTakeTurnsShareGathersAndScatters) {
  QT_SKIP_SANITIZED();
  const Training training{.optimizer = {}};
  const Schedule rate = [](int64_t) { return 0.01F; };
  on_ranks(partitioning({2, 2}, 1, 2), [&](Comm& comm) {
    const auto whole = gathers_and_scatters(comm, training, {.learning_rate = rate});
    EXPECT_GT(whole.first, 4);
    EXPECT_EQ(
        gathers_and_scatters(comm, training,
                             {.num_microbatches = 2, .interleave = true, .learning_rate = rate}),
        whole);
    EXPECT_EQ(gathers_and_scatters(comm, training,
                                   {.num_microbatches = 4,
                                    .reduction = GradientReduction::step,
                                    .interleave = true,
                                    .learning_rate = rate}),
              std::pair(2 * whole.first, whole.second));
  });
}

/// Of `training` on this rank after three steps, whose gathers are ahead `ahead_bytes`; the calls and bytes
/// of the third's over `data`.
std::pair<std::map<std::string, std::vector<float>>, StepLog::Sent> gathered_ahead(
    const Training& training, int64_t ahead_bytes) {
  const auto model = make_model(training);
  model->parameters().initialize(key_from_seed(7));
  Trainer trainer(
      loss_of(*model), model->parameters(), with_momentum(),
      {.learning_rate = [](int64_t) { return 0.01F; }, .gather_ahead_bytes = ahead_bytes},
      key_from_seed(9));
  StepLog log;
  for (int64_t i = 0; i < 3; ++i) {
    log = {};
    const StepLog::Use use(log);
    trainer.train(local_rows(make_batch(training, i), 1));
  }
  std::map<std::string, std::vector<float>> values;
  for (const ParamInfo& info : model->parameters().all()) {
    const auto* first = info.value.local().data<float>();
    values[info.name].assign(first, first + info.value.local().elements());
  }
  return {values, log.sent().at({"all_gather", "data"})};
}

TEST(Gathers, OfALayerAreOneCollective) {
  const Training training{.optimizer = {}};
  on_ranks(partitioning({4, 1}, 1, 2), [&](Comm&) {
    const auto [alone, each] = gathered_ahead(training, 0);
    const auto [together, layers] = gathered_ahead(training, GatherCache::kAheadBytes);
    EXPECT_EQ(together, alone);
    EXPECT_EQ(layers.bytes, each.bytes);
    // Forwards and backwards; an encoder's layer and a decoder's, embeddings and logits beside them.
    EXPECT_EQ(each.calls, 61);
    EXPECT_EQ(layers.calls, 9);
  });
}

/// A forward and backward pass on a mesh of which there is one rank, and no device.
StepLog simulated(const Training& training, const Partitioning& on) {
  AbstractDevice device;
  const Device::Use use_device(device);
  Axes mesh;
  for (const MeshAxis& axis : on.mesh) mesh.push_back({axis.name, axis.size});
  const Sharding sharding(mesh, std::vector<int64_t>(mesh.size()), on.rules);
  const Sharding::Use use(sharding);
  const auto model = make_model(training);
  model->parameters().allocate();
  StepLog log;
  const StepLog::Use logging(log);
  run_gradients(training, *model);
  return log;
}

struct Simulated : ::testing::TestWithParam<std::tuple<Training, std::vector<int>>> {};

TEST_P(Simulated, AStepSendsWhatRanksSend) {
  const auto& [training, sizes] = GetParam();
  for (const int activation_dims : {1, 2}) {
    SCOPED_TRACE(activation_dims);
    const Partitioning on = partitioning(sizes, activation_dims, 2);
    std::map<std::pair<std::string, std::string>, StepLog::Sent> sent;
    on_ranks(on, [&](Comm& comm) {
      const auto model = make_model(training);
      model->parameters().initialize(key_from_seed(7));
      comm.traffic().reset();
      run_gradients(training, *model);
      if (comm.rank() == comm.size() - 1)
        for (const auto& [what, entry] : comm.traffic().table())
          sent[what] = {entry.calls, entry.bytes};
    });
    const StepLog log = simulated(training, on);
    EXPECT_FALSE(sent.empty());
    EXPECT_EQ(log.sent(), sent) << log.totals();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Simulated,
    ::testing::Values(
        std::tuple(Training{.optimizer = {}}, std::vector{2, 2}),
        std::tuple(Training{.network = Network::experts, .optimizer = {}}, std::vector{2, 2, 2}),
        std::tuple(Training{.network = Network::experts, .dropless = true, .optimizer = {}},
                   std::vector{1, 4, 1})));

/// What a rank sends over `model` in a simulated forward and backward pass, bytes by collective.
std::map<std::string, int64_t> sent_over_model(const Training& training, const Partitioning& on) {
  const StepLog log = simulated(training, on);
  std::map<std::string, int64_t> bytes;
  for (const auto& [what, sent] : log.sent())
    if (what.second == "model") bytes[what.first] = sent.bytes;
  return bytes;
}

// arXiv:2205.05198, section 4.2.2: an all-reduce of tensor parallelism is a reduce-scatter and an all-gather, so that
// nothing is added; but of a block's input a rank saves its share, and gathers it again for the gradient of its weights.
TEST(SequenceParallelism, SendsWhatTensorParallelismDoesAndGathersInputsAgain) {
  const Training training{.num_layers = 3, .optimizer = {}};
  for (const int model : {2, 4}) {
    const auto tensor = sent_over_model(training, partitioning({1, model}, 1, 1));
    const auto sequence = sent_over_model(training, sequence_parallel(1, model, 1));
    const int64_t unit =
        training.rows * 32 * 4 * (model - 1) / model;  // of a token of each row, float32
    const int64_t inputs = 12 * unit, targets = 8 * unit, encoder_layers = 1;
    // Blocks forward and backward; embedding, output of the encoder, loss.
    const int64_t sums =
        (4 * encoder_layers + 2) * inputs + (6 * training.num_layers + 2) * targets;
    const int64_t again = 2 * encoder_layers * inputs + 3 * training.num_layers * targets;
    // The encoder's output is kept as of the second layer that wants it.
    const int64_t encoded = inputs;
    // Of the loss: a number for each target, and three in all.
    const int64_t log_prob = targets / 32, scalars = Traffic::sent("all_reduce", 3 * 4, model);
    EXPECT_EQ(tensor.at("all_reduce"), 2 * (sums + log_prob) + scalars);
    EXPECT_EQ(sequence.at("reduce_scatter"), sums + log_prob);
    EXPECT_EQ(sequence.at("all_gather") - tensor.at("all_gather"), sums + again + encoded);
  }
}

// Layers that are computed again send again what they send forward. What ops share they share there too: one gather for
// query, key and value, one of the encoder's output for all layers, one sum of its gradients; the MLP's input is still
// there when its gradient wants it.
TEST(SequenceParallelism, SharesGathersInLayersThatAreComputedAgain) {
  const Training plain{.num_layers = 3, .optimizer = {}},
      remat{.remat = "full", .num_layers = 3, .optimizer = {}};
  const int model = 4;
  const Partitioning on = sequence_parallel(1, model, 1);
  const auto once = sent_over_model(plain, on), again = sent_over_model(remat, on);
  const int64_t unit = remat.rows * 32 * 4 * (model - 1) / model;
  const int64_t inputs = 12 * unit, targets = 8 * unit, encoder_layers = 1;
  const int64_t forward = 2 * encoder_layers * inputs + 3 * remat.num_layers * targets,
                of_mlps = encoder_layers * inputs + remat.num_layers * targets, encoded = inputs;
  EXPECT_EQ(again.at("reduce_scatter") - once.at("reduce_scatter"), forward);
  EXPECT_EQ(again.at("all_gather") - once.at("all_gather"), forward - of_mlps - encoded);
}

/// Bytes that a layer of a decoder saves for its gradient.
int64_t saved_by_a_layer(const Partitioning* on) {
  std::array<int64_t, 2> saved{};
  for (const int64_t layers : {2, 3}) {
    const auto measure = [&] {
      const Training training{
          .network = Network::decoder_only, .num_layers = layers, .optimizer = {}};
      const auto model = make_model(training);
      model->parameters().initialize(key_from_seed(7));
      MemoryMeter meter;
      const MemoryMeter::Use use(meter);
      Tape tape;
      const Tape::Recording recording(tape);
      const HostArrays batch = local_rows(make_batch(training, 0));
      const LossOutput step = loss_of(*model)(batch, 0, Rows::all(batch).end, key_from_seed(5));
      if (Sharding const* s = ExecutionContext::current().sharding;
          s == nullptr || s->ranks()->rank() == 0)
        saved[static_cast<size_t>(layers - 2)] =
            meter.used()[static_cast<size_t>(MemoryKind::kActivations)];
    };
    if (on == nullptr)
      measure();
    else
      on_ranks(*on, [&](Comm&) { measure(); });
  }
  return saved[1] - saved[0];
}

// The same paper, equations 2 and 4: tensor parallelism repeats what lies between blocks on every rank, sequence
// parallelism divides all of a layer's activations.
TEST(SequenceParallelism, DividesAllThatALayerSaves) {
  const int64_t alone = saved_by_a_layer(nullptr);
  EXPECT_GT(alone, 0);
  for (const int model : {2, 4}) {
    const Partitioning tensor = partitioning({1, model}, 1, 1),
                       sequence = sequence_parallel(1, model, 1);
    EXPECT_EQ(saved_by_a_layer(&sequence) * model, alone);
    EXPECT_GT(saved_by_a_layer(&tensor) * model, alone);
  }
}

/// Calls and bytes of `collective` over groups with the axis `expert`.
StepLog::Sent over_experts(const StepLog& log, std::string_view collective) {
  StepLog::Sent sum;
  for (const auto& [what, sent] : log.sent())
    if (what.first == collective && what.second.find("expert") != std::string::npos)
      sum.calls += sent.calls, sum.bytes += sent.bytes;
  return sum;
}

// Rows travel, weights do not: what a rank holds of experts' matrices at any time is its own share.
TEST(Experts, AreNeverGathered) {
  const Training training{.network = Network::experts, .optimizer = {}};
  for (const int ranks : {2, 4})
    on_ranks(partitioning({4 / ranks, ranks, 1}, 1, 1), [&](Comm&) {
      const auto model = make_model(training);
      model->parameters().initialize(key_from_seed(7));
      GatherCache gather_cache;
      StepLog log;
      {
        const GatherCache::Use use_gather_cache(gather_cache);
        const StepLog::Use use(log);
        run_gradients(training, *model);
      }
      EXPECT_EQ(gather_cache.peak_bytes(), 0);  // nothing else is sharded in this layout
      EXPECT_EQ(over_experts(log, "all_gather"), StepLog::Sent{}) << log.text();
      EXPECT_EQ(over_experts(log, "reduce_scatter"), StepLog::Sent{}) << log.text();
      // Two sparse layers: counts, rows there and back, their gradients back and there.
      const int64_t layers = 2, experts = 4, embed = 32, float_bytes = 4;
      const int64_t local_rows = training.rows / 4, encoder = local_rows * 12 * 2,
                    decoder = local_rows * 8;
      const int64_t bytes =
          4 * (encoder + decoder) * embed * float_bytes + layers * experts * float_bytes;
      EXPECT_EQ(over_experts(log, "all_to_all"),
                (StepLog::Sent{layers * 5, bytes * (ranks - 1) / ranks}));
      for (const ParamInfo& info : model->parameters().all())
        if (info.name.find("/expert/") != std::string::npos) {
          EXPECT_EQ(info.value.local().size(0), experts / ranks) << info.name;
          EXPECT_EQ(info.value.grad().local().size(0), experts / ranks) << info.name;
        }
    });
}

/// What runs right after each exchange of rows has begun.
std::vector<std::string> ops_after_exchanges(const std::string& log) {
  std::vector<std::string> names;
  bool waits = false;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("all_to_all") != std::string::npos) waits = true;
    if (!waits || line.starts_with(' ')) continue;
    names.push_back(line.substr(0, line.find(' ')));
    waits = false;
  }
  return names;
}

// Sparse layers are the encoder's only one, with an extra MLP behind it, and the decoder's last one.
TEST(Experts, RowsTravelWhileGradientsOfWeightsAreComputed) {
  const Training training{.network = Network::experts, .optimizer = {}};
  on_ranks(partitioning({1, 2, 1}, 1, 1), [&](Comm&) {
    const auto model = make_model(training);
    model->parameters().initialize(key_from_seed(7));
    StepLog log;
    {
      const StepLog::Use use(log);
      run_gradients(training, *model);
    }
    const std::vector<std::string> layer{"dispatch", "experts_in",
                                         "combine"};  // after counts, there, back
    std::vector<std::string> want = layer;
    want.insert(want.end(), layer.begin(), layer.end());
    want.insert(want.end(),
                {"grouped_matmul_t", "grouped_matmul_grad_w"});  // nothing lies behind the decoder
    want.insert(want.end(), {"matmul_grad_w", "grouped_matmul_grad_w"});
    EXPECT_EQ(ops_after_exchanges(log.text()), want) << log.text();
  });
}

}  // namespace
}  // namespace quintet::testing
