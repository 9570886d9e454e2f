// Two models in one process: trained step by step in turns, on one device, on two and on two meshes,
// and generating and serving meanwhile, each has the bits that it has alone.

#include <atomic>

#include "runtime/mesh/mesh.h"
#include "runtime/optim/adafactor/adafactor.h"
#include "runtime/optim/optax/optax.h"
#include "runtime/trainer/batch_rows.h"
#include "tests/layouts/expect.h"
#include "tests/layouts/run.h"
#include "tests/serving/serving_fixture.h"

namespace quintet::testing {
namespace {

using Bits = std::map<std::string, std::vector<std::byte>>;

Training encoder_decoder() { return {.rows = 8, .optimizer = {}}; }
Training prefix_lm() {
  return {.network = Network::decoder_only,
          .mlp_dim = 80,
          .microbatches = 2,
          .rows = 8,
          .optimizer = [] { return optax_optimizer(adamw(3e-3)); }};
}

/// A model that is trained on the device and the mesh that are current when it is made.
class Learner {
 public:
  explicit Learner(const Training& training)
      : training_(training), model_(make_model(training)), sharding_(context().sharding) {
    model_->parameters().initialize(key_from_seed(7));
    trainer_ = std::make_unique<Trainer>(
        loss_of(*model_), model_->parameters(),
        training.optimizer ? training.optimizer() : adafactor({.min_dim_size_to_factor = 16}),
        TrainerOptions{.num_microbatches = training.microbatches,
                       .learning_rate = [](int64_t) { return 0.01F; }},
        key_from_seed(9));
  }

  void step() {
    trainer_->train(batch());
    ASSERT_TRUE(trainer_->skipped_updates() == 0);
  }
  /// What the parameters' blocks on this rank hold.
  HostArrays parameters() const {
    HostArrays arrays;
    for (const ParamInfo& info : model_->parameters().all())
      arrays[info.name] = info.value.to_host();
    return arrays;
  }
  Bits bits() const {
    Bits bits;
    for (const auto& [name, array] : parameters())
      bits[name].assign(array.bytes.begin(), array.bytes.end());
    return bits;
  }
  const BaseModel& model() const { return *model_; }

 private:
  static const ExecutionContext& context() { return ExecutionContext::current(); }
  HostArrays batch() const {
    const ContextMember<&ExecutionContext::sharding> on_its_mesh(sharding_);
    return local_rows(make_batch(training_, trainer_->step()), training_.microbatches);
  }

  Training training_;
  std::unique_ptr<BaseModel> model_;
  const Sharding* sharding_;
  std::unique_ptr<Trainer> trainer_;
};

constexpr int kSteps = 4;

Bits alone(const Training& training) {
  Learner learner(training);
  for (int i = 0; i < kSteps; ++i) learner.step();
  return learner.bits();
}

/// Each learns kSteps times, the second one twice in a row.
void in_turns(
    Learner& one, Learner& other, const std::function<void()>& between = [] {}) {
  for (int i = 0; i < kSteps; ++i) {
    (i % 2 == 0 ? one : other).step();
    between();
    (i % 2 == 0 ? other : one).step();
    between();
  }
}

const EngineOptions kOptions{.memory_bytes = 1 << 22, .max_rows = 4};

/// Tokens and their log-probabilities from a served network, one greedy request after the other.
std::vector<float> answers(
    const ModelSpec& spec,
    const std::function<std::unique_ptr<serving::ServedNetwork>()>& network) {
  std::vector<float> all;
  for (const int32_t last : {5, 11, 17}) {
    DecodingRequest request;
    request.rules.max_new_tokens = 6;
    Job job = generation_job(spec.decoder_only() ? TokenList{0, 9, last} : TokenList{9, last, 1},
                             std::move(request), spec.vocab_size);
    Ended ended;
    watch(job, ended);
    serving::Engine engine(network(), kOptions);
    engine.submit(std::move(job));
    engine.close();
    engine.run();
    EXPECT_TRUE(ended.over && ended.error == nullptr);
    for (const Hypothesis& result : ended.results)
      for (const auto& token : result.tokens)
        all.insert(all.end(), {static_cast<float>(token.token), token.log_prob});
  }
  EXPECT_FALSE(all.empty());
  return all;
}

/// On the CPU, from a copy of the parameters as they are.
std::vector<float> answers_on_cpu(const ModelSpec& spec, const HostArrays& parameters) {
  const Device::Use on_cpu(Device::cpu());
  const PackedNetwork network(spec, source_of(parameters));
  return answers(spec, [&] { return serving::cpu_network(network, kOptions); });
}

/// On the device where the model is trained, which is the current one.
std::vector<float> answers_where_it_learns(const Learner& learner) {
  if (Device::current().is_cpu())
    return answers_on_cpu(learner.model().spec(), learner.parameters());
  return answers(learner.model().spec(),
                 [&] { return serving::gpu_network(learner.model(), kOptions); });
}

// Where a GPU is current, the second model learns on the CPU.
TEST(TwoModels, LearnInTurnsWhatEachLearnsAlone) {
  for (Device* other_device : {&Device::current(), &Device::cpu()}) {
    SCOPED_TRACE(other_device->description());
    const Bits want = alone(encoder_decoder());
    Learner one(encoder_decoder());
    std::optional<Learner> other;
    Bits want_of_other;
    {
      const Device::Use use(*other_device);
      want_of_other = alone(prefix_lm());
      other.emplace(prefix_lm());
    }
    Device& device = Device::current();
    in_turns(one, *other, [&] { ASSERT_EQ(&Device::current(), &device); });
    EXPECT_EQ(one.bits(), want);
    EXPECT_EQ(other->bits(), want_of_other);
  }
}

TEST(TwoModels, LearnInTurnsOnMeshesOfTheirOwn) {
  on_ranks(partitioning({2, 2}, 1, 2), [](Comm& comm) {
    const Partitioning second = partitioning({4, 1}, 1, 2);
    const Mesh mesh(second.mesh, &comm);
    const Sharding sharding(mesh, second.rules);
    const Sharding* const ambient = ExecutionContext::current().sharding;
    const Bits want = alone(encoder_decoder());
    Learner one(encoder_decoder());
    std::optional<Learner> other;
    Bits want_of_other;
    {
      const Sharding::Use use(sharding);
      want_of_other = alone(prefix_lm());
      other.emplace(prefix_lm());
    }
    in_turns(one, *other, [&] { ASSERT_EQ(ExecutionContext::current().sharding, ambient); });
    EXPECT_EQ(one.bits(), want);
    EXPECT_EQ(other->bits(), want_of_other);
  });
}

TEST(TwoModels, GenerateBetweenTheStepsOfBoth) {
  const int steps =
      Device::current().is_cpu() ? kSteps : 2;  // the emulator takes ten seconds for each
  const auto learn_and_answer = [steps](const Training& training) {
    Learner learner(training);
    std::vector<std::vector<float>> all;
    for (int i = 0; i < steps; ++i) {
      learner.step();
      all.push_back(answers_where_it_learns(learner));
    }
    return all;
  };
  const auto want = learn_and_answer(encoder_decoder());
  const auto want_of_other = learn_and_answer(prefix_lm());
  Learner one(encoder_decoder()), other(prefix_lm());
  std::vector<std::vector<float>> got, got_of_other;
  for (int i = 0; i < steps; ++i) {
    one.step(), other.step();
    got.push_back(answers_where_it_learns(one));
    got_of_other.push_back(answers_where_it_learns(other));
  }
  EXPECT_EQ(got, want);
  EXPECT_EQ(got_of_other, want_of_other);
  EXPECT_NE(want.front(), want.back());  // they do learn
}

TEST(TwoModels, AreServedWhileTheyLearn) {
  Learner one(encoder_decoder()), other(prefix_lm());
  const HostArrays first = one.parameters(), first_of_other = other.parameters();
  const ModelSpec &spec = one.model().spec(), &spec_of_other = other.model().spec();
  const auto want = answers_on_cpu(spec, first);
  const auto want_of_other = answers_on_cpu(spec_of_other, first_of_other);
  const Bits learnt = alone(encoder_decoder()), learnt_of_other = alone(prefix_lm());
  std::atomic<bool> over = false;
  std::atomic<int> asked = 0;
  std::thread server([&] {
    do {
      EXPECT_EQ(answers_on_cpu(spec, first), want);
      EXPECT_EQ(answers_on_cpu(spec_of_other, first_of_other), want_of_other);
      ++asked;
    } while (!over);
  });
  in_turns(one, other);
  over = true;
  server.join();
  EXPECT_GT(asked, 0);
  EXPECT_EQ(one.bits(), learnt);
  EXPECT_EQ(other.bits(), learnt_of_other);
}

}  // namespace
}  // namespace quintet::testing
