// Encoders on a device run the layer that decoders run (models/decoding/network/layer.h): bit for bit
// what the network that is trained computes, of which their weights take no copy.

#include "models/decoding/gpu/gpu_sequences.h"
#include "runtime/execution/tape.h"
#include "tests/gpu_kernels/on_device.h"
#include "tests/models/sparse_network.h"

namespace quintet::testing {
namespace {

constexpr int64_t kItems = 3, kLength = 9;

struct Batch {
  HostArray tokens{DType::i32, {kItems, kLength}}, segments{DType::i32, {kItems, kLength}};
};

/// Some inputs end early, one begins late.
Batch batch() {
  Batch made;
  for (int64_t i = 0; i < kItems; ++i)
    for (int64_t t = i == 1 ? 2 : 0; t < kLength - 2 * i; ++t) {
      const auto at = static_cast<size_t>(i * kLength + t);
      made.tokens.as<int32_t>()[at] = static_cast<int32_t>(2 + (7 * i + 5 * t) % 35);
      made.segments.as<int32_t>()[at] = 1;
    }
  return made;
}

class Encoders : public DeviceTest {
 protected:
  static void expect_the_networks_bits(const SparseOptions& options) {
    SCOPED_TRACE(options.name());
    const SparseNetwork network = sparse_network(options);
    const Tape::Recording paused(nullptr);
    const decoding::GpuWeights weights(*network.model);
    const auto [tokens, segments] = batch();
    const HostArray got = decoding::encode(weights, tokens, segments).to_host();
    const HostArray want =
        network.model
            ->encode(Tensor::from_host(tokens, {axis::kBatch, axis::kLength}),
                     Tensor::from_host(segments, {axis::kBatch, axis::kLength}), {})
            .to_host();
    EXPECT_EQ(got.shape, want.shape);
    EXPECT_EQ(got.dtype, want.dtype);
    EXPECT_EQ(got.bytes, want.bytes);
    EXPECT_EQ(weights.encoder.layers[1].self.out.values.raw(),
              network.model->parameters().at("encoder/layers_1/attention/out/kernel").used().raw());
  }
};

TEST_F(Encoders, AreTheNetworksBitForBit) {
  for (const char* dtype : {"float32", "bfloat16"})
    for (const bool shared : {true, false})
      expect_the_networks_bits({.encoder = {}, .dtype = dtype, .shared_bias = shared});
}

}  // namespace
}  // namespace quintet::testing
