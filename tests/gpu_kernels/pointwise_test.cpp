// Casts, fills, the fused residual norm, and what cases of ops are too small for: long rows of
// logits, chunks, deep norms, faults.

#include <cmath>
#include <functional>

#include "kernels/rms_norm/rms_norm.h"
#include "runtime/execution/gradient_buckets.h"
#include "runtime/execution/tape.h"
#include "runtime/op/op.h"
#include "runtime/ops/ops.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

using Sizes = std::vector<int64_t>;

class Pointwise : public DeviceTest {
 protected:
  /// Calls the op of that name on the device.
  void call(const std::string& name, const std::vector<View>& in, const std::vector<View>& out,
            const Attrs& attrs) {
    for (const Op* op : all_ops())
      if (name == op->name) return kernel_of(*op, device())(in, out, attrs, device().stream());
    FAIL() << "no op " << name;
  }
};

template <typename T>
View typed(const OnDevice<T>& array, const Sizes& sizes) {
  return array.view(sizes);
}

TEST_F(Pointwise, CastsListsOfArrays) {
  on_every_schedule([&] {
    for (int shift : {0, 1}) {
      std::vector<OnDevice<float>> wide, back;
      std::vector<OnDevice<bfloat16>> narrow;
      std::vector<std::vector<float>> values;
      for (size_t n : {1, 0, 8191, 20000, 7}) values.push_back(normals(n, n));
      std::vector<View> from, to, again;
      for (const auto& v : values) {
        wide.emplace_back(device(), v, shift);
        narrow.emplace_back(device(), std::vector<bfloat16>(v.size()), shift);
        back.emplace_back(device(), std::vector<float>(v.size()), shift);
      }
      for (size_t i = 0; i < values.size(); ++i) {
        from.push_back(wide[i].view());
        to.push_back(narrow[i].view());
        again.push_back(back[i].view());
      }
      device().kernels().cast(from, to, device().stream());
      device().kernels().cast(to, again, device().stream());
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(back[i].back(), widened(rounded(values[i]))) << "array " << i;
    }
  });
}

/// Gradients of the sum of x w and x v, and of the same once more.
TEST_F(Pointwise, AProductAddsToAGradientInItsOwnLaunch) {
  const auto make = [](const char* rows, const char* columns) {
    HostArray ones(DType::f32, {16, 16});
    std::ranges::fill(ones.as<float>(), 0.5f);
    return Tensor::from_host(ones, {rows, columns});
  };
  Tensor x = make("m", "k"), w = make("k", "n");
  const Tensor v = make("k", "n");
  x.set_needs_grad(true);
  w.set_needs_grad(true);
  std::vector<int64_t> launches;
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    Tensor y;
    {
      Tape::Recording recording(tape);
      const Tensor h = ops::scale(x, 2);
      y = ops::add(ops::matmul(h, w), ops::matmul(h, v));
    }
    const int64_t before = device().counters().read().launches;
    tape.backward({y}, {make("m", "n")});
    launches.push_back(device().counters().read().launches - before);
  }
  // Two products for h, one for w, h's scale; then x's sum of both passes.
  EXPECT_EQ(launches, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(w.grad().to_host().as<float>()[7], 2 * 16 * 0.5f);
  EXPECT_EQ(x.grad().to_host().as<float>()[7], 2 * 2 * 2 * 16 * 0.25f);
}

Tensor filled(DType dtype, std::vector<int64_t> shape, std::vector<std::string> axes) {
  HostArray array(dtype, std::move(shape));
  if (dtype == DType::i32)
    std::ranges::fill(array.as<int32_t>(), 3);
  else
    std::ranges::fill(array.as<float>(), 0.25f);
  return Tensor::from_host(array, std::move(axes));
}

/// The launches of two passes backward from the result of `forward` (its gradient: `dz`), of which the second doubles
/// the parameters' gradients.
std::pair<int64_t, int64_t> launches_of_two_passes(std::vector<Tensor>& parameters,
                                                   const std::function<Tensor()>& forward,
                                                   const Tensor& dz) {
  for (Tensor& parameter : parameters) parameter.set_needs_grad(true);
  std::vector<int64_t> launches;
  std::vector<std::vector<float>> gradients;
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    Tensor z;
    {
      Tape::Recording recording(tape);
      z = forward();
    }
    const int64_t before = Device::current().counters().read().launches;
    tape.backward({z}, {dz});
    launches.push_back(Device::current().counters().read().launches - before);
    for (const Tensor& parameter : parameters) {
      const HostArray gradient = parameter.grad().to_host();
      gradients.emplace_back(gradient.as<float>().begin(), gradient.as<float>().end());
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i)
    for (size_t j = 0; j < gradients[i].size(); ++j)
      EXPECT_FLOAT_EQ(gradients[parameters.size() + i][j], 2 * gradients[i][j]);
  return {launches[0], launches[1]};
}

TEST_F(Pointwise, AnMlpAndAnEmbeddingAddToTheirParametersGradientsInTheirOwnLaunches) {
  const Tensor ids = filled(DType::i32, {16}, {"m"});
  std::vector<Tensor> p{filled(DType::f32, {8, 16}, {"vocab", "embed"}),
                        filled(DType::f32, {16, 16}, {"embed", "mlp"}),
                        filled(DType::f32, {16, 16}, {"mlp", "embed"})};
  const auto [first, second] = launches_of_two_passes(
      p, [&] { return ops::mlp(ops::embed(ids, p[0]), p[1], {}, p[2], {"relu"}, {}); },
      filled(DType::f32, {16, 16}, {"m", "embed"}));
  EXPECT_EQ(first, second + 1);  // which filled the table's gradient with 0
}

TEST_F(Pointwise, ExpertsAddToTheirParametersGradientsInTheirOwnLaunches) {
  HostArray bounds(DType::i32, {1, 3});
  bounds.as<int32_t>()[1] = 9, bounds.as<int32_t>()[2] = 16;
  const Tensor offsets = Tensor::from_host(bounds, {"batch", "bounds"});
  const Tensor x = filled(DType::f32, {1, 16, 16}, {"batch", "rows", "embed"});
  std::vector<Tensor> p{filled(DType::f32, {2, 16, 16}, {"expert", "embed", "mlp"}),
                        filled(DType::f32, {2, 16, 16}, {"expert", "embed", "mlp"}),
                        filled(DType::f32, {2, 16, 16}, {"expert", "mlp", "embed"})};
  const auto [first, second] = launches_of_two_passes(
      p,
      [&] {
        return ops::grouped_matmul(ops::experts_in(x, offsets, p[0], p[1], {"relu", "linear"}),
                                   offsets, p[2]);
      },
      filled(DType::f32, {1, 16, 16}, {"batch", "rows", "embed"}));
  EXPECT_EQ(first, second);
}

TEST_F(Pointwise, ANormAddsToItsScalesGradientInItsOwnLaunches) {
  const Tensor x = filled(DType::f32, {16, 16}, {"m", "embed"});
  std::vector<Tensor> p{filled(DType::f32, {16}, {"embed"}), filled(DType::f32, {16}, {"embed"})};
  const auto [first, second] = launches_of_two_passes(
      p, [&] { return ops::add_rms_norm(ops::rms_norm(x, p[0]), x, p[1], {}).out; }, x);
  EXPECT_EQ(first, second);
}

TEST_F(Pointwise, AttentionAddsToItsTablesGradientInItsOwnLaunches) {
  const Tensor x = filled(DType::f32, {1, 16, 16}, {"batch", "length", "joined_kv"});
  std::vector<Tensor> p{filled(DType::f32, {2, 8}, {"heads", "relpos_buckets"})};
  const auto attend = [&] {
    return ops::attention(x, x, x, p[0], {}, {.num_heads = 2, .max_distance = 16});
  };
  const auto [first, second] = launches_of_two_passes(p, attend, x);
  EXPECT_EQ(first, second);
  p[0].set_grad({});
  // Both layers' in one pass: but for the sum of what they return, twice the launches.
  const auto [once, again] = launches_of_two_passes(
      p, [&] { return ops::add(attend(), attend()); }, x);
  EXPECT_EQ(once, 2 * first);
  EXPECT_EQ(again, 2 * first);
}

TEST_F(Pointwise, ARouterAddsToItsGradientsInItsOwnLaunches) {
  const Tensor x = filled(DType::f32, {1, 16, 16}, {"batch", "length", "embed"});
  std::vector<Tensor> p{filled(DType::f32, {16, 4}, {"embed", "unmodeled"}),
                        filled(DType::f32, {4}, {"unmodeled"})};
  const auto [first, second] = launches_of_two_passes(
      p,
      [&] {
        return ops::route(x, p[0], p[1], {.capacity = 4, .group_size = 16, .groups = 1}).z_loss;
      },
      Tensor::scalar(1));
  EXPECT_EQ(first, second);
}

/// Of cross-entropy a pass makes the gradient of the matrix as it runs forward.
TEST_F(Pointwise, TheLossAddsToItsMatrixsGradientInItsOwnLaunches) {
  const Tensor x = filled(DType::f32, {1, 16, 16}, {"batch", "length", "embed"}),
               w = filled(DType::f32, {16, 8}, {"embed", "vocab"}),
               targets = filled(DType::i32, {1, 16}, {"batch", "length"}),
               weights = filled(DType::f32, {1, 16}, {"batch", "length"});
  Tensor projection = w;
  projection.set_needs_grad(true);
  std::vector<int64_t> launches;
  std::vector<float> gradient;
  for (int pass = 0; pass < 3; ++pass) {
    GradientBuckets buckets;
    Tape tape(buckets);
    Tensor loss;
    const int64_t before = device().counters().read().launches;
    {
      Tape::Recording recording(tape);
      loss = ops::cross_entropy(x, projection, targets, weights, {.is_total = true}).loss;
    }
    tape.backward(loss, buckets);
    buckets.finish();
    launches.push_back(device().counters().read().launches - before);
    const HostArray got = projection.grad().to_host();
    if (pass == 0) gradient.assign(got.as<float>().begin(), got.as<float>().end());
    for (size_t i = 0; i < gradient.size(); ++i)
      ASSERT_FLOAT_EQ(got.as<float>()[i], static_cast<float>(pass + 1) * gradient[i]);
  }
  EXPECT_EQ(launches, std::vector<int64_t>(3, launches[0]));
}

TEST_F(Pointwise, FillsAndAccumulates) {
  for (int shift : {0, 1}) {
    const std::vector<float> values = normals(1003, 4);
    const OnDevice<float> sum(device(), std::vector<float>(1003), shift),
        x(device(), values, shift);
    const OnDevice<bfloat16> y(device(), rounded(values), shift);
    device().kernels().fill(sum.view(), 2.5f, device().stream());
    device().kernels().accumulate(sum.view(), x.view(), device().stream());
    device().kernels().accumulate(sum.view(), y.view(), device().stream());
    const auto narrow = widened(rounded(values));
    const auto got = sum.back();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 2.5f + values[i] + narrow[i]);
    const OnDevice<bfloat16> filled(device(), std::vector<bfloat16>(77), shift);
    device().kernels().fill(filled.view(), -1.5f, device().stream());
    for (float v : widened(filled.back())) ASSERT_EQ(v, -1.5f);
  }
}

/// y = x + dropout(y), norm: by the ops one after another, and fused.
struct ResidualCase {
  Sizes sizes;
  int64_t broadcast_dim = 0;
  double rate = 0;
};

template <typename T>
std::vector<T> as(const std::vector<float>& values) {
  if constexpr (std::is_same_v<T, float>)
    return values;
  else
    return rounded(values);
}
template <typename T>
std::vector<float> floats(const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, float>)
    return values;
  else
    return widened(values);
}

class ResidualNorm : public Pointwise {
 protected:
  template <typename T>
  void compare(const ResidualCase& c) {
    size_t n = 1;
    for (int64_t s : c.sizes) n *= static_cast<size_t>(s);
    const Sizes e{c.sizes.back()};
    const auto width = static_cast<size_t>(e[0]);
    Attrs attrs{{"eps", 1e-6}, {"rate", c.rate}, {"key0", int64_t{7}}, {"key1", int64_t{9}}};
    if (c.broadcast_dim != 0) attrs.set("broadcast_dim", c.broadcast_dim);
    const OnDevice<T> x(device(), as<T>(normals(n, 1))), y(device(), as<T>(normals(n, 2)));
    const OnDevice<T> dout(device(), as<T>(normals(n, 3))), dsum(device(), as<T>(normals(n, 4)));
    const OnDevice<float> scale(device(), normals(width, 5)), dscale(device(), normals(width, 6)),
        want_dscale(device(), normals(width, 6));
    const std::vector<T> empty(n);
    const OnDevice<T> sum(device(), empty), out(device(), empty), dx(device(), empty),
        dy(device(), empty);
    const OnDevice<T> want_sum(device(), empty), want_out(device(), empty), part(device(), empty),
        want_dx(device(), empty), want_dy(device(), empty);
    const auto v = [&](const OnDevice<T>& a) { return a.view(c.sizes); };
    call("add_rms_norm", {v(x), v(y), scale.view(e)}, {v(sum), v(out)}, attrs);
    call("add", {v(x), v(y)}, {v(want_sum)}, attrs);
    call("rms_norm", {v(want_sum), scale.view(e)}, {v(want_out)}, attrs);
    EXPECT_EQ(floats(sum.back()), floats(want_sum.back()));
    EXPECT_EQ(floats(out.back()), floats(want_out.back()));
    call("add_rms_norm_grad", {v(sum), scale.view(e), v(dout), v(dsum)},
         {v(dx), c.rate == 0 ? View::none() : v(dy), dscale.view(e)}, attrs);
    call("rms_norm_grad", {v(want_sum), scale.view(e), v(dout)}, {v(part), want_dscale.view(e)},
         attrs);
    call("add", {v(part), v(dsum)}, {v(want_dx)}, {});
    // The fused form rounds dx once instead of twice.
    const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-2;
    expect_near(floats(dx.back()), floats(want_dx.back()), tolerance, 1, "dx");
    EXPECT_EQ(dscale.back(), want_dscale.back());
    if (c.rate == 0) return;
    call("dropout", {v(dx)}, {v(want_dy)}, attrs);
    expect_near(floats(dy.back()), floats(want_dy.back()), tolerance, 1, "dy");
  }

  void compare_with_cpu(const ResidualCase& c) {
    const auto width = static_cast<size_t>(c.sizes.back());
    const auto n = static_cast<size_t>(View::of<float>(nullptr, c.sizes).elements());
    const bool drops = c.rate != 0;
    Attrs attrs{{"eps", 1e-6}, {"rate", c.rate}, {"key0", int64_t{7}}, {"key1", int64_t{9}}};
    attrs.set("broadcast_dim", c.broadcast_dim);
    std::vector<std::vector<float>> in, out(5, std::vector<float>(n));
    for (unsigned seed : {1, 2, 3, 4}) in.push_back(widened(rounded(normals(n, seed))));
    std::vector<float> gain = normals(width, 5), want_dscale(width);
    const OnDevice<float> scale(device(), gain), dscale(device(), want_dscale);
    std::vector<OnDevice<bfloat16>> on;
    for (const auto& values : in) on.emplace_back(device(), rounded(values));
    for (const auto& values : out) on.emplace_back(device(), rounded(values));
    const auto v = [&](size_t i) { return on[i].view(c.sizes); };
    const auto host = [&](std::vector<float>& values) { return View::of(values.data(), c.sizes); };
    const Sizes e{c.sizes.back()};
    const View host_gain = View::of(gain.data(), e);
    call("add_rms_norm", {v(0), v(1), scale.view(e)}, {v(4), v(5)}, attrs);
    const std::vector<View> summands{host(in[0]), host(in[1]), host_gain};
    add_rms_norm_cpu(summands, std::vector<View>{host(out[0]), host(out[1])}, attrs, {});
    call("add_rms_norm_grad", {v(4), scale.view(e), v(2), v(3)},
         {v(6), drops ? v(7) : View::none(), dscale.view(e)}, attrs);
    std::vector<float> sum = widened(on[4].back());
    const std::vector<View> gradients{host(sum), host_gain, host(in[2]), host(in[3])};
    add_rms_norm_grad_cpu(gradients,
                          std::vector<View>{host(out[2]), drops ? host(out[3]) : View::none(),
                                            View::of(want_dscale.data(), e)},
                          attrs, {});
    const char* names[] = {"x_new", "out", "dx", "dy"};
    for (size_t i = 0; i < 4; ++i)
      expect_near(widened(on[4 + i].back()), out[i], 1e-2, 1, names[i]);
    expect_near(dscale.back(), want_dscale, 1e-4, 1, "dscale");
    // Without a residual.
    call("rms_norm", {v(4), scale.view(e)}, {v(5)}, attrs);
    expect_near(widened(on[5].back()), out[1], 2e-2, 1, "norm");
    call("rms_norm_grad", {v(4), scale.view(e), v(2)}, {v(8), dscale.view(e)}, attrs);
    rms_norm_grad_cpu(std::vector<View>{host(sum), host_gain, host(in[2])},
                      std::vector<View>{host(out[4]), View::of(want_dscale.data(), e)}, attrs, {});
    expect_near(widened(on[8].back()), out[4], 1e-2, 1, "dx alone");
    expect_near(dscale.back(), want_dscale, 1e-4, 1, "dscale alone");
  }
};

TEST_F(ResidualNorm, IsTheSumAndTheNorm) {
  on_every_schedule([&] {
    for (const ResidualCase& c : std::vector<ResidualCase>{{{5, 24}},
                                                           {{3, 20, 64}, -2, 0.3},
                                                           {{3, 20, 64}, 0, 0.3},
                                                           {{2, 3, 1032}, -2, 0.5},
                                                           {{2, 3, 17}, -2, 0.5}}) {
      compare<float>(c);
      compare<bfloat16>(c);
    }
  });
}

// Every way in which a row is held: a warp or a block, several units a thread, and longer ones.
TEST_F(ResidualNorm, HasRowsOfAnyDepth) {
  for (int64_t depth : {8, 256, 512, 1024, 1536, 2048, 4096, 8192, 8200, 10000}) {
    SCOPED_TRACE(depth);
    compare<float>({{3, depth}});
    compare<bfloat16>({{3, depth}});
  }
  compare<bfloat16>({{67, 2048}});  // several rows a block
}

// Widths whose shapes are full, and several rows a warp: against the CPU's float32, which shares no code with them.
TEST_F(ResidualNorm, EqualsTheCpus) {
  on_every_schedule([&] { compare_with_cpu({{2, 100, 512}, -2, 0.3}); });
  for (const ResidualCase& c : std::vector<ResidualCase>{{{2, 150, 512}, -2, 0.3},
                                                         {{7, 768}, -2, 0.3},
                                                         {{2, 50, 1024}, -2, 0.3},
                                                         {{7, 1024}},
                                                         {{2, 9, 2048}, -2, 0.3},
                                                         {{7, 4096}, -2, 0.3}}) {
    SCOPED_TRACE(c.sizes.back());
    compare_with_cpu(c);
  }
}

/// Cross-entropy of given logits: x is the identity of one column, so logits are w's row.
struct Loss {
  std::vector<float> sums, log_probability, dw;
};

class LongRows : public Pointwise {
 protected:
  template <typename T>
  Loss run(const std::vector<float>& logits, int64_t vocabulary,
           const std::vector<int32_t>& targets) {
    const auto tokens = static_cast<int64_t>(targets.size());
    // x: one-hot rows, w: [tokens, vocabulary]: the logits themselves.
    std::vector<float> one_hot(static_cast<size_t>(tokens * tokens));
    for (int64_t t = 0; t < tokens; ++t) one_hot[static_cast<size_t>(t * tokens + t)] = 1;
    const OnDevice<T> x(device(), as<T>(one_hot)), w(device(), as<T>(logits)),
        dx(device(), as<T>(one_hot));
    const OnDevice<int32_t> target(device(), targets);
    const OnDevice<float> weight(device(), std::vector<float>(static_cast<size_t>(tokens), 1.0f));
    const OnDevice<float> loss(device(), {0.0f}), z(device(), {0.0f}), correct(device(), {0.0f});
    const OnDevice<float> log_probability(device(), std::vector<float>(targets.size()));
    const OnDevice<float> dw(device(), std::vector<float>(logits.size()));
    call("cross_entropy",
         {x.view({tokens, tokens}), w.view({tokens, vocabulary}), target.view(), weight.view()},
         {loss.view({}), z.view({}), correct.view({}), log_probability.view(),
          dx.view({tokens, tokens}), dw.view({tokens, vocabulary})},
         {{"z_loss", 1e-3}});
    return {{loss.back()[0], z.back()[0], correct.back()[0]}, log_probability.back(), dw.back()};
  }
};

// One unit, many, a cluster of 2, 4 and 8 blocks, and rows for which there is no cluster.
TEST_F(LongRows, GiveTheSoftmaxAndItsGradient) {
  on_every_schedule([&] {
    for (int64_t vocabulary : {2050, 9000, 17000, 40000, 70003, 140000}) {
      SCOPED_TRACE(vocabulary);
      const auto v = static_cast<size_t>(vocabulary);
      std::vector<float> logits = widened(rounded(normals(2 * v, 3)));
      const std::vector<int32_t> targets{static_cast<int32_t>(vocabulary - 1), 5};
      logits[v - 1] = 9;  // the first token is right
      const Loss got = run<float>(logits, vocabulary, targets);
      const Loss narrow = run<bfloat16>(logits, vocabulary, targets);
      double loss = 0, correct = 0;
      for (size_t t = 0; t < 2; ++t) {
        double total = 0;
        size_t best = 0;
        for (size_t j = 0; j < v; ++j) {
          total += std::exp(static_cast<double>(logits[t * v + j]));
          if (logits[t * v + j] > logits[t * v + best]) best = j;
        }
        const double lse = std::log(total);
        const auto target = static_cast<size_t>(targets[t]);
        const double p = static_cast<double>(logits[t * v + target]) - lse;
        EXPECT_NEAR(got.log_probability[t], p, 1e-5);
        EXPECT_NEAR(narrow.log_probability[t], p, 1e-4);
        loss += -p + 1e-3 * lse * lse;
        correct += best == target ? 1 : 0;
        for (size_t j = 0; j < v; ++j) {
          const double want =
              (1 + 2e-3 * lse) * std::exp(static_cast<double>(logits[t * v + j]) - lse) -
              (j == target ? 1 : 0);
          ASSERT_NEAR(got.dw[t * v + j], want, 1e-7 + 1e-5 * std::abs(want)) << "column " << j;
          ASSERT_NEAR(narrow.dw[t * v + j], want, 1e-7 + 5e-3 * std::abs(want)) << "column " << j;
        }
      }
      EXPECT_NEAR(got.sums[0], loss, 2e-5);
      EXPECT_NEAR(narrow.sums[0], loss, 2e-4);
      EXPECT_EQ(got.sums[2], correct);
      EXPECT_EQ(narrow.sums[2], correct);
    }
  });
}

TEST_F(LongRows, ANaNReachesTheLoss) {
  for (int64_t vocabulary : {300, 9000, 140000}) {
    std::vector<float> logits = normals(static_cast<size_t>(vocabulary), 3);
    logits[static_cast<size_t>(vocabulary / 2)] = std::nanf("");
    EXPECT_TRUE(std::isnan(run<float>(logits, vocabulary, {1}).sums[0])) << vocabulary;
  }
}

TEST_F(LongRows, ABadTargetIsAFault) {
  const std::vector<float> logits = normals(14, 3);
  try {
    run<float>(logits, 7, {3, 7});
    FAIL() << "target 7 of a vocabulary of 7 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    const std::string message = error.what();
    EXPECT_NE(message.find("target 7 at position 1"), message.npos) << message;
  }
  EXPECT_FALSE(std::isnan(run<float>(logits, 7, {3, 6}).sums[0]));  // the next run is sound again
}

TEST_F(Pointwise, AnIdOutsideTheVocabularyIsAFault) {
  const OnDevice<float> table(device(), normals(12, 1)), y(device(), normals(9, 1));
  const OnDevice<int32_t> ids(device(), {1, 4, 0});
  call("embed", {ids.view(), table.view({4, 3})}, {y.view({3, 3})}, {});
  try {
    device().synchronize();
    FAIL() << "id 4 of a vocabulary of 4 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    const std::string message = error.what();
    EXPECT_NE(message.find("id 4 at position 1"), message.npos) << message;
  }
}

// Words that fill many blocks of positions, and words that begin and end within one.
TEST_F(Pointwise, FrequentWordsGetTheSumOfAllTheirGradients) {
  on_every_schedule([&] {
    const int64_t count = 700, depth = 8, vocabulary = 40;
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(i % 3 != 0 ? 7 : i % 7 == 0 ? i % 40 : 8);
    const std::vector<float> dy = normals(static_cast<size_t>(count * depth), 2);
    std::vector<float> want(static_cast<size_t>(vocabulary * depth));
    for (size_t i = 0; i < ids.size(); ++i)
      for (size_t k = 0; k < 8; ++k) want[static_cast<size_t>(ids[i]) * 8 + k] += dy[i * 8 + k];
    const OnDevice<int32_t> on_ids(device(), ids);
    const OnDevice<float> on_dy(device(), dy), dtable(device(), normals(want.size(), 9));
    call("embed_grad", {on_ids.view(), on_dy.view({count, depth})},
         {dtable.view({vocabulary, depth})}, {});
    expect_near(dtable.back(), want, 1e-5, 1, "dtable");
  });
}

}  // namespace
}  // namespace quintet::testing
