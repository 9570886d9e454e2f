// T5X's LayerNorm and MlpBlock: values and gradients recorded from the reference. Activations come
// from the file names, sizes and parameter names from the files.

#include <sstream>

#include "kernels/matmul/matmul.h"
#include "kernels/mlp/mlp.h"
#include "kernels/rms_norm/rms_norm.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

View view_of(HostArray& array) { return View::of(array.as<float>().data(), array.shape); }

HostArray like(const std::vector<int64_t>& shape) { return HostArray(DType::f32, shape); }

std::vector<int64_t> with_depth(std::vector<int64_t> shape, int64_t depth) {
  shape.back() = depth;
  return shape;
}

void expect_near(const HostArray& got, const HostArray& want, Tolerance tolerance) {
  EXPECT_EQ(got.shape, want.shape);
  EXPECT_TRUE(near_array(got.as<float>(), want.as<float>(), tolerance));
}

// Files of the attention area whose name without extension starts with `prefix`.
std::vector<std::filesystem::path> module_files(const std::string& prefix) {
  std::vector<std::filesystem::path> found;
  const auto folder = fixture_root() / "attention";
  if (!std::filesystem::is_directory(folder)) return found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().stem().string().starts_with(prefix) &&
        entry.path().extension() == ".safetensors")
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Modules, LayerNormIsT5Xs) {
  const auto files = module_files("module_layer_norm");
  if (files.empty()) GTEST_SKIP() << "no attention/module_layer_norm* under " << fixture_root();
  for (const auto& file : files) {
    SCOPED_TRACE(file);
    HostArrays t = read_safetensors(file);
    HostArray y = like(t.at("inputs").shape), dx = y, dscale = like(t.at("scale").shape);
    const Attrs attrs{{"eps", 1e-6}};
    const std::vector<View> in{view_of(t.at("inputs")), view_of(t.at("scale"))};
    const std::vector<View> out{view_of(y)};
    rms_norm_cpu(in, out, attrs, {});
    expect_near(y, t.at("output"), kT1);
    const std::vector<View> grad_in{in[0], in[1], view_of(t.at("cotangent"))};
    const std::vector<View> grad_out{view_of(dx), view_of(dscale)};
    rms_norm_grad_cpu(grad_in, grad_out, attrs, {});
    expect_near(dx, t.at("d_inputs"), kT2);
    expect_near(dscale, t.at("d_scale"), kT2);
  }
}

// "module_mlp_gelu_linear" -> {gelu, linear}.
std::vector<Activation> activations_of(const std::filesystem::path& file) {
  std::vector<Activation> found;
  std::istringstream words(file.stem().string().substr(std::string("module_mlp_").size()));
  for (std::string word; std::getline(words, word, '_');)
    found.push_back(activation_from_name(word));
  return found;
}

void check_mlp(const std::filesystem::path& file) {
  HostArrays t = read_safetensors(file);
  const std::vector<Activation> acts = activations_of(file);
  ASSERT_LE(acts.size(), 2U);
  const bool is_gated = acts.size() == 2;
  Attrs attrs{{"act0", static_cast<int64_t>(acts[0])}};
  if (is_gated) attrs.set("act1", static_cast<int64_t>(acts[1]));
  const std::string wi_0 = is_gated ? "wi_0/kernel" : "wi/kernel", wi_1 = "wi_1/kernel";
  HostArray &x = t.at("inputs"), &wo = t.at("params/wo/kernel"), &dz = t.at("cotangent");
  const View w0 = view_of(t.at("params/" + wi_0));
  const View w1 = is_gated ? view_of(t.at("params/" + wi_1)) : View::none();
  HostArray y = like(with_depth(x.shape, wo.shape[0])), h0 = y, h1 = y;
  HostArray z = like(t.at("output").shape), dwo = like(wo.shape), dx = like(x.shape);
  HostArray dw0 = like(t.at("params/" + wi_0).shape), dw1 = dw0;

  const auto run = [&attrs](Kernel kernel, std::vector<View> in, std::vector<View> out) {
    kernel(in, out, attrs, Stream{});
  };
  const View p0 = view_of(h0), p1 = is_gated ? view_of(h1) : View::none();
  run(mlp_cpu, {view_of(x), w0, w1, view_of(wo)}, {view_of(z), p0, p1});
  expect_near(z, t.at("output"), kT1);
  run(mlp_grad_cpu, {view_of(x), w0, w1, view_of(wo), p0, p1, view_of(dz)},
      {view_of(dx), view_of(dw0), is_gated ? view_of(dw1) : View::none(), view_of(y)});
  run(matmul_grad_w_cpu, {view_of(y), view_of(dz)}, {view_of(dwo)});
  expect_near(dwo, t.at("grads/wo/kernel"), kT2);
  expect_near(dx, t.at("d_inputs"), kT2);
  expect_near(dw0, t.at("grads/" + wi_0), kT2);
  if (is_gated) expect_near(dw1, t.at("grads/" + wi_1), kT2);
}

TEST(Modules, MlpBlockIsT5Xs) {
  const auto files = module_files("module_mlp_");
  if (files.empty()) GTEST_SKIP() << "no attention/module_mlp_* under " << fixture_root();
  for (const auto& file : files) {
    SCOPED_TRACE(file);
    check_mlp(file);
  }
}

}  // namespace
}  // namespace quintet::testing
