// Attention against T5X: buckets, weights, outputs and gradients of every recorded core, and the
// masks of decoders. Settings come from cases.json, sizes and what is present from the files.

#include "kernels/attention/attention.h"
#include "kernels/attention/cpu/problem.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

std::filesystem::path area() { return fixture_root() / "attention"; }

TEST(AttentionGolden, BucketsAreTheReferences) {
  const auto file = area() / "buckets.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  for (const Json& row : Json::read(file).items()) {
    SCOPED_TRACE(row.path());
    const BucketRule rule{row["bidirectional"].as_bool(), row["num_buckets"].as_int(),
                          row["max_distance"].as_int()};
    rule.check();
    const auto positions = row["relative_position"].as_ints(), want = row["bucket"].as_ints();
    ASSERT_EQ(positions.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(rule.bucket(positions[i]), want[i]) << "relative position " << positions[i];
  }
}

// A recorded core and the operands the kernels take.
struct Core {
  HostArrays tensors;
  Attrs attrs;
  std::vector<View> operands;  // of attention
  std::vector<int64_t> q_shape, k_shape;
  int64_t heads = 0;

  Core(const std::filesystem::path& file, const Json& settings)
      : tensors(read_safetensors(file)), heads(tensors.at("q").shape[2]) {
    const auto joined = [](std::vector<int64_t> shape) {
      return std::vector<int64_t>{shape[0], shape[1], shape[2] * shape[3]};
    };
    q_shape = joined(tensors.at("q").shape);
    k_shape = joined(tensors.at("k").shape);
    const Json causal = settings["causal"];
    attrs = {{"h", heads},
             {"causal", !causal.is_null() && causal.as_bool()},
             {"bidirectional", settings["bidirectional"].as_bool()},
             {"max_distance", settings["max_distance"].as_int()}};
    const bool packed = tensors.contains("q_segment_ids");
    operands = {floats("q", q_shape),
                floats("k", k_shape),
                floats("v", k_shape),
                tensors.contains("bias_table")
                    ? floats("bias_table", tensors.at("bias_table").shape)
                    : View::none(),
                ids(packed ? "q_segment_ids" : "q_valid"),
                ids(packed ? "k_segment_ids" : "k_valid"),
                View::none(),
                View::none()};
  }
  View floats(const std::string& name, const std::vector<int64_t>& shape) {
    return View::of(tensors.at(name).as<float>().data(), shape);
  }
  View ids(const std::string& name) {
    if (!tensors.contains(name)) return View::none();
    HostArray& array = tensors.at(name);
    return View::of(array.as<int32_t>().data(), array.shape);
  }
  std::span<const float> want(const std::string& name) {
    return std::as_const(tensors.at(name)).as<float>();
  }
};

// Attention weights, read off by giving every key a value of its own: as many one-hot columns at a
// time as a head is deep.
std::vector<float> weights_of(Core& core) {
  const int64_t depth = core.q_shape[2] / core.heads, keys = core.k_shape[1];
  const int64_t batch = core.q_shape[0], queries = core.q_shape[1];
  std::vector<float> weights(static_cast<size_t>(batch * core.heads * queries * keys));
  HostArray values(DType::f32, core.k_shape), out(DType::f32, core.q_shape);
  for (int64_t first = 0; first < keys; first += depth) {
    const int64_t count = std::min(depth, keys - first);
    std::fill(values.as<float>().begin(), values.as<float>().end(), 0.0F);
    for (int64_t row = 0; row < batch * keys; ++row)
      for (int64_t h = 0; h < core.heads; ++h)
        if (const int64_t c = row % keys - first; c >= 0 && c < count)
          values.as<float>()[static_cast<size_t>((row * core.heads + h) * depth + c)] = 1;
    std::vector<View> in = core.operands;
    in[2] = View::of(values.as<float>().data(), core.k_shape);
    const std::vector<View> results{View::of(out.as<float>().data(), core.q_shape), View::none()};
    attention_cpu(in, results, core.attrs, {});
    for (int64_t row = 0; row < batch * queries; ++row)
      for (int64_t h = 0; h < core.heads; ++h)
        for (int64_t c = 0; c < count; ++c) {
          const int64_t at = ((row / queries * core.heads + h) * queries + row % queries) * keys;
          weights[static_cast<size_t>(at + first + c)] =
              out.as<float>()[static_cast<size_t>((row * core.heads + h) * depth + c)];
        }
  }
  return weights;
}

void check_core(Core& core) {
  HostArray out(DType::f32, core.q_shape),
      lse(DType::f32, {core.q_shape[0], core.heads, core.q_shape[1]});
  const auto view = [](HostArray& a) { return View::of(a.as<float>().data(), a.shape); };
  attention_cpu(core.operands, std::vector<View>{view(out), view(lse)}, core.attrs, {});
  EXPECT_TRUE(near_array(std::as_const(out).as<float>(), core.want("output"), kT1));
  if (core.tensors.contains("weights")) {
    EXPECT_TRUE(near_array(std::span<const float>(weights_of(core)), core.want("weights"), kT1));
  }

  HostArray dq(DType::f32, core.q_shape), dk(DType::f32, core.k_shape), dv = dk, dtable;
  std::vector<View> in = core.operands;
  for (HostArray* a : {&out, &lse}) in.push_back(view(*a));
  in.push_back(core.floats("cotangent", core.q_shape));
  std::vector<View> results{view(dq), view(dk), view(dv), View::none()};
  const bool has_table = !core.operands[3].absent();
  if (has_table) {
    dtable = HostArray(DType::f32, core.tensors.at("bias_table").shape);
    results[3] = view(dtable);
  }
  attention_grad_cpu(in, results, core.attrs, {});
  EXPECT_TRUE(near_array(std::as_const(dq).as<float>(), core.want("dq"), kT2)) << "dq";
  EXPECT_TRUE(near_array(std::as_const(dk).as<float>(), core.want("dk"), kT2)) << "dk";
  EXPECT_TRUE(near_array(std::as_const(dv).as<float>(), core.want("dv"), kT2)) << "dv";
  if (has_table) {
    EXPECT_TRUE(near_array(std::as_const(dtable).as<float>(), core.want("dbias_table"), kT2));
  }
}

TEST(AttentionGolden, CoresGiveTheReferencesOutputsAndGradients) {
  const auto file = area() / "cases.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const auto cases = Json::read(file)["core"].members();
  EXPECT_FALSE(cases.empty());
  for (const auto& [name, settings] : cases) {
    SCOPED_TRACE(name);
    Core core(area() / ("core_" + name + ".safetensors"), settings);
    check_core(core);
  }
}

// T5X masks by token and by segment; a segment id of 0 on a token is one like any other there.
std::vector<int32_t> effective_ids(const HostArrays& tensors, bool has_segments) {
  const auto tokens = tensors.at("decoder_target_tokens").as<int32_t>();
  const auto segments = tensors.at("decoder_segment_ids").as<int32_t>();
  std::vector<int32_t> ids(tokens.size());
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = tokens[i] > 0 ? (has_segments ? segments[i] + 1 : 1) : 0;
  return ids;
}

TEST(AttentionGolden, DecoderMasksAreTheReferences) {
  const auto file = area() / "decoder_masks.safetensors";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  HostArrays tensors = read_safetensors(file);
  int checked = 0;
  for (const auto& [name, mask] : tensors) {
    if (!name.starts_with("mask_")) continue;
    SCOPED_TRACE(name);
    const auto shape = tensors.at("decoder_target_tokens").shape;
    std::vector<int32_t> ids = effective_ids(tensors, name.find("segments") != std::string::npos);
    HostArray& prefix = tensors.at("decoder_causal_attention");
    HostArray states(DType::f32, {shape[0], shape[1], 1});
    const View x = View::of(states.as<float>().data(), states.shape),
               id = View::of(ids.data(), shape);
    const std::vector<View> in{x,
                               x,
                               x,
                               View::none(),
                               id,
                               id,
                               name.find("prefix") != std::string::npos
                                   ? View::of(prefix.as<int32_t>().data(), shape)
                                   : View::none()};
    const attention::Problem problem(in, {{"h", int64_t{1}}, {"causal", true}});
    const auto want = mask.as<float>();
    for (int64_t b = 0; b < shape[0]; ++b)
      for (int64_t i = 0; i < shape[1]; ++i)
        for (int64_t j = 0; j < shape[1]; ++j)
          EXPECT_EQ(problem.allowed(b, i, j),
                    want[static_cast<size_t>((b * shape[1] + i) * shape[1] + j)] != 0)
              << "sequence " << b << ", query " << i << ", key " << j;
    ++checked;
  }
  EXPECT_GT(checked, 0) << file << " holds no masks";
}

}  // namespace
}  // namespace quintet::testing
