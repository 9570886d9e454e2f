// Products of many rows: packed weights (kernels/prepacked_matmul), whose sums run in one order however many rows
// there are, beside oneDNN's, by turns in one run. Shapes of T5 1.1 base and large; rows in blocks, as a pass over
// whole sequences takes them. Processor time of one thread, the best of some; one JSON object a line.
//
//   ninja -C build products_bench
//   OMP_NUM_THREADS=1 build/tests/decode/products_bench [ROWS...]

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>

#include "kernels/cpu/gemm.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "kernels/random/random.h"
#include "models/decoding/cpu/prefill.h"

namespace quintet {
namespace {

std::vector<float> random_floats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = random_uniform(random_bits(key_from_seed(7), i)) - 0.5F;
  return values;
}

double seconds(const std::function<void()>& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// Seconds of both over all shapes so far.
struct Sums {
  double packed = 0, onednn = 0;
};

void compare(int64_t rows, int64_t k, int64_t n, Sums& sums) {
  const std::vector<float> x = random_floats(rows * k), w = random_floats(k * n);
  std::vector<float> y(static_cast<size_t>(rows * n));
  HugeArena arena;
  const PackedMatrix matrix = PackedMatrix::pack(w.data(), k, n, arena);
  const int64_t block = decoding::prefill_block_rows(rows, 1);
  PackedRows packed;
  const auto ours = [&] {
    for (int64_t first = 0; first < rows; first += block) {
      packed.pack(x.data() + first * k, std::min(block, rows - first), k);
      multiply(packed, matrix, {0, matrix.panels()},
               [&](const Tile& tile) { store_tile(tile, y.data() + first * n, n); });
    }
  };
  const auto theirs = [&] {
    cpu::gemm({.m = rows, .n = n, .k = k}, x.data(), k, w.data(), n, y.data(), n);
  };
  const double operations = 2.0 * static_cast<double>(rows * k * n);
  Sums best{1e9, 1e9};
  for (int64_t i = std::clamp<int64_t>(static_cast<int64_t>(1e10 / operations), 5, 50); i > 0; --i)
    best = {std::min(best.packed, seconds(ours)), std::min(best.onednn, seconds(theirs))};
  sums.packed += best.packed;
  sums.onednn += best.onednn;
  fmt::print(
      "{{\"rows\": {}, \"k\": {}, \"n\": {}, \"packed_gflops\": {:.1f}, \"onednn_gflops\": {:.1f}, "
      "\"packed_time_to_onednn\": {:.3f}}}\n",
      rows, k, n, operations / best.packed * 1e-9, operations / best.onednn * 1e-9,
      best.packed / best.onednn);
  std::fflush(stdout);
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoll(argv[i]));
  if (rows.empty()) rows = {64, 168, 512, 1024, 4096};
  constexpr int64_t kShapes[][2] = {{768, 768},   {768, 2304},  {768, 4096},  {2048, 768},
                                    {1024, 1024}, {1024, 3072}, {1024, 5632}, {2816, 1024}};
  quintet::Sums sums;
  for (const auto& [k, n] : kShapes)
    for (const int64_t r : rows) quintet::compare(r, k, n, sums);
  fmt::print("{{\"packed_time_to_onednn\": {:.3f}}}\n", sums.packed / sums.onednn);
}
