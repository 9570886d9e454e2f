// Weights that share x: one product where what it reads and writes lies side by side, with the bits of one each.

#include <functional>

#include "models/base_model.h"
#include "runtime/execution/tape.h"
#include "runtime/profile/profile.h"
#include "tests/gpu_kernels/on_device.h"

namespace quintet::testing {
namespace {

constexpr int64_t kBatchSize = 2, kRows = 24, kEmbed = 32, kHeads = 2, kHeadDim = 16;

HostArray numbers(DType dtype, std::vector<int64_t> shape, uint64_t seed) {
  HostArray array(dtype, std::move(shape));
  const std::vector<float> values = normals(static_cast<size_t>(array.elements()), seed);
  for (size_t i = 0; i < values.size(); ++i)
    if (dtype == DType::f32)
      array.as<float>()[i] = values[i];
    else
      array.as<bfloat16>()[i] = bfloat16(values[i]);
  return array;
}

Tensor activations(DType dtype, int64_t width, const char* axis, uint64_t seed,
                   int64_t length = kRows) {
  return Tensor::from_host(numbers(dtype, {kBatchSize, length, width}, seed),
                           {axis::kBatch, axis::kLength, axis});
}

/// What a network computes of x: results, then the gradients of x and of its weights.
struct Pass {
  std::vector<HostArray> arrays;
  int64_t forward = 0, backward = 0;  // launches
};

/// `passes` passes of `forward`, whose result has gradient `dy`; gradients add up.
Pass run(const std::function<Tensors()>& forward, const Tensors& dy, const Tensors& leaves,
         int passes = 1) {
  Pass pass;
  for (const Tensor& leaf : leaves) leaf.set_grad({});
  for (int i = 0; i < passes; ++i) {
    Tape tape;
    Tensors y;
    const int64_t before = Device::current().counters().read().launches;
    {
      const Tape::Recording recording(tape);
      y = forward();
    }
    const int64_t middle = Device::current().counters().read().launches;
    tape.backward(y, dy);
    pass.forward = middle - before;
    pass.backward = Device::current().counters().read().launches - middle;
    if (i + 1 < passes) continue;
    for (const Tensor& t : y) pass.arrays.push_back(t.to_host());
    for (const Tensor& leaf : leaves) pass.arrays.push_back(leaf.grad().to_host());
  }
  return pass;
}

/// Weights of one x, side by side as those of a model are, and gradients of what they give, likewise.
struct Layers {
  Parameters parameters;
  Tensors w, dy;
  Tensor x;
  Layers(DType dtype, const std::vector<int64_t>& widths)
      : x(activations(dtype, kEmbed, axis::kEmbed, 5)) {
    if (dtype != DType::f32) parameters.set_compute_dtype(dtype);
    std::vector<Param> params;
    for (const int64_t width : widths)
      params.push_back((Scope(parameters) / fmt::format("layer_{}", params.size()))
                           .param("kernel", {{axis::kEmbed, kEmbed}, {axis::kJoinedKv, width}},
                                  t5_init::attention_kernel()));
    parameters.initialize(key_from_seed(3));
    for (const Param& param : params) w.push_back(param.tensor());
    Tensors given;
    for (size_t i = 0; i < widths.size(); ++i)
      given.push_back(activations(dtype, widths[i], axis::kJoinedKv, 11 + i));
    const std::vector<Buffer> memory =
        Device::current().memory().allocate_side_by_side(given[0].bytes(), widths.size());
    for (size_t i = 0; i < widths.size(); ++i) {
      dy.emplace_back(given[i].spec(), given[i].layout(), given[i].global_slice(), memory[i]);
      dy[i].set(given[i].to_host());
    }
    x.set_needs_grad(true);
  }
  Tensors leaves() const {
    Tensors all = w;
    all.insert(all.begin(), x);
    return all;
  }
  Pass together(int passes) const {
    return run([&] { return ops::matmul(x, w); }, dy, leaves(), passes);
  }
  Pass each(int passes) const {
    return run(
        [&] {
          Tensors y;
          for (const Tensor& one : w) y.push_back(ops::matmul(x, one));
          return y;
        },
        dy, leaves(), passes);
  }
};

class BatchedMatmul : public DeviceTest {
 protected:
  /// cuBLASLt may add in another order where there are several products: there as near as sums of kEmbed numbers rounded
  /// to the dtype.
  static void expect_same_bits(const std::vector<HostArray>& got,
                               const std::vector<HostArray>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      if (name().starts_with("emulated"))
        EXPECT_EQ(got[i].bytes, want[i].bytes) << i;
      else
        expect_near(got[i], want[i]);
  }
  static void expect_near(const HostArray& got, const HostArray& want) {
    ASSERT_EQ(got.bytes.size(), want.bytes.size());
    const auto at = [](const HostArray& array, size_t i) {
      return array.dtype == DType::f32 ? array.as<float>()[i]
                                       : static_cast<float>(array.as<bfloat16>()[i]);
    };
    const size_t count = want.bytes.size() / static_cast<size_t>(size_of(want.dtype));
    float largest = 0;
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(at(want, i)));
    const float tolerance = (want.dtype == DType::f32 ? 1e-5f : 2e-2f) * largest;
    for (size_t i = 0; i < count; ++i) ASSERT_NEAR(at(got, i), at(want, i), tolerance) << i;
  }
};

TEST_F(BatchedMatmul, IsOneProductWithTheBitsOfOneEach) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const size_t count : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} x {}", count, name_of(dtype)));
      const Layers layers(dtype, std::vector<int64_t>(count, kEmbed));
      const auto n = static_cast<int64_t>(count);
      for (const int passes : {1, 3}) {
        const Pass want = layers.each(passes), got = layers.together(passes);
        EXPECT_EQ(want.forward, n);
        EXPECT_EQ(got.forward, 1);
        EXPECT_EQ(got.backward, want.backward - n + 1);
        expect_same_bits(got.arrays, want.arrays);
      }
    }
}

TEST_F(BatchedMatmul, IsOfThoseOfOneWidth) {
  const Layers layers(DType::f32, {kEmbed, 16, 16});
  const Pass want = layers.each(1), got = layers.together(1);
  EXPECT_EQ(want.forward, 3);
  EXPECT_EQ(got.forward, 2);
  expect_same_bits(got.arrays, want.arrays);
}

TEST_F(BatchedMatmul, IsOneProductEachOfWhatLiesApart) {
  Layers layers(DType::f32, {kEmbed, kEmbed, kEmbed});
  const Pass want = layers.together(2);
  const Tensor last = layers.w[2];  // elsewhere
  layers.w[2] = Tensor(last.spec());
  layers.w[2].set(last.to_host());
  layers.w[2].set_needs_grad(true);
  Tensor dy = layers.dy[2];
  layers.dy[2] = Tensor(dy.spec());
  layers.dy[2].set(dy.to_host());
  const Pass got = layers.together(2);
  EXPECT_EQ(got.forward, 3);
  EXPECT_EQ(got.backward, want.backward + 2);
  expect_same_bits(got.arrays, want.arrays);
}

TEST_F(BatchedMatmul, GivesZerosForWhatNobodyUsed) {
  const Layers layers(DType::f32, {kEmbed, kEmbed, kEmbed});
  const Pass got = run([&] { return Tensors{ops::matmul(layers.x, layers.w)[1]}; }, {layers.dy[1]},
                       layers.leaves());
  const Pass want = run([&] { return Tensors{ops::matmul(layers.x, layers.w[1])}; }, {layers.dy[1]},
                        {layers.x, layers.w[1]});
  expect_same_bits({got.arrays[1], got.arrays[3]}, {want.arrays[1], want.arrays[2]});
  for (const std::byte byte : got.arrays[2].bytes) ASSERT_EQ(byte, std::byte{0});
}

// Both are added to the same, which no distance leads to.
TEST_F(BatchedMatmul, AddsToWhatLiesElsewhere) {
  const Layers layers(DType::f32, {kEmbed, kEmbed});
  const Tensor &w = layers.w[0], &x = layers.x, &dy_0 = layers.dy[0], &dy_1 = layers.dy[1];
  Tensors dw, want{Tensor(w.spec()), Tensor(w.spec())};
  for (const Buffer& memory : Device::current().memory().allocate_side_by_side(w.bytes(), 2))
    dw.emplace_back(w.spec(), w.layout(), w.global_slice(), memory);
  ASSERT_NE(w.to_host().bytes, layers.w[1].to_host().bytes);
  const View before = w.local(), none = View::none();
  const auto launch = [](const Op& op, const std::vector<View>& in, const std::vector<View>& out) {
    kernel_of(op, device())(in, out, {}, device().stream());
  };
  launch(ops::table::batched_matmul_grad_w,
         {x.local(), dy_0.local(), dy_1.local(), none, before, before, none},
         {dw[0].local(), dw[1].local(), none});
  launch(ops::table::matmul_grad_w, {x.local(), dy_0.local(), before}, {want[0].local()});
  launch(ops::table::matmul_grad_w, {x.local(), dy_1.local(), before}, {want[1].local()});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(dw[i].to_host().bytes, want[i].to_host().bytes) << i;
}

/// Multi-head attention of a model of its own, in `dtype`; `memory` absent: of itself.
Pass attention_pass(DType dtype, bool crosses, bool is_fused, int passes) {
  LayerConfig config;
  config.emb_dim = kEmbed, config.num_heads = kHeads, config.head_dim = kHeadDim;
  Parameters parameters;
  if (dtype != DType::f32) parameters.set_compute_dtype(dtype);
  const Attention attention(Scope(parameters), config);
  parameters.initialize(key_from_seed(3));
  const Tensor x = activations(dtype, kEmbed, axis::kEmbed, 5).set_needs_grad(true);
  const Tensor memory =
      crosses ? activations(dtype, kEmbed, axis::kEmbed, 6, kRows + 8).set_needs_grad(true) : x;
  Tensors leaves{attention.query, attention.key, attention.value, attention.out, x};
  if (crosses) leaves.push_back(memory);
  const ops::AttentionMask mask{};
  return run(
      [&] {
        if (is_fused) return Tensors{attention({x}, memory, mask, {}, true, {.train = true})};
        Tensors qkv{ops::matmul(x, attention.query)};
        for (const Param& w : {attention.key, attention.value})
          qkv.push_back(ops::matmul(memory, w));
        const Tensor y = attention.attend(qkv, mask, {}, true, !crosses, {.train = true});
        return Tensors{ops::matmul(y, attention.out)};
      },
      {activations(dtype, kEmbed, axis::kEmbed, 7)}, leaves, passes);
}

// Of 9 products of queries, keys and values 5, of 6 of keys and values of another 4: x's gradient is one product each.
TEST_F(BatchedMatmul, OfAttentionTakesFewerLaunches) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool crosses : {false, true})
      for (const int passes : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} crosses {} passes {}", name_of(dtype), crosses, passes));
        const Pass want = attention_pass(dtype, crosses, false, passes),
                   got = attention_pass(dtype, crosses, true, passes);
        const int64_t saved = crosses ? 1 : 2;
        EXPECT_EQ(got.forward, want.forward - saved);
        EXPECT_EQ(got.backward, want.backward - saved);
        expect_same_bits(got.arrays, want.arrays);
      }
}

// 16 self-attentions and 8 cross-attentions, whose query has an x of its own: 216 products of queries, keys and values
// without batches, 136 with them: 3 x 24 calls, of which x's gradients are one product a weight, and 3 x 8 of those queries.
TEST_F(BatchedMatmul, OfAsManyLayersAsT5Small) {
  T5Config config;
  config.vocab_size = 48;
  config.emb_dim = kEmbed, config.num_heads = kHeads, config.head_dim = kHeadDim;
  config.mlp_dim = 40;
  config.mlp_activations = {"gelu", "linear"};
  config.num_encoder_layers = config.num_decoder_layers = 8;
  config.dtype = "bfloat16";
  EncoderDecoderModel model(config, LossOptions{});
  model.parameters().initialize(key_from_seed(3));
  HostArrays batch;
  for (const char* feature :
       {"encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens"}) {
    batch[feature] = HostArray(DType::i32, {1, 8});
    std::ranges::fill(batch[feature].as<int32_t>(), 7);
  }
  Profile profile;
  const Profile::Use use(profile);
  Tape tape;
  Tensor loss;
  {
    const Tape::Recording recording(tape);
    loss = model.loss_fn(batch, Rows::all(batch), {.train = true}).loss;
  }
  tape.backward(loss);
  const auto calls = [&](const char* op) { return profile.entries().at(op).calls; };
  for (const char* op : {"batched_matmul", "batched_matmul_grad_x", "batched_matmul_grad_w"})
    EXPECT_EQ(calls(op), 24) << op;
  EXPECT_EQ(calls("matmul"), 24 + 8);  // attention's out, and those queries
  EXPECT_EQ(calls("matmul_t"), 24 + 8);
  EXPECT_EQ(calls("matmul_grad_w"), 24 + 8 + 16);  // and the MLPs' wo
}

}  // namespace
}  // namespace quintet::testing
