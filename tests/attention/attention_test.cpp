// What the op cases cannot show: gradients through queries that may attend to nothing, NaN,
// threads, and the errors.

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <omp.h>

#include <limits>

#include "tests/harness/threads.h"
#include "tests/ops/attention_oracle.h"
#include "tests/ops/buffers.h"

namespace quintet::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Call {
  int64_t batch = 3, queries = 9, keys = 9, heads = 2, depth = 5;
  std::vector<Buffer> inputs, outputs, gradients;
  Attrs attrs;

  // ids: of queries and keys; empty: no segments.
  Call(std::vector<double> ids, Attrs given, int64_t length = 9)
      : queries(length), keys(length), attrs(std::move(given)) {
    attrs.set("h", heads);
    if (!attrs.has("max_distance")) attrs.set("max_distance", int64_t{6});
    const Shape x{batch, length, heads * depth};
    const Operand segments =
        ids.empty() ? no_operand() : values({batch, length}, std::move(ids), DType::i32);
    std::mt19937_64 random(5);
    for (const Operand& o : {normal(x), normal(x), normal(x), normal({heads, 8}), segments,
                             segments, no_operand(), no_operand()})
      inputs.push_back(make_input(o, random, 0));
    for (const Shape& shape : {x, Shape{batch, heads, length}})
      outputs.push_back(make_output(result(shape), 0));
    dout_ = make_input(normal(x), random, 0);
    for (const Shape& shape : {x, x, x, Shape{heads, 8}})
      gradients.push_back(make_output(result(shape), 0));
  }
  void forward() { run(attention_cpu, inputs, {}, outputs); }
  void backward() {
    run(attention_grad_cpu, inputs, {&outputs[0], &outputs[1], &dout_}, gradients);
  }
  Buffer& dout() { return dout_; }
  Arrays arrays() const {
    Arrays made;
    for (const Buffer& b : inputs) made.push_back(to_array(b));
    return made;
  }

 private:
  void run(Kernel kernel, const std::vector<Buffer>& in, std::vector<const Buffer*> more,
           std::vector<Buffer>& out) {
    std::vector<const Buffer*> from;
    for (const Buffer& b : in) from.push_back(&b);
    from.insert(from.end(), more.begin(), more.end());
    std::vector<Buffer*> to;
    for (Buffer& b : out) to.push_back(&b);
    launch(kernel, from, to, attrs);
  }
  Buffer dout_;
};

void expect_oracle_gradients(Call& call) {
  call.forward();
  call.backward();
  Arrays want;
  for (const Buffer& b : call.gradients) want.push_back(to_array(b));
  const Arrays in = call.arrays();
  AttentionOracle(in, call.attrs)
      .gradient(to_array(call.dout()), want[0], want[1], want[2], want[3]);
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<double> got = call.gradients[i].load();
    for (size_t e = 0; e < got.size(); ++e)
      ASSERT_NEAR(got[e], want[i].values[e], 2e-5) << "gradient " << i << ", element " << e;
  }
}

const std::vector<double> kPadded{1, 1, 1, 2, 2, 0, 0, 0, 0,  //
                                  1, 1, 1, 1, 1, 1, 1, 1, 0,  //
                                  0, 0, 0, 0, 0, 0, 0, 0, 0};

TEST(Attention, GradientsFlowThroughQueriesThatMayAttendToNothing) {
  for (const bool causal : {false, true})
    for (const double rate : {0.0, 0.4}) {
      SCOPED_TRACE(fmt::format("causal {}, rate {}", causal, rate));
      Call call(kPadded, {{"causal", causal},
                          {"scale", 0.7},
                          {"rate", rate},
                          {"key0", int64_t{1}},
                          {"key1", int64_t{2}}});
      expect_oracle_gradients(call);
    }
}

TEST(Attention, QueriesWithoutAGradientAreLeftOutRightly) {
  Call call(kPadded, {{"causal", true}});
  std::vector<double> dout = call.dout().load();
  for (size_t i = 0; i < dout.size(); i += 20)
    std::fill_n(dout.begin() + static_cast<long>(i), 10, 0.0);
  call.dout().store(dout);
  expect_oracle_gradients(call);
  call.dout().store(std::vector<double>(dout.size(), 0.0));
  expect_oracle_gradients(call);
}

TEST(Attention, ANanInAQueryReachesItsOutputAndGradientsAndNoOther) {
  for (const int64_t length : {int64_t{3}, int64_t{9}}) {
    SCOPED_TRACE(length);
    Call call({}, {{"causal", true}}, length);
    std::vector<double> q = call.inputs[0].load();
    q[0] = kNan;  // of sequence 0, query 0, head 0, which may attend to key 0 alone
    call.inputs[0].store(q);
    call.forward();
    call.backward();
    const std::vector<double> out = call.outputs[0].load(), dq = call.gradients[0].load();
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(std::isnan(out[i]), i < 5) << "out " << i;
      EXPECT_EQ(std::isnan(dq[i]), i < 5) << "dq " << i;
    }
    EXPECT_TRUE(std::isnan(call.gradients[1].load()[0]));
    EXPECT_TRUE(std::isnan(call.gradients[3].load()[0]));
  }
}

TEST(Attention, AnInfiniteScoreIsNotHidden) {
  Call call({}, {});
  std::vector<double> k = call.inputs[1].load();
  k[7] = std::numeric_limits<double>::infinity();
  call.inputs[1].store(k);
  call.forward();
  const std::vector<double> q = call.inputs[0].load(), out = call.outputs[0].load();
  for (size_t i = 0; i < 9; ++i)  // the score is +infinity or -infinity, as q's sign says
    EXPECT_EQ(std::isnan(out[i * 10 + 5]), q[i * 10 + 7] > 0) << "query " << i;
}

TEST(Attention, ThreadsDoNotChangeABit) {
  std::vector<std::vector<std::byte>> seen;
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 5}) {
    use_threads(threads);
    Call call({}, {{"causal", true}}, 140);
    call.forward();
    call.backward();
    std::vector<std::byte> bytes;
    for (const auto* buffers : {&call.outputs, &call.gradients})
      for (const Buffer& b : *buffers)
        bytes.insert(bytes.end(), b.bytes().begin(), b.bytes().end());
    seen.push_back(std::move(bytes));
  }
  use_threads(before);
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(Attention, ScoresFarFromZeroNeitherOverflowNorVanish) {
  Call call({}, {{"scale", 100.0}}, 40);
  call.forward();
  call.backward();
  for (const auto* buffers : {&call.outputs, &call.gradients})
    for (const Buffer& b : *buffers)
      for (double x : b.load()) EXPECT_TRUE(std::isfinite(x));
}

TEST(Attention, EveryInstructionSetAgreesWithTheOracle) {
  const std::vector<int64_t> all = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(all.empty());
  for (const int64_t target : all) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (const int64_t length : {int64_t{3}, int64_t{47}}) {
      Call call({}, {{"causal", true}, {"rate", 0.2}, {"key0", int64_t{8}}, {"key1", int64_t{9}}},
                length);
      expect_oracle_gradients(call);
      const Arrays in = call.arrays();
      Array out = to_array(call.outputs[0]), lse = to_array(call.outputs[1]);
      AttentionOracle(in, call.attrs).forward(out, lse);
      const std::vector<double> got = call.outputs[0].load();
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], out.values[i], 1e-5) << i;
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Attention, MistakesAreNamed) {
  EXPECT_NE(message_of([] {
              Call({}, {{"rate", 1.0}, {"key0", int64_t{0}}, {"key1", int64_t{0}}}).forward();
            }).find("dropout rate 1 must be at least 0 and below 1"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Call({}, {{"max_distance", int64_t{1}}}).forward();
            }).find("max_distance 1"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Call call(kPadded, {});
              call.inputs[5] = Buffer();
              call.forward();
            }).find("must be given together"),
            std::string::npos);
}

}  // namespace
}  // namespace quintet::testing
