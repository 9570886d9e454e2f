// What it costs that an answer's bits do not depend on the batch it is made in: T5 1.1 small,
// encoding and decoding steps, with this engine's products, whose sums run in one order however many
// rows there are, and with oneDNN's, which are cut by their shape. The step without is not run
// whole: its time is that of the step with, its products' time taken off and oneDNN's put in.
// Processor time, the best of some (other work on the machine then hardly counts), shared by the
// threads. One JSON object a line; `plain_row_changes`: whether a row alone and the same row in the
// batch differ in oneDNN's.
//
//   ninja -C build independence_bench
//   OMP_NUM_THREADS=1 build/tests/decode/independence_bench [REPEATS]

#include <fmt/format.h>
#include <omp.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>

#include "kernels/matmul/matmul.h"
#include "models/decoding/cpu/prefill.h"
#include "models/decoding/cpu/transformer_decoder.h"
#include "models/network.h"

namespace quintet {
namespace {

using namespace decoding;

double best_milliseconds(int repeats, const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < repeats + 1; ++i) {
    const std::clock_t begin = std::clock();
    body();
    const double took =
        1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / omp_get_max_threads();
    if (i > 0) best = std::min(best, took);
  }
  return best;
}

std::vector<float> random_floats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = random_uniform(random_bits(key_from_seed(7), i)) - 0.5F;
  return values;
}

PackedNetwork random_network(const T5Config& config) {
  Parameters declared;
  const Transformer network(Scope(declared), config);
  std::vector<float> values;
  return {spec_of(config), [&](const std::string& name) {
            const ParamInfo& info = declared.at(name);
            std::vector<int64_t> sizes;
            for (const Axis& axis : info.spec.axes) sizes.push_back(axis.size);
            values.resize(static_cast<size_t>(info.spec.elements()));
            info.initializer(key_of_parameter(key_from_seed(0), name), sizes, values);
            return View::of(values.data(), sizes);
          }};
}

/// Products of [rows, k] with each matrix in turn, both ways.
class Products {
 public:
  Products(std::vector<PackedMatrix> matrices, int64_t rows)
      : matrices_(std::move(matrices)), rows_(rows) {
    int64_t k = 0, n = 0;
    for (const PackedMatrix& m : matrices_) {
      plain_.push_back(random_floats(m.k() * m.n()));
      k = std::max(k, m.k());
      n = std::max(n, m.n());
    }
    x_ = random_floats(rows * k);
    y_.resize(static_cast<size_t>(rows * n));
  }
  /// As a step does: threads share the columns.
  void run_packed_step() {
#pragma omp parallel
    {
      PackedRows packed;
      for (const PackedMatrix& m : matrices_) {
        packed.pack(x_.data(), rows_, m.k());
        multiply(packed, m, m.share(omp_get_thread_num(), omp_get_num_threads()),
                 [&](const Tile& tile) { store_tile(tile, y_.data(), m.n()); });
#pragma omp barrier
      }
    }
  }
  /// As encoding does: threads share blocks of rows.
  void run_packed_blocks() {
    const int64_t block = prefill_block_rows(rows_, omp_get_max_threads());
#pragma omp parallel
    {
      PackedRows packed;
      for (const PackedMatrix& m : matrices_)
#pragma omp for schedule(static)
        for (int64_t first = 0; first < rows_; first += block) {
          packed.pack(x_.data() + first * m.k(), std::min(block, rows_ - first), m.k());
          multiply(packed, m, m.share(0, 1),
                   [&](const Tile& tile) { store_tile(tile, y_.data() + first * m.n(), m.n()); });
        }
    }
  }
  void run_plain() {
    for (size_t i = 0; i < matrices_.size(); ++i) multiply_plain(i, rows_);
  }
  /// Whether the first row of any product alone is, bit for bit, what it is among the others.
  bool plain_row_changes() {
    bool changes = false;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      multiply_plain(i, rows_);
      const auto n = static_cast<size_t>(matrices_[i].n());
      const std::vector<float> first(y_.begin(), y_.begin() + static_cast<std::ptrdiff_t>(n));
      multiply_plain(i, 1);
      changes = changes || std::memcmp(first.data(), y_.data(), n * sizeof(float)) != 0;
    }
    return changes;
  }

 private:
  void multiply_plain(size_t i, int64_t rows) {
    const int64_t k = matrices_[i].k(), n = matrices_[i].n();
    const int64_t xs[] = {rows, k}, ws[] = {k, n}, ys[] = {rows, n};
    const View in[] = {View::of(x_.data(), xs), View::of(plain_[i].data(), ws)};
    const View out[] = {View::of(y_.data(), ys)};
    matmul_cpu(in, out, {}, {});
  }

  std::vector<PackedMatrix> matrices_;
  const int64_t rows_;
  std::vector<std::vector<float>> plain_;
  std::vector<float> x_, y_;
};

void print(bool encodes, int64_t rows, double step, Products& products, int repeats) {
  const double packed = best_milliseconds(
      repeats, [&] { encodes ? products.run_packed_blocks() : products.run_packed_step(); });
  const double plain = best_milliseconds(repeats, [&] { products.run_plain(); });
  const auto rate = [&](double ms) { return 1000 * static_cast<double>(rows) / ms; };
  fmt::print(
      "{{\"phase\": \"{}\", \"rows\": {}, \"threads\": {}, \"step_ms\": {:.3f}, "
      "\"products_ms\": {:.3f}, \"plain_products_ms\": {:.3f}, "
      "\"tokens_per_second\": {:.1f}, \"plain_tokens_per_second\": {:.1f}, "
      "\"plain_row_changes\": {}}}\n",
      encodes ? "encode" : "decode", rows, omp_get_max_threads(), step, packed, plain, rate(step),
      rate(step - packed + plain), products.plain_row_changes());
  std::fflush(stdout);
}

void run(int repeats) {
  T5Config config;
  config.vocab_size = 32128, config.emb_dim = 512, config.num_heads = 6, config.head_dim = 64;
  config.mlp_dim = 1024, config.mlp_activations = {"gelu", "linear"};
  config.num_encoder_layers = config.num_decoder_layers = 8;
  const PackedNetwork network = random_network(config);
  TransformerDecoder decoder(network);
  std::vector<PackedMatrix> encoder, steps;
  for (const std::string& part : network.parts()) {
    if (!part.starts_with("encoder")) continue;
    for (const PackedMatrix& m : network.matrices(part)) encoder.push_back(m);
  }
  for (const PackedLayer& layer : network.decoder().layers) {
    const auto& mlp = std::get<PackedMlp>(layer.feed_forward.front().mlp);
    for (const PackedMatrix* m :
         {&layer.self.in, &layer.self.out, &layer.cross->in, &layer.cross->out, &mlp.in, &mlp.out})
      steps.push_back(*m);
  }
  steps.push_back(network.logits());
  constexpr int64_t kInputs = 64;
  for (const int64_t batch : {1, 8}) {
    std::vector<int32_t> tokens(static_cast<size_t>(batch * kInputs));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(2 + i * 37 % 32000);
    const double encoding = best_milliseconds(
        repeats, [&] { decoder.begin(tokens, batch, kInputs, {.max_length = 64}); });
    Products products(encoder, batch * kInputs);
    print(true, batch * kInputs, encoding, products, repeats);
  }
  for (const int64_t rows : {1, 8, 64}) {
    const std::vector<int32_t> inputs(static_cast<size_t>(rows * kInputs), 5);
    decoder.begin(inputs, rows, kInputs, {.max_length = 64});
    std::vector<int32_t> all(static_cast<size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    int32_t at = 0;
    const double step = best_milliseconds(std::min(4 * repeats, 60), [&] {
      const std::vector<int32_t> positions(all.size(), at++);
      decoder.step({.rows = all, .tokens = all, .positions = positions, .sources = {}});
    });
    Products products(steps, rows);
    print(false, rows, step, products, 4 * repeats);
  }
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) { quintet::run(argc > 1 ? std::atoi(argv[1]) : 10); }
