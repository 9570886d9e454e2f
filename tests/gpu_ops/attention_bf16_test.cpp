// Attention in bfloat16 against the double oracle, forward and gradients, on shapes that the
// tensor-core kernels take: head sizes that are multiples of 8, lengths of no particular size,
// every mask; in the emulator as sm_80 and as sm_90, under three schedules, and on a GPU.

#include <dlfcn.h>

#include "kernels/attention/ranges.h"
#include "runtime/op/op.h"
#include "tests/gpu_kernels/on_device.h"
#include "tests/gpu_ops/element_bytes.h"
#include "tests/ops/attention_oracle.h"

namespace quintet::testing {
namespace {

struct Setting {
  std::string name;
  int64_t batch = 1, queries = 0, keys = 0, heads = 2, depth = 64;
  int64_t buckets = 32;  // 0: no table
  int64_t max_distance = 128;
  bool causal = false, has_prefix = false;
  std::vector<int64_t> segments{};  // lengths; the rest is padding; empty: no segments
  bool has_holes = false;           // segments alternate from key to key
  double growth = 0;                // a block of 64 keys is longer by this than the one before
  bool forward_alone = false;       // weights are 0 and 1, gradients rounding
  Attrs attrs{};
  bool sm90_alone = false;
  bool two_a_block = false;  // as many sequences as give each multiprocessor two heads, or nearly
};
void PrintTo(const Setting& s, std::ostream* out) { *out << s.name; }

Array normal_array(Shape shape, std::mt19937_64& random, bool bf16, double deviation = 1) {
  Array a{.shape = shape, .values = {}, .absent = false, .origin = {}, .global = shape};
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  a.origin.assign(shape.size(), 0);
  std::normal_distribution<double> draw(0, deviation);
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<float>(draw(random));
    a.values.push_back(bf16 ? static_cast<float>(bfloat16(x)) : x);
  }
  return a;
}
Array absent_array() {
  Array a;
  a.absent = true;
  return a;
}
Array like(const Array& x) {
  Array a = x;
  std::fill(a.values.begin(), a.values.end(), 0.0);
  return a;
}

/// An array on the device, NaN where nothing was written.
class Operand16 {
 public:
  Operand16(const Array& a, DType dtype, bool fill) : dtype_(dtype) {
    if (a.absent) return;
    shape_ = a.shape;
    const std::vector<float> values(a.values.begin(), a.values.end());
    std::vector<std::byte> bytes = bytes_of(values, dtype);
    if (!fill) std::ranges::fill(bytes, std::byte{0xff});
    memory_.emplace(Device::current(), bytes);
  }
  View view() const {
    if (!memory_) return View::none();
    View v = View::of(reinterpret_cast<float*>(memory_->data()), shape_);
    v.dtype = dtype_;
    return v;
  }
  std::vector<double> load() const {
    const std::vector<float> values = floats_in(memory_->back(), dtype_);
    return {values.begin(), values.end()};
  }

 private:
  DType dtype_;
  Shape shape_;
  std::optional<OnDevice<std::byte>> memory_;
};

void run(const Op& op, const std::vector<View>& in, const std::vector<View>& out,
         const Attrs& attrs) {
  Device& device = Device::current();
  kernel_of(op, device)(in, out, attrs, device.stream());
}

/// Relative L2 distance; the constant lets sums that cancel be rounding of their terms.
double distance(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0, norm = 1e-6 * static_cast<double>(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

struct Problem {
  Arrays in;
  Attrs attrs;
  Array dout;

  explicit Problem(const Setting& s) : attrs(s.attrs) {
    std::mt19937_64 random(7);
    const double deviation = std::pow(static_cast<double>(s.depth), -0.25);
    const int64_t width = s.heads * s.depth;
    in.push_back(normal_array({s.batch, s.queries, width}, random, true, deviation));
    in.push_back(normal_array({s.batch, s.keys, width}, random, true, deviation));
    for (size_t i = 0; i < in[1].values.size(); ++i) {
      const int64_t key = static_cast<int64_t>(i) / width % s.keys;
      const double longer = 1 + s.growth * static_cast<double>(key / 64);
      in[1][i] = static_cast<float>(bfloat16(static_cast<float>(in[1][i] * longer)));
    }
    in.push_back(normal_array({s.batch, s.keys, width}, random, true));
    in.push_back(s.buckets == 0 ? absent_array()
                                : normal_array({s.heads, s.buckets}, random, false));
    for (int64_t length : {s.queries, s.keys}) in.push_back(segments(s, length));
    in.push_back(absent_array());
    if (s.has_prefix) {
      in[6] = normal_array({s.batch, s.keys}, random, false);
      for (int64_t i = 0; i < s.batch * s.keys; ++i)
        in[6][i] = i % s.keys < s.keys / 3 || i % s.keys == s.keys / 2 ? 1 : 0;
    }
    dout = normal_array(in[0].shape, random, true);
    attrs.set("h", s.heads);
    if (s.buckets > 0) attrs.set("max_distance", s.max_distance);
    attrs.set("causal", s.causal);
    attrs.set("bidirectional", !s.causal);
  }
  static Array segments(const Setting& s, int64_t length) {
    if (s.segments.empty()) return absent_array();
    std::mt19937_64 unused(0);
    Array a = normal_array({s.batch, length}, unused, false);
    for (int64_t b = 0; b < s.batch; ++b) {
      int64_t i = 0;
      for (size_t n = 0; n < s.segments.size(); ++n)
        for (int64_t j = 0; j < s.segments[n] && i < length; ++j, ++i)
          a[b * length + i] = static_cast<double>(s.has_holes && i % 3 == 1 ? 1 : n + 1);
      for (; i < length; ++i) a[b * length + i] = 0;
    }
    return a;
  }
};

constexpr DType kDTypes[] = {DType::bf16, DType::bf16, DType::bf16, DType::f32,
                             DType::i32,  DType::i32,  DType::i32};

class AttentionBf16 : public DeviceTest, public ::testing::WithParamInterface<Setting> {
 public:
  /// Of the device under test.
  static int multiprocessors() {
    int count = 4;
    if (name().starts_with("emulated")) return count;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    constexpr int kMultiprocessorCount = 16;  // cuda.h: CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"))(
        &count, kMultiprocessorCount, 0);
    return count;
  }
};
using AttentionRanges = DeviceTest;
using AttentionGradients = DeviceTest;

/// Blocks of sm_90 take a second head then, of the gradient with all its keys (best_parts() of kernels/attention/gpu).
int64_t batch_for_two_a_block(int64_t heads, int64_t multiprocessors) {
  return std::max<int64_t>(1, 2 * multiprocessors / heads);
}

TEST(AttentionTwoABlock, IsMoreThanOneOnEveryGpu) {
  for (const int64_t multiprocessors : {4, 108, 114, 132, 148})
    for (const int64_t heads : {5, 7, 8}) {
      const int64_t items = heads * batch_for_two_a_block(heads, multiprocessors);
      EXPECT_GT(items, multiprocessors);
      EXPECT_LE(items, 2 * multiprocessors);
    }
}

void check(Setting s) {
  if (s.two_a_block) s.batch = batch_for_two_a_block(s.heads, AttentionBf16::multiprocessors());
  const Problem problem(s);
  const AttentionOracle oracle(problem.in, problem.attrs);
  Array out = like(problem.in[0]);
  Array lse{.shape = {s.batch, s.heads, s.queries},
            .values = std::vector<double>(static_cast<size_t>(s.batch * s.heads * s.queries)),
            .absent = false,
            .origin = {},
            .global = {}};
  oracle.forward(out, lse);
  Arrays gradients = {like(problem.in[0]), like(problem.in[1]), like(problem.in[2]),
                      s.buckets == 0 ? absent_array() : like(problem.in[3])};
  oracle.gradient(problem.dout, gradients[0], gradients[1], gradients[2], gradients[3]);

  std::vector<Operand16> operands;
  for (size_t i = 0; i < 7; ++i) operands.emplace_back(problem.in[i], kDTypes[i], true);
  std::vector<View> in;
  for (const Operand16& o : operands) in.push_back(o.view());
  // As a step has it: the ranges of the mask are there. Where there are no segments the calls find them.
  Array lengths = absent_array();
  if (!s.segments.empty()) {
    std::mt19937_64 unused(0);
    lengths = normal_array({s.batch, attention::ranges_length(s.queries)}, unused, false);
  }
  const Operand16 ranges(lengths, DType::i32, false);
  if (!lengths.absent)
    run(ops::table::attention_ranges, {in[4], in[5], in[6]}, {ranges.view()},
        {{"causal", s.causal}});
  in.push_back(ranges.view());
  const Operand16 got_out(out, DType::bf16, false), got_lse(lse, DType::f32, false);
  run(ops::table::attention, in, {got_out.view(), got_lse.view()}, problem.attrs);
  EXPECT_LE(distance(got_out.load(), out.values), 5e-3) << "out";
  EXPECT_LE(distance(got_lse.load(), lse.values), 1e-3) << "lse";
  if (s.forward_alone) return;

  const Operand16 dout(problem.dout, DType::bf16, true);
  for (const View& view : {got_out.view(), got_lse.view(), dout.view()}) in.push_back(view);
  std::vector<Operand16> results;
  for (size_t i = 0; i < 4; ++i)
    results.emplace_back(gradients[i], i == 3 ? DType::f32 : DType::bf16, false);
  std::vector<View> views;
  for (const Operand16& o : results) views.push_back(o.view());
  run(ops::table::attention_grad, in, views, problem.attrs);
  const char* names[] = {"dq", "dk", "dv", "dtable"};
  for (size_t i = 0; i < 4; ++i) {
    if (gradients[i].absent) continue;
    EXPECT_LE(distance(results[i].load(), gradients[i].values), i == 3 ? 2e-2 : 1e-2) << names[i];
  }
}

TEST_P(AttentionBf16, IsCloseToTheOracle) {
  on_every_schedule([] { check(GetParam()); },
                    GetParam().sm90_alone ? std::vector{90} : std::vector{80, 90});
}

TEST_F(AttentionRanges, ThatAreThereAreNotFoundAgain) {
  const Setting s{
      .name = "shared", .queries = 40, .keys = 40, .heads = 1, .buckets = 0, .segments = {20, 10}};
  const Problem problem(s);
  std::vector<Operand16> operands;
  for (size_t i = 0; i < 7; ++i) operands.emplace_back(problem.in[i], kDTypes[i], true);
  std::vector<View> in;
  for (const Operand16& o : operands) in.push_back(o.view());
  std::mt19937_64 unused(0);
  const Operand16 ranges(normal_array({1, attention::ranges_length(40)}, unused, false), DType::i32,
                         false);
  run(ops::table::attention_ranges, {in[4], in[5], in[6]}, {ranges.view()}, {{"causal", false}});
  const Operand16 out(like(problem.in[0]), DType::bf16, false);
  const auto launches = [&](const View& view) {
    in.resize(7);
    in.push_back(view);
    const auto before = device().counters().read().launches;
    run(ops::table::attention, in, {out.view(), View::none()}, problem.attrs);
    return device().counters().read().launches - before;
  };
  EXPECT_EQ(launches(View::none()), launches(ranges.view()) + 1);
}

TEST_F(AttentionGradients, OfSm90AreOneKernel) {
  if (!name().starts_with("emulated"))
    GTEST_SKIP() << "counted on the emulator, which is an sm_90 when asked to be";
  on_every_schedule(
      [] {
        const Setting s{.name = "one", .queries = 40, .keys = 40, .heads = 1, .buckets = 0};
        const Problem problem(s);
        std::vector<Operand16> operands, results;
        for (size_t i = 0; i < 7; ++i) operands.emplace_back(problem.in[i], kDTypes[i], true);
        std::vector<View> in, out;
        for (const Operand16& o : operands) in.push_back(o.view());
        in.push_back(View::none());
        const Operand16 result(problem.dout, DType::bf16, true),
            dout(problem.dout, DType::bf16, true);
        std::mt19937_64 random(3);
        const Operand16 lse(normal_array({1, 1, 40}, random, false), DType::f32, true);
        for (const Operand16* o : {&result, &lse, &dout}) in.push_back(o->view());
        for (size_t i = 0; i < 3; ++i) results.emplace_back(problem.in[i], DType::bf16, false);
        for (const Operand16& o : results) out.push_back(o.view());
        out.push_back(View::none());
        const auto before = device().counters().read().launches;
        run(ops::table::attention_grad, in, out, problem.attrs);
        EXPECT_EQ(device().counters().read().launches - before, 1);
      },
      {90});
}

const Attrs kDropped{{"rate", 0.3}, {"key0", int64_t{17}}, {"key1", int64_t{4242}}};

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionBf16,
    ::testing::Values(
        Setting{.name = "tiny", .queries = 3, .keys = 5, .heads = 1, .depth = 8},
        Setting{.name = "plain", .queries = 70, .keys = 150, .buckets = 0},
        Setting{.name = "bias", .queries = 150, .keys = 140},
        Setting{
            .name = "growing", .queries = 70, .keys = 600, .heads = 1, .buckets = 0, .growth = 1},
        Setting{.name = "exploding",
                .queries = 70,
                .keys = 600,
                .heads = 1,
                .growth = 20,
                .forward_alone = true},
        Setting{.name = "far", .queries = 300, .keys = 270, .heads = 1, .max_distance = 20},
        Setting{.name = "scaled",
                .batch = 2,
                .queries = 33,
                .keys = 64,
                .depth = 40,
                .attrs = {{"scale", 0.25}}},
        Setting{.name = "wide", .queries = 140, .keys = 130, .heads = 1, .depth = 128},
        Setting{.name = "wide_cross",
                .queries = 65,
                .keys = 260,
                .heads = 1,
                .depth = 96,
                .buckets = 0},
        Setting{.name = "causal", .queries = 200, .keys = 200, .heads = 1, .causal = true},
        Setting{.name = "causal_later",
                .queries = 20,
                .keys = 150,
                .heads = 1,
                .causal = true,
                .attrs = {{"q_offset", int64_t{130}}}},
        Setting{.name = "prefix",
                .queries = 140,
                .keys = 140,
                .heads = 1,
                .causal = true,
                .has_prefix = true},
        Setting{
            .name = "packed", .queries = 290, .keys = 290, .heads = 1, .segments = {130, 20, 100}},
        Setting{.name = "packed_cross",
                .batch = 2,
                .queries = 90,
                .keys = 200,
                .heads = 1,
                .buckets = 0,
                .segments = {50, 35}},
        Setting{.name = "packed_causal",
                .queries = 150,
                .keys = 150,
                .heads = 1,
                .depth = 128,
                .causal = true,
                .segments = {100, 30}},
        Setting{.name = "holes",
                .queries = 100,
                .keys = 100,
                .heads = 1,
                .has_prefix = true,
                .segments = {40, 40},
                .has_holes = true},
        // More heads of sequences than the device has multiprocessors: a block takes two, with all their keys.
        Setting{.name = "two_a_block",
                .queries = 40,
                .keys = 140,
                .heads = 7,
                .sm90_alone = true,
                .two_a_block = true},
        Setting{.name = "two_a_block_wide",
                .queries = 70,
                .keys = 100,
                .heads = 5,
                .depth = 128,
                .sm90_alone = true,
                .two_a_block = true},
        Setting{.name = "two_a_block_unseen_keys",
                .queries = 60,
                .keys = 390,
                .heads = 8,
                .buckets = 0,
                .segments = {60},
                .sm90_alone = true,
                .two_a_block = true},
        Setting{.name = "dropout", .queries = 70, .keys = 140, .attrs = kDropped},
        Setting{.name = "dropout_packed",
                .queries = 140,
                .keys = 140,
                .heads = 1,
                .segments = {60, 50},
                .attrs = kDropped}),
    [](const ::testing::TestParamInfo<Setting>& setting) { return setting.param.name; });

}  // namespace
}  // namespace quintet::testing
