#pragma once
// Arrays of random numbers, bit for bit JAX's (bits, uniform, bernoulli) or within 2e-6 (normals).
// Each fills elements [begin, begin + out.size()) of the flattened whole array, on all threads; the
// values do not depend on how the array is sharded. Highway, OpenMP; 2.6 ns a normal on one Emerald
// Rapids core.
//
//   std::vector<float> w(512 * 512);
//   fill_normal(key, 0, w, 1.0f / std::sqrt(512.0f));

#include <cstdint>
#include <span>

#include "runtime/base/threefry.h"

namespace quintet {

/// jax.random.bits(key, shape, uint32).
void fill_bits(Key key, uint64_t begin, std::span<uint32_t> out);
/// scale * jax.random.uniform(key, shape, float32, low, high): low <= x < high.
void fill_uniform(Key key, uint64_t begin, std::span<float> out, float low = 0.0f,
                  float high = 1.0f, float scale = 1.0f);
/// scale * jax.random.normal(key, shape, float32).
void fill_normal(Key key, uint64_t begin, std::span<float> out, float scale = 1.0f);
/// scale * jax.random.truncated_normal(key, low, high, shape, float32).
void fill_truncated_normal(Key key, uint64_t begin, std::span<float> out, float low = -2.0f,
                           float high = 2.0f, float scale = 1.0f);
/// jax.random.bernoulli(key, p, shape): 1 with probability p, else 0.
void fill_bernoulli(Key key, uint64_t begin, std::span<uint8_t> out, float p);

}  // namespace quintet
