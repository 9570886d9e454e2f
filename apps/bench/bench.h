#pragma once
// The benchmarks of `quintet bench`: one line each here, one file each or a few together (apps/bench/bench_*.cpp).

#include <span>

// BENCH(name, what it times)
#define QUINTET_BENCHES(BENCH)                                   \
  BENCH(train, "training steps of a T5 1.1 with AdamW")          \
  BENCH(layouts, "training steps on every layout of some ranks") \
  BENCH(cluster, "ops and collectives, for quintet plan")        \
  BENCH(generate, "greedy decoding or beam search by a T5 1.1")  \
  BENCH(ranks, "generation by ranks that share a model")         \
  BENCH(attention, "attention with a relative position bias")    \
  BENCH(gemm, "a matrix product")                                \
  BENCH(data, "text, TFRecords or a cache to packed batches")    \
  BENCH(load, "a model's weights until the first token")         \
  BENCH(checkpoint, "saving in the background and restoring")

namespace quintet {

#define QUINTET_DECLARE(name, summary) int run_bench_##name(std::span<char* const> args);
QUINTET_BENCHES(QUINTET_DECLARE)
#undef QUINTET_DECLARE

}  // namespace quintet
