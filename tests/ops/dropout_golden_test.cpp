// Dropout masks are jax.random.bernoulli's: whatever keys, shapes and probabilities init/ recorded.

#include "kernels/dropout/dropout.h"
#include "tests/harness/fixtures.h"

namespace quintet::testing {
namespace {

// "<name>/<shape>/bernoulli_<p>" -> name and p; false for other tensors.
bool parse_name(const std::string& tensor, std::string* name, double* probability) {
  const std::string mark = "/bernoulli_";
  const size_t at = tensor.rfind(mark);
  if (at == std::string::npos) return false;
  *probability = std::stod(tensor.substr(at + mark.size()));
  *name = tensor.substr(0, tensor.rfind('/', at - 1));
  return true;
}

TEST(DropoutGolden, MasksAreJaxs) {
  const auto file = fixture_root() / "init" / "random.safetensors";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const HostArrays tensors = read_safetensors(file);
  int checked = 0;
  for (const auto& [tensor, mask] : tensors) {
    std::string name;
    double probability = 0;
    if (!parse_name(tensor, &name, &probability)) continue;
    SCOPED_TRACE(tensor);
    const auto key = tensors.at(name + "/key").as<uint32_t>();
    HostArray x(DType::f32, mask.shape), y = x;
    for (float& v : x.as<float>()) v = 1;
    const std::vector<View> in{View::of(x.as<float>().data(), x.shape)};
    const std::vector<View> out{View::of(y.as<float>().data(), y.shape)};
    dropout_cpu(in, out,
                {{"rate", 1 - probability}, {"key0", int64_t{key[0]}}, {"key1", int64_t{key[1]}}},
                {});
    for (size_t i = 0; i < mask.bytes.size(); ++i)
      ASSERT_EQ(y.as<float>()[i] != 0, mask.bytes[i] != std::byte{0}) << "element " << i;
    ++checked;
  }
  EXPECT_GT(checked, 0) << file << " holds no bernoulli masks";
}

}  // namespace
}  // namespace quintet::testing
