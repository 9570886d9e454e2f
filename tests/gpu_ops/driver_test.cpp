// The cases of tests/ops on a GPU: float32 against the oracle and the CPU's gradients, bfloat16
// against the oracle on rounded inputs; guards, untouched inputs, equal bytes twice. Which device
// is the environment variable QUINTET_TEST_DEVICE, "emulated" by default; on the emulator each case
// runs under three schedules, with the kernels of sm_80 and of sm_90.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "runtime/device/devices.h"
#include "tests/gpu_ops/launcher.h"
#include "tests/simt/schedules.h"

namespace quintet::testing {
namespace {

// Relative L2 distance that bfloat16 operands with float32 accumulation stay below: rounding an
// operand or a result costs 2^-9 = 0.002 each; gradients of tables are differences of large sums.
constexpr double kBf16Tolerance = 1e-2, kBf16TableTolerance = 2e-2;

struct GpuCase {
  OpCase op_case;
  bool bf16 = false;
};
void PrintTo(const GpuCase& c, std::ostream* out) {
  *out << c.op_case.name << (c.bf16 ? " bfloat16" : " float32");
}

const char* device_name() {
  const char* name = std::getenv("QUINTET_TEST_DEVICE");
  return name != nullptr ? name : "emulated";
}
bool emulated() { return std::string_view(device_name()).starts_with("emulated"); }

OpCase in_bf16(OpCase c, const Op& op) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const RuleOperand& operand = op.rule.inputs[i];
    if (!c.inputs[i].absent && !operand.float32 && !operand.int32) c.inputs[i].dtype = DType::bf16;
  }
  for (size_t o = 0; o < c.outputs.size(); ++o)
    if (is_floating(c.outputs[o].dtype) && !op.rule.outputs[o].float32)
      c.outputs[o].dtype = DType::bf16;
  return c;
}

std::vector<Buffer*> pointers(std::vector<Buffer>& buffers) {
  std::vector<Buffer*> all;
  for (Buffer& b : buffers) all.push_back(&b);
  return all;
}

double largest_of(const std::vector<double>& values) {
  double largest = 1;
  for (double v : values)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  return largest;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  const double limit = tolerance * largest_of(want);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == want[i] || std::abs(got[i] - want[i]) <= limit)
        << what << ", element " << i << " of " << got.size() << ": got " << got[i] << ", want "
        << want[i] << ", limit " << limit;
}

/// `terms`: how many numbers of either sign a sum adds, each about 5; it may cancel to nothing.
void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what, double terms = 0) {
  ASSERT_EQ(got.size(), want.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  // The constants let a sum that cancels to nothing be rounding of its terms.
  const double limit =
      tolerance * (std::sqrt(norm) + 1e-3 * std::sqrt(double(got.size())) + 5 * std::sqrt(terms));
  EXPECT_LE(std::sqrt(error), limit) << what << ": norm of the expected " << std::sqrt(norm);
  EXPECT_FALSE(std::isnan(error)) << what;
}

void expect_same_bytes(const Buffer& a, const Buffer& b, const std::string& what) {
  if (a.absent() || a.bytes().empty()) return;
  EXPECT_EQ(std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()), 0) << what;
}

Prepared run_forward(const OpCase& c, const Op& op, int shift) {
  Prepared p = prepare(c, shift);
  launch_on_device(op, pointers(p.inputs), pointers(p.outputs), c.attrs);
  const Prepared untouched = prepare(c, shift);
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    EXPECT_TRUE(p.inputs[i].absent() || p.inputs[i].guards_intact()) << "guards of input " << i;
    expect_same_bytes(p.inputs[i], untouched.inputs[i], fmt::format("changed input {}", i));
  }
  for (size_t i = 0; i < p.outputs.size(); ++i)
    EXPECT_TRUE(p.outputs[i].absent() || p.outputs[i].guards_intact()) << "guards of output " << i;
  return p;
}

void check_forward(const OpCase& c, const Op& op, bool bf16, int shift) {
  const Prepared p = run_forward(c, op, shift);
  const Prepared again = run_forward(c, op, shift);
  Arrays in, want;
  for (const Buffer& b : p.inputs) in.push_back(to_array(b));
  for (const Result& r : c.outputs) want.push_back(to_array(make_output(r, 0)));
  c.oracle(in, want, c.attrs);
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string what = fmt::format("output {}", i);
    expect_same_bytes(p.outputs[i], again.outputs[i], what + " differs twice");
    if (!bf16)
      expect_near(p.outputs[i].load(), want[i].values, c.tolerance, what);
    else
      expect_close(
          p.outputs[i].load(), want[i].values, kBf16Tolerance, what,
          c.name.starts_with("cross_entropy") && i < 3 ? static_cast<double>(in[0].rows()) : 0);
  }
}

void check_adding(const OpCase& c, const Op& op) {
  const Prepared alone = run_forward(c, op, 0);
  for (size_t i = 0; i < c.outputs.size(); ++i)
    EXPECT_EQ(std::ranges::count(c.adds, static_cast<int>(i)), op.rule.outputs[i].adds ? 1 : 0);
  for (const bool in_place : {false, true}) {
    Adding adding(c, in_place, 0);
    const std::vector<Buffer*> results = adding.results();
    launch_on_device(op, adding.operands(), results, c.attrs);
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string what = fmt::format("output {} {}", i, in_place ? "in place" : "apart");
      const std::vector<double> want = adding.expected(i, alone.outputs[i].load());
      if (c.outputs[i].dtype != DType::bf16)
        expect_near(results[i]->load(), want, 2 * c.tolerance, what);
      else
        expect_close(results[i]->load(), want, kBf16Tolerance, what);
    }
    EXPECT_EQ(adding.damage(0), "");
  }
}

std::vector<Buffer*> operands_of(const GradCall& call, Prepared& p,
                                 std::vector<Buffer>& cotangents) {
  static Buffer absent;
  std::vector<Buffer*> in;
  for (const Source& s : call.operands) {
    const auto i = static_cast<size_t>(s.index);
    in.push_back(s.kind == Source::Kind::kInput       ? &p.inputs[i]
                 : s.kind == Source::Kind::kOutput    ? &p.outputs[i]
                 : s.kind == Source::Kind::kCotangent ? &cotangents[i]
                                                      : &absent);
  }
  return in;
}

/// One gradient call on a device (`op` given) or on the CPU, from the forward results in `p`.
std::vector<Buffer> run_gradient(const OpCase& c, const GradCall& call, Prepared& p,
                                 std::vector<Buffer>& cotangents, const Op* op,
                                 const std::vector<DType>& dtypes) {
  const std::vector<Buffer*> in = operands_of(call, p, cotangents);
  std::vector<Buffer> results;
  for (size_t r = 0; r < call.results.size(); ++r) {
    if (call.results[r] < 0) {
      results.emplace_back();
      continue;
    }
    const Operand& o = c.inputs[static_cast<size_t>(call.results[r])];
    results.push_back(make_output({o.shape, dtypes[r], o.absent, o.origin, o.global}, 0));
  }
  for (size_t r = 0; r < call.others.size(); ++r)
    results.push_back(make_output(result(call.others[r], dtypes[call.results.size() + r]), 0));
  if (op != nullptr)
    launch_on_device(*op, in, pointers(results), c.attrs);
  else {
    std::vector<const Buffer*> constant(in.begin(), in.end());
    launch(call.kernel, constant, pointers(results), c.attrs);
  }
  return results;
}

std::vector<Buffer> make_cotangents(const OpCase& c) {
  std::mt19937_64 random(c.seed + 1);
  std::vector<Buffer> cotangents;
  for (const Result& r : c.outputs) {
    Operand weight = normal(r.shape);
    weight.dtype = r.dtype;
    weight.absent = r.absent;
    weight.origin = r.origin;
    weight.global = r.global;
    cotangents.push_back(make_input(weight, random, 0));
  }
  return cotangents;
}

/// `rounded`, a bfloat16 buffer, as float32: what the CPU computes the expected gradient from.
Buffer widened(const Buffer& rounded) {
  if (rounded.absent() || rounded.view().dtype != DType::bf16) {
    if (rounded.absent()) return Buffer();
    const View& v = rounded.view();
    Buffer same({v.sizes.begin(), v.sizes.begin() + v.rank}, v.dtype,
                {v.origin.begin(), v.origin.begin() + v.rank},
                {v.global.begin(), v.global.begin() + v.rank}, 0);
    same.store(rounded.load());
    return same;
  }
  const View& v = rounded.view();
  Buffer wide({v.sizes.begin(), v.sizes.begin() + v.rank}, DType::f32,
              {v.origin.begin(), v.origin.begin() + v.rank},
              {v.global.begin(), v.global.begin() + v.rank}, 0);
  wide.store(rounded.load());
  return wide;
}

void check_gradients(const OpCase& c, const Op& op, bool bf16) {
  Prepared p = run_forward(c, op, 0);
  std::vector<Buffer> cotangents = make_cotangents(c);
  Prepared wide;
  std::vector<Buffer> wide_cotangents;
  for (const Buffer& b : p.inputs) wide.inputs.push_back(widened(b));
  for (const Result& r : c.outputs) {
    Result f32 = r;
    if (r.dtype == DType::bf16) f32.dtype = DType::f32;
    wide.outputs.push_back(make_output(f32, 0));
  }
  wide.run(c);
  for (const Buffer& b : cotangents) wide_cotangents.push_back(widened(b));
  for (const GradCall& call : c.grads) {
    const Op* gradient = op_of(call.kernel);
    ASSERT_NE(gradient, nullptr);
    std::vector<DType> dtypes, f32(call.results.size() + call.others.size(), DType::f32);
    for (size_t r = 0; r < f32.size(); ++r)
      dtypes.push_back(bf16 && !gradient->rule.outputs[r].float32 ? DType::bf16 : DType::f32);
    const auto got = run_gradient(c, call, p, cotangents, gradient, dtypes);
    const auto again = run_gradient(c, call, p, cotangents, gradient, dtypes);
    if (!call.adds.empty()) {
      const std::vector<Buffer*> operands = operands_of(call, p, cotangents);
      check_adding(call_case(c, call, {operands.begin(), operands.end()}, got), *gradient);
    }
    const auto want = run_gradient(c, call, wide, wide_cotangents, nullptr, f32);
    for (size_t r = 0; r < got.size(); ++r) {
      const std::string what = fmt::format("{} result {}", gradient->name, r);
      if (got[r].absent()) continue;
      EXPECT_TRUE(got[r].guards_intact()) << what << ": guards";
      expect_same_bytes(got[r], again[r], what + " differs twice");
      if (!bf16)
        expect_near(got[r].load(), want[r].load(), c.grad_tolerance, what);
      else
        expect_close(got[r].load(), want[r].load(),
                     gradient->rule.outputs[r].float32 ? kBf16TableTolerance : kBf16Tolerance,
                     what);
    }
  }
}

class GpuOps : public ::testing::TestWithParam<GpuCase> {
 protected:
  void SetUp() override {
    const auto& [c, bf16] = GetParam();
    op_ = op_of(c.kernel);
    if (op_ == nullptr) GTEST_SKIP() << "not an op of ops.def";
    try {
      static Device& device = use_device(device_name());
      (void)device;
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    case_ = bf16 ? in_bf16(c, *op_) : c;
  }
  /// Under each schedule of the emulator; once on a GPU.
  template <class Body>
  static void run(const Body& body) {
    emulated() ? on_every_schedule(body) : body();
  }
  const Op* op_ = nullptr;
  OpCase case_;
};

TEST_P(GpuOps, AgreesWithTheOracle) {
  run([&] {
    check_forward(case_, *op_, GetParam().bf16, 0);
    check_forward(case_, *op_, GetParam().bf16, 1);
  });
}

TEST_P(GpuOps, AddsToWhatIsThere) {
  const auto adds = [](const RuleOperand& result) { return result.adds; };
  if (std::ranges::none_of(op_->rule.outputs, adds)) GTEST_SKIP() << "results are made alone";
  run([&] { check_adding(case_, *op_); });
}

TEST_P(GpuOps, HasTheGradientsOfTheCpu) {
  if (case_.grads.empty()) GTEST_SKIP() << "the op is a gradient itself or has none";
  run([&] { check_gradients(case_, *op_, GetParam().bf16); });
}

std::vector<GpuCase> gpu_cases() {
  std::vector<GpuCase> cases;
  for (const OpCase& c : all_cases())
    if (!c.only_bench)
      for (bool bf16 : {false, true}) cases.push_back({c, bf16});
  return cases;
}

std::string test_name(const ::testing::TestParamInfo<GpuCase>& info) {
  std::string name = info.param.op_case.name + (info.param.bf16 ? "/bf16" : "/f32");
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuOps, ::testing::ValuesIn(gpu_cases()), test_name);

}  // namespace
}  // namespace quintet::testing
