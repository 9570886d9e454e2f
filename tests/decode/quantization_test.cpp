// Networks in fewer bits against the same in float32.

#include <omp.h>

#include "models/decoding/quantization_loss.h"
#include "tests/decode/hf_fixture.h"

namespace quintet::testing {
namespace {

using namespace decoding;
using Ids = std::vector<int32_t>;

struct Limits {
  WeightType type;
  double weight_error, divergence;
};
// A rounding to bfloat16 changes a weight by 2^-9 at most; to 8 bits by half a step of 1/127 of the
// column's largest, to float8 by 2^-4 of itself, evenly spread 0.02 to 0.03 in the root mean square. Divergences: several times what the fixtures' models give.
constexpr Limits kLimits[] = {{WeightType::bf16, 1.0 / 512, 1e-3},
                              {WeightType::int8, 0.012, 1e-2},
                              {WeightType::int8_dynamic, 0.012, 2e-2},
                              {WeightType::fp8, 0.03, 5e-2}};

TEST(Quantization, EachPartsLossIsSmallAndTheirBytesToo) {
  const auto folders = fixture_folders("hf_generate");
  if (folders.empty()) GTEST_SKIP() << "no fixtures of hf_generate";
  omp_set_num_threads(1);  // so small that a team costs more than it does
  const HostArrays arrays = read_safetensors(fixture_root() / "hf_generate" / "inputs.safetensors");
  const HostArray& tokens = arrays.at("mixed/input_ids");
  std::vector<Ids> inputs;
  for (int64_t i = 0; i < tokens.shape[0]; ++i) {
    const auto row = tokens.as<int32_t>().subspan(static_cast<size_t>(i * tokens.shape[1]),
                                                  static_cast<size_t>(tokens.shape[1]));
    inputs.emplace_back(row.begin(), row.end());
  }
  for (const auto& folder : folders) {
    const PackedNetwork exact = hf_network(folder);
    for (const Limits& limits : kLimits) {
      SCOPED_TRACE(folder.string() + " " + name_of(limits.type));
      const PackedNetwork quantized = hf_network(folder, limits.type);
      const auto losses = quantization_losses(exact, quantized, inputs, inputs);
      ASSERT_EQ(losses.size(), exact.parts().size() + 1);
      EXPECT_EQ(losses.back().part, "all");
      EXPECT_EQ(losses.back().bytes + (exact.spec().logits_via_embedding
                                           ? 0
                                           : 2 * exact.spec().vocab_size * exact.spec().emb_dim()),
                quantized.bytes());
      EXPECT_LT(losses.back().bytes * 10, exact.bytes() * 6);
      double most = 0;
      for (const QuantizationLoss& loss : losses) {
        EXPECT_GT(loss.weight_error, 0) << loss.part;
        EXPECT_LT(loss.weight_error, limits.weight_error) << loss.part;
        EXPECT_LT(loss.divergence, limits.divergence) << loss.part;
        EXPECT_GE(loss.divergence, 0) << loss.part;
        if (loss.part != "all") most = std::max(most, loss.divergence);
      }
      EXPECT_GT(most, 0);
      const auto itself = quantization_losses(exact, exact, inputs, inputs);
      EXPECT_EQ(itself.back().weight_error, 0);
      EXPECT_LT(itself.back().divergence, 1e-9);
    }
  }
}

}  // namespace
}  // namespace quintet::testing
