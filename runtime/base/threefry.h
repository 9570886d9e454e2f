#pragma once
// Counter-based random numbers: JAX's Threefry-2x32 in its partitionable scheme. Element i of an
// array drawn with a key depends on the key and on i alone, so blocks, threads and meshes cannot
// change it.
//
//   const Key root = key_from_seed(17);                                  // jax.random.PRNGKey(17)
//   const Key step = fold_in(root, 100);
//   const bool keep = random_uniform(random_bits(step, i)) < 0.9f;       // element i of bernoulli(0.9)
//
// Arrays, vectorised and on all threads: kernels/random/random.h. Inside a Highway kernel:
// kernels/random/threefry-inl.h. Algorithm: Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011), 20 rounds.

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace quintet {

/// A JAX key: the two words of its uint32[2] form. Also the result of one Threefry block.
struct Key {
  uint32_t a = 0, b = 0;
  bool operator==(const Key&) const = default;
};

/// One block: the words (x0, x1) enciphered under key.
constexpr Key threefry2x32(Key key, uint32_t x0, uint32_t x1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t schedule[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
  x0 += schedule[0];
  x1 += schedule[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int rotation : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, rotation) ^ x0;
    }
    x0 += schedule[(group + 1) % 3];
    x1 += schedule[(group + 2) % 3] + group + 1;
  }
  return {x0, x1};
}

/// jax.random.PRNGKey(seed) with 64-bit types off, as T5X runs: only the low 32 bits of seed count.
constexpr Key key_from_seed(int64_t seed) { return {0, static_cast<uint32_t>(seed)}; }

/// jax.random.fold_in(key, data).
constexpr Key fold_in(Key key, uint32_t data) { return threefry2x32(key, 0, data); }

/// Element i of jax.random.split(key, n), which does not depend on n.
constexpr Key split_at(Key key, uint64_t i) {
  return threefry2x32(key, static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(i));
}
/// jax.random.split(key, n).
std::vector<Key> split(Key key, int64_t n);

/// The key Flax gives the draw number `count` (from 1) of the module at `module_path` ("encoder",
/// "layers_0", "attention", "query"): root folded with the first four bytes of a SHA-1 over the
/// names and the count. The parameter's own name is not part of the path.
Key fold_in_path(Key root, std::span<const std::string_view> module_path, uint32_t count = 1);
/// What it folds into root, of a path such as "encoder/layers_0/attention/query".
uint32_t hash_of_path(std::string_view module_path, uint32_t count = 1);
/// The same for a parameter named by its T5X path, "encoder/layers_0/attention/query/kernel";
/// `count` says which of the module's own parameters it is, in order of creation.
Key key_of_parameter(Key root, std::string_view parameter_path, uint32_t count = 1);

/// Element i (flat, of the global array) of jax.random.bits(key, shape, uint32).
constexpr uint32_t random_bits(Key key, uint64_t i) {
  const Key block = split_at(key, i);
  return block.a ^ block.b;
}

/// A float in [0, 1) from the upper 23 of 32 random bits, as jax.random.uniform makes it.
constexpr float random_uniform(uint32_t bits) {
  return std::bit_cast<float>((bits >> 9) | 0x3f800000u) - 1.0f;
}

}  // namespace quintet
