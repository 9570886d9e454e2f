// The ladder of proof of every op case; see harness.h.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tests/ops/buffers.h"

namespace quintet::testing {
namespace {

constexpr double kStep = 1e-5;       // central differences in double: error about 1e-10
constexpr int64_t kMostProbes = 48;  // elements of an input whose derivative is checked

::testing::AssertionResult near(const std::vector<double>& got, const std::vector<double>& want,
                                double tolerance) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << "sizes " << got.size() << " and " << want.size();
  double largest = 1;
  for (double w : want)
    if (std::isfinite(w)) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= tolerance * largest) && got[i] != want[i])
      return ::testing::AssertionFailure()
             << "element " << i << " of " << got.size() << ": got " << got[i] << ", want "
             << want[i] << ", limit " << tolerance * largest;
  return ::testing::AssertionSuccess();
}

Arrays arrays(const std::vector<Buffer>& buffers) {
  Arrays made;
  for (const Buffer& b : buffers) made.push_back(to_array(b));
  return made;
}

Arrays oracle_outputs(const OpCase& c, const Arrays& in) {
  Arrays out;
  for (const Result& r : c.outputs) {
    Array a = to_array(make_output(r, 0));
    std::fill(a.values.begin(), a.values.end(), std::nan(""));
    out.push_back(std::move(a));
  }
  c.oracle(in, out, c.attrs);
  return out;
}

void expect_guards(const std::vector<Buffer>& buffers, const char* what) {
  for (size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(buffers[i].absent() || buffers[i].guards_intact())
        << "the kernel wrote outside " << what << " " << i;
}

bool same_bytes(const Buffer& a, const Buffer& b) {
  return a.absent() || a.bytes().empty() ||
         std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
}

class Ops : public ::testing::TestWithParam<OpCase> {};

TEST_P(Ops, AgreesWithTheOracle) {
  const OpCase& c = GetParam();
  for (int shift : {0, 1}) {
    SCOPED_TRACE(shift == 0 ? "aligned buffers" : "unaligned buffers");
    Prepared p = prepare(c, shift);
    const Arrays in = arrays(p.inputs);
    p.run(c);
    expect_guards(p.inputs, "input");
    expect_guards(p.outputs, "output");
    const Prepared untouched = prepare(c, shift);
    for (size_t i = 0; i < p.inputs.size(); ++i)
      EXPECT_TRUE(same_bytes(p.inputs[i], untouched.inputs[i])) << "changed input " << i;
    const Arrays want = oracle_outputs(c, in);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(near(p.outputs[i].load(), want[i].values, c.tolerance)) << "output " << i;
  }
}

TEST_P(Ops, GivesEqualBytesTwice) {
  const OpCase& c = GetParam();
  Prepared first = prepare(c, 0), second = prepare(c, 0);
  first.run(c);
  second.run(c);
  for (size_t i = 0; i < first.outputs.size(); ++i)
    EXPECT_TRUE(same_bytes(first.outputs[i], second.outputs[i])) << "output " << i;
}

void check_adding(const OpCase& c) {
  Prepared alone = prepare(c, 0);
  alone.run(c);
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place ? "in place" : "apart");
    Adding adding(c, in_place, 1);
    const std::vector<Buffer*> operands = adding.operands(), results = adding.results();
    launch(c.kernel, std::vector<const Buffer*>(operands.begin(), operands.end()), results,
           c.attrs);
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(
          near(results[i]->load(), adding.expected(i, alone.outputs[i].load()), 2 * c.tolerance))
          << "output " << i;
    EXPECT_EQ(adding.damage(1), "");
  }
}

class OpSums : public ::testing::TestWithParam<OpCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpSums);

TEST_P(OpSums, AddToWhatIsThere) { check_adding(GetParam()); }

// The weighted sum of outputs whose gradient is asked for.
struct Objective {
  const OpCase& c;
  std::vector<std::vector<double>> weights;  // per output; empty: not part of it

  double operator()(const Arrays& in) const {
    const Arrays out = oracle_outputs(c, in);
    double sum = 0;
    for (size_t o = 0; o < out.size(); ++o)
      for (size_t i = 0; i < weights[o].size(); ++i) sum += weights[o][i] * out[o].values[i];
    return sum;
  }
};

// Compares `gradient`, of input `wrt`, with central differences at up to kMostProbes elements.
void expect_derivatives(const Objective& objective, Arrays in, int wrt,
                        const std::vector<double>& gradient, double tolerance) {
  Array& x = in[static_cast<size_t>(wrt)];
  ASSERT_EQ(gradient.size(), x.values.size());
  double largest = 1;
  for (double g : gradient) largest = std::max(largest, std::abs(g));
  const auto n = static_cast<int64_t>(gradient.size());
  const int64_t stride = std::max<int64_t>(1, n / kMostProbes);
  for (int64_t i = 0; i < n; i += stride) {
    const double at = x[i];
    x[i] = at + kStep;
    const double up = objective(in);
    x[i] = at - kStep;
    const double down = objective(in);
    x[i] = at;
    const double want = (up - down) / (2 * kStep);
    ASSERT_NEAR(gradient[static_cast<size_t>(i)], want, tolerance * largest)
        << "gradient of input " << wrt << ", element " << i << " of " << n;
  }
}

void check_call(const OpCase& c, const GradCall& call, const Prepared& p,
                const std::vector<Buffer>& cotangents, const Objective& objective, int shift) {
  const Buffer absent;
  std::vector<const Buffer*> in;
  for (const Source& s : call.operands) {
    const auto i = static_cast<size_t>(s.index);
    switch (s.kind) {
      case Source::Kind::kInput:
        in.push_back(&p.inputs[i]);
        break;
      case Source::Kind::kOutput:
        in.push_back(&p.outputs[i]);
        break;
      case Source::Kind::kCotangent:
        in.push_back(&cotangents[i]);
        break;
      case Source::Kind::kNone:
        in.push_back(&absent);
        break;
    }
  }
  std::vector<Buffer> results, again;
  for (int wrt : call.results) {
    const auto make = [&] {
      if (wrt < 0) return Buffer();
      const Operand& o = c.inputs[static_cast<size_t>(wrt)];
      return make_output({o.shape, o.dtype, o.absent, o.origin, o.global}, shift);
    };
    results.push_back(make());
    again.push_back(make());
  }
  for (auto* set : {&results, &again}) {
    for (const Shape& shape : call.others) set->push_back(make_output(result(shape), shift));
    std::vector<Buffer*> out;
    for (Buffer& b : *set) out.push_back(&b);
    launch(call.kernel, in, out, c.attrs);
  }
  expect_guards(results, "gradient result");
  if (!call.adds.empty()) check_adding(call_case(c, call, in, results));
  const Arrays inputs = arrays(p.inputs);
  for (size_t r = 0; r < results.size(); ++r) {
    EXPECT_TRUE(same_bytes(results[r], again[r])) << "gradient result " << r << " differs twice";
    if (r < call.results.size() && !results[r].absent())
      expect_derivatives(objective, inputs, call.results[r], results[r].load(), c.grad_tolerance);
  }
}

class OpGradients : public ::testing::TestWithParam<OpCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpGradients);

TEST_P(OpGradients, AreTheDerivatives) {
  const OpCase& c = GetParam();
  Prepared p = prepare(c, 1);
  p.run(c);
  std::set<int> wanted;
  for (const GradCall& g : c.grads)
    for (const Source& s : g.operands)
      if (s.kind == Source::Kind::kCotangent) wanted.insert(s.index);
  std::mt19937_64 random(c.seed + 1);
  std::vector<Buffer> cotangents;
  Objective objective{c, {}};
  for (size_t o = 0; o < c.outputs.size(); ++o) {
    const bool used = wanted.contains(static_cast<int>(o));
    Operand weight = used ? normal(c.outputs[o].shape) : no_operand();
    weight.origin = c.outputs[o].origin;
    weight.global = c.outputs[o].global;
    cotangents.push_back(make_input(weight, random, 1));
    objective.weights.push_back(cotangents.back().load());
  }
  for (const GradCall& call : c.grads) check_call(c, call, p, cotangents, objective, 1);

  for (const OwnGradient& g : c.own_gradients) {
    Objective one{c, std::vector<std::vector<double>>(c.outputs.size())};
    one.weights[static_cast<size_t>(g.of)] = {1.0};
    expect_derivatives(one, arrays(p.inputs), g.wrt,
                       p.outputs[static_cast<size_t>(g.gradient)].load(), c.grad_tolerance);
  }
}

std::vector<OpCase> tested_cases() {
  std::vector<OpCase> cases = all_cases();
  std::erase_if(cases, [](const OpCase& c) { return c.only_bench; });
  return cases;
}

std::vector<OpCase> differentiated_cases() {
  std::vector<OpCase> cases = tested_cases();
  std::erase_if(cases, [](const OpCase& c) { return c.grads.empty() && c.own_gradients.empty(); });
  return cases;
}

std::vector<OpCase> adding_cases() {
  std::vector<OpCase> cases = tested_cases();
  std::erase_if(cases, [](const OpCase& c) { return c.adds.empty(); });
  return cases;
}

std::string test_name(const ::testing::TestParamInfo<OpCase>& info) {
  std::string name = info.param.name;
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Ops, ::testing::ValuesIn(tested_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpSums, ::testing::ValuesIn(adding_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpGradients, ::testing::ValuesIn(differentiated_cases()),
                         test_name);

}  // namespace
}  // namespace quintet::testing
