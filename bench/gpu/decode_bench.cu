// Kernels of generation on a GPU: attention to caches, in place and paged, products of few rows, experts of few rows, draws and
// the likeliest tokens.
//
//   decode_bench --device=cuda [--tiny] [--only=self] [--runs=20]
//
// A line a measurement: {"name", "ms" (median), "gb_s", "of_copy", "of_equal_copy"}, of less than 20 MB also "ms_in_a_row", that of a
// launch of eight in a row. Bytes are those that a perfect kernel moves: of a cache, keys and values of the tokens so far; of a product, its weights; of a draw, the logits.

#include "bench/gpu/memory_bench.cuh"
#include "kernels/decode_attention/decode_attention_gpu.h"
#include "kernels/decode_matmul/small_batch_matmul_gpu.h"
#include "kernels/logits/logits_gpu.h"

namespace quintet::bench {
namespace {

/// T5 1.1 base in bfloat16.
struct Network {
  int64_t heads = 12, head_dim = 64, length = 512, vocab = 32128;
  int64_t embed = 4096, mlp = 10240;  // of products: XXL's, as base's stay in the cache
  int64_t width() const { return heads * head_dim; }
};
constexpr Network kTiny{
    .heads = 2, .head_dim = 16, .length = 40, .vocab = 300, .embed = 64, .mlp = 96};

/// `rows` queries of `items` sequences, and where what they find goes.
struct Queries {
  Array query, out;
  DecodeRows rows;
  Queries(const Network& net, int64_t items, int64_t decodes)
      : query({items * decodes, net.width()}, DType::bf16),
        out({items * decodes, net.width()}, DType::bf16) {
    query.vary(-1, 1);
    rows = {.items = items,
            .decodes = decodes,
            .heads = net.heads,
            .head_dim = net.head_dim,
            .query = query.data(),
            .out = out.data(),
            .query_stride = net.width(),
            .out_stride = net.width()};
  }
};

/// Keys and values of `sequences` as long as the network reads.
struct Cache {
  Array keys, values, bias;
  Cache(const Network& net, int64_t sequences)
      : keys({sequences, net.heads, net.length, net.head_dim}, DType::bf16),
        values({sequences, net.heads, net.length, net.head_dim}, DType::bf16),
        bias({net.heads, 128}, DType::f32) {
    keys.vary(-1, 1), values.vary(-1, 1, 7), bias.vary(-1, 1);
  }
  double bytes() const { return static_cast<double>(keys.bytes() + values.bytes()); }
};

void bench_attention(MemoryBench& bench, const Network& net, int64_t items, int64_t decodes) {
  const std::string size = fmt::format(" {}x{} {}", items, decodes, net.length);
  const int64_t rows = items * decodes;
  const Queries asked(net, items, decodes);
  const auto all = [](int64_t count, int64_t value) {
    return std::vector<int32_t>(static_cast<size_t>(count), static_cast<int32_t>(value));
  };
  Array lengths({items}, DType::i32), positions({rows}, DType::i32);
  lengths.store(all(items, net.length)), positions.store(all(rows, net.length - 1));
  std::vector<uint16_t> own_beams;  // each row has written all of its tokens
  for (int64_t row = 0; row < rows; ++row)
    own_beams.insert(own_beams.end(), static_cast<size_t>(net.length),
                     static_cast<uint16_t>(row % decodes));
  own_beams.resize((own_beams.size() + 1) / 2 * 2);
  Array sources({static_cast<int64_t>(own_beams.size() / 2)}, DType::i32);
  sources.store(own_beams);
  const Cache own(net, rows), shared(net, items);
  const auto in_place = [&](const Cache& cache) {
    return DecodeCache{.keys = cache.keys.data(),
                       .values = cache.values.data(),
                       .sequence_stride = net.width() * net.length,
                       .head_stride = net.head_dim * net.length,
                       .token_stride = net.head_dim,
                       .max_length = net.length};
  };
  const DecodeSelf self{.rows = asked.rows,
                        .cache = in_place(own),
                        .key = asked.query.data(),
                        .value = asked.query.data(),
                        .key_stride = net.width(),
                        .positions = positions.data<int32_t>(),
                        .sources = sources.data<uint16_t>(),
                        .bias = own.bias.data<float>(),
                        .biases = 128};
  bench.measure("decode_self" + size, own.bytes(),
                [&] { QT_GPU::decode_self_gpu(self, stream()); });
  const DecodeCross cross{
      .rows = asked.rows, .cache = in_place(shared), .lengths = lengths.data<int32_t>()};
  bench.measure("decode_cross" + size, shared.bytes(),
                [&] { QT_GPU::decode_cross_gpu(cross, stream()); });
}

/// Each row's tokens at slots of a pool that lie apart.
void bench_pages(MemoryBench& bench, const Network& net, int64_t rows) {
  const Queries asked(net, rows, 1);
  const Cache pool(net, rows);
  std::vector<int32_t> slots;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t t = 0; t < net.length; ++t)
      slots.push_back(static_cast<int32_t>((t * rows * 7 + row) % (rows * net.length)));
  Array where({rows, net.length}, DType::i32);
  where.store(slots);
  std::vector<PagedGroup> groups;
  for (int64_t row = 0; row < rows; ++row)
    groups.push_back({.slots = where.data<int32_t>() + row * net.length,
                      .length = static_cast<int32_t>(net.length),
                      .row = static_cast<int32_t>(row),
                      .rows = 1});
  const Array table({static_cast<int64_t>(groups.size() * sizeof(PagedGroup))}, DType::u8);
  Device::current().copy_in(table.data(), groups.data(), table.bytes());
  const DecodePaged paged{.rows = asked.rows,
                          .pool = {.keys = pool.keys.data(),
                                   .values = pool.values.data(),
                                   .head_stride = net.head_dim,
                                   .token_stride = net.width(),
                                   .max_length = rows * net.length},
                          .groups = table.data<PagedGroup>(),
                          .key = asked.query.data(),
                          .value = asked.query.data(),
                          .key_stride = net.width(),
                          .bias = pool.bias.data<float>(),
                          .biases = 128};
  bench.measure(fmt::format("decode_paged {} {}", rows, net.length), pool.bytes(),
                [&] { QT_GPU::decode_paged_gpu(paged, stream()); });
}

/// The gated MLP's first product, dense, in bytes, and of eight experts of which each row has one.
void bench_products(MemoryBench& bench, const Network& net, int64_t rows) {
  const std::string size = fmt::format(" {}x{}x{}", rows, net.embed, net.mlp);
  constexpr int64_t experts = 8;
  Array x({rows, net.embed}, DType::bf16), logits({rows, experts}, DType::f32);
  Array weights({experts, net.embed, net.mlp}, DType::bf16),
      gate({experts, net.embed, net.mlp}, DType::bf16);
  x.vary(-1, 1), weights.vary(-0.1f, 0.1f), gate.vary(-0.1f, 0.1f, 7);
  std::vector<float> choices(static_cast<size_t>(rows * experts), -1);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row)
    choices[row * experts + row % experts] = 1;  // as many experts as rows
  logits.store(choices);
  const Array out({rows, net.mlp}, DType::bf16), scales({experts, net.mlp}, DType::f32, 0.01f);
  SmallBatchMatmul product{.rows = rows,
                           .k = net.embed,
                           .n = net.mlp,
                           .x = x.data(),
                           .weights = weights.data(),
                           .gate = gate.data(),
                           .act0 = Activation::gelu,
                           .out = out.data()};
  const double one = 4.0 * static_cast<double>(net.embed * net.mlp);  // both matrices, once
  const auto measure = [&](const char* name, double bytes) {
    bench.measure(name + size, bytes, [&] { QT_GPU::small_batch_matmul_gpu(product, stream()); });
  };
  measure("small_batch_bf16", one);
  if (rows <= kMaxSmallBatchRows) {
    product.experts = {.logits = logits.data<float>(), .count = experts, .chosen = 1};
    measure("small_batch_experts", one * static_cast<double>(std::min(rows, experts)));
    product.experts = {};
  }
  product.weight_dtype = DType::i8;
  product.weight_scales = product.gate_scales = scales.data<float>();
  measure("small_batch_int8", one / 2);
}

void bench_draws(MemoryBench& bench, int64_t vocab, int64_t rows) {
  Array logits({rows, vocab}, DType::f32);
  logits.vary(-8, 8);
  const Array values({rows, kMostTop}, DType::f32), log_sums({rows}, DType::f32),
      log_probs({rows}, DType::f32), temperature({1}, DType::f32, 0.8f);
  const Array indices({rows, kMostTop}, DType::i32), tokens({rows}, DType::i32),
      key({2}, DType::i32);
  const std::string size = fmt::format(" {}x{}", rows, vocab);
  const double bytes = static_cast<double>(logits.bytes());
  for (const int64_t top : {int64_t{1}, int64_t{8}})
    bench.measure(fmt::format("top_{}{}", top, size), bytes, [&] {
      QT_GPU::top_gpu({.logits = logits.data<float>(),
                       .rows = rows,
                       .vocab = vocab,
                       .top = top,
                       .values = values.data<float>(),
                       .indices = indices.data<int32_t>(),
                       .log_sums = log_sums.data<float>()},
                      stream());
    });
  SampleRows sample{.logits = logits.data(),
                    .rows = rows,
                    .vocab = vocab,
                    .stride = vocab,
                    .temperatures = temperature.data<float>(),
                    .key = key.data<Key>(),
                    .tokens = tokens.data<int32_t>(),
                    .log_probs = log_probs.data<float>()};
  const auto draw = [&](const char* name) {
    bench.measure(name + size, bytes, [&] { QT_GPU::sample_gpu(sample, stream()); });
  };
  draw("sample_all");
  sample.topk = 40;
  draw("sample_topk");
  sample.topk = 0, sample.topp = 0.9f;
  draw("sample_topp");
}

void run(const Options& options) {
  const Network net = options.tiny ? kTiny : Network{};
  MemoryBench bench(options, true);
  const std::vector<int64_t> batches =
      options.tiny ? std::vector<int64_t>{2, 8} : std::vector<int64_t>{1, 8, 32, 128, 256};
  for (const int64_t rows : batches) {
    bench_attention(bench, net, rows, 1);
    bench_pages(bench, net, rows);
    if (rows <= 32) bench_products(bench, net, rows);
    bench_draws(bench, net.vocab, rows);
  }
  bench_attention(bench, net, options.tiny ? 1 : 32, 4);
  for (const int64_t vocab : {net.vocab, options.tiny ? int64_t{700} : int64_t{250112}})
    bench_draws(bench, vocab, options.tiny ? 4 : 64);
}

}  // namespace
}  // namespace quintet::bench

int main(int argc, char** argv) {
  return quintet::bench::run_program(argc, argv, quintet::bench::run);
}
