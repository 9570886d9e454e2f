#include <algorithm>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_gpu.h"
#include "kernels/attention/buckets.h"
#include "kernels/attention/gpu/prepare.cuh"
#include "kernels/attention/operands.h"
#include "kernels/random/threefry.cuh"

namespace quintet::QT_GPU::attention {
namespace {

using quintet::attention::int32_operand;

Buckets buckets_of(const BucketRule& rule) {
  Buckets e{};
  e.bidirectional = rule.bidirectional;
  e.side = static_cast<int>(rule.bidirectional ? rule.buckets / 2 : rule.buckets);
  e.exact = e.side / 2;
  QT_CHECK(e.side - e.exact <= Buckets::kMost,
           "attention: a table of {} relative position buckets; the CUDA kernel takes at most {}",
           rule.buckets, Buckets::kMost * (rule.bidirectional ? 4 : 2));
  int bucket = e.exact;
  for (int64_t d = e.exact; d <= rule.max_distance; ++d)
    while (bucket < rule.bucket(-d)) {
      e.edges[e.count++] = static_cast<int>(d);
      ++bucket;
    }
  return e;
}

// bias_diagonals[h][i] = bias of head h at relative position i - reach. A block a head.
__global__ void bias_diagonals_kernel(const __grid_constant__ Problem p, float* bias_diagonals) {
  const int head = static_cast<int>(blockIdx.x), length = 2 * p.reach + 1;
  for (int i = static_cast<int>(threadIdx.x); i < length; i += static_cast<int>(blockDim.x))
    bias_diagonals[static_cast<int64_t>(head) * length + i] = p.bias(head, i - p.reach);
}

constexpr int kRowWarps = 8, kRowsOfWarp = kTileQueries / kRowWarps;

// What a row knows of itself and has seen of its keys.
struct RowScan {
  int segment, self_key;  // self_key: the key at the query's position
  bool is_prefix;
  int begin, last, count;
};

// The ranges of keys. A block a tile of queries of a sequence, a warp eight rows; a lane
// holds every 32nd of 512 keys at a time.
__global__ void __launch_bounds__(32 * kRowWarps)
    ranges_kernel(const __grid_constant__ Problem p, int32_t* ranges) {
  constexpr int kHeld = 16;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int b = static_cast<int>(blockIdx.x) / p.query_tiles();
  const int tile = static_cast<int>(blockIdx.x) % p.query_tiles();
  const int first = tile * kTileQueries + warp * kRowsOfWarp;
  const int32_t* flags =
      p.prefix == nullptr ? nullptr : p.prefix + static_cast<int64_t>(b) * p.keys;
  RowScan scans[kRowsOfWarp];
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int i = min(first + r, p.queries - 1), self_key = i - p.first_relative;
    const int segment =
        p.q_segments == nullptr ? 1 : p.q_segments[static_cast<int64_t>(b) * p.queries + i];
    const bool is_prefix =
        flags != nullptr && self_key >= 0 && self_key < p.keys && flags[self_key] != 0;
    scans[r] = {segment, self_key, is_prefix, p.keys, -1, 0};
  }
  bool is_same = !p.causal;  // all rows see the keys of one segment: one of them is scanned
#pragma unroll
  for (int r = 1; r < kRowsOfWarp; ++r) is_same = is_same && scans[r].segment == scans[0].segment;
  for (int base = lane; base < p.keys; base += 32 * kHeld) {
    int segments[kHeld];  // 0: no key
    uint32_t prefixes = 0;
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
      const int j = base + 32 * n;
      segments[n] = 0;
      if (j >= p.keys) continue;
      segments[n] =
          p.kv_segments == nullptr ? 1 : p.kv_segments[static_cast<int64_t>(b) * p.keys + j];
      if (flags != nullptr && flags[j] != 0) prefixes |= 1U << n;
    }
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      if (r > 0 && is_same) break;
      RowScan& row = scans[r];
#pragma unroll
      for (int n = 0; n < kHeld; ++n) {
        const int j = base + 32 * n;
        const bool is_seen =
            !p.causal || j <= row.self_key || (row.is_prefix && (prefixes >> n & 1U) != 0);
        if (segments[n] == 0 || segments[n] != row.segment || !is_seen) continue;
        row.begin = min(row.begin, j);
        row.last = j;
        ++row.count;
      }
    }
  }
  auto of_rows = simt::shared<int2>(0, kTileQueries);
  int32_t* rows = ranges + 4 * p.rows_at(b);
  int2 packed{};
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    if (r == 0 || !is_same) {
      const int begin = __reduce_min_sync(0xffffffffU, scans[r].begin);
      const int end = __reduce_max_sync(0xffffffffU, scans[r].last) + 1;
      const int count = __reduce_add_sync(0xffffffffU, scans[r].count);
      packed = count > 0 ? make_int2(begin, end | (count < end - begin ? kHolesBit : 0))
                         : make_int2(0, p.keys | kNoneBit);
    }
    if (lane == 0 && first + r < p.queries) {
      of_rows[warp * kRowsOfWarp + r] = packed;
      rows[2 * (first + r)] = packed.x;
      rows[2 * (first + r) + 1] = packed.y;
    }
    if (lane == 0 && first + r == p.queries && p.queries % 2 != 0)
      rows[2 * p.queries] = rows[2 * p.queries + 1] = 0;
  }
  __syncthreads();
  if (warp != 0) return;
  int4 keys = make_int4(p.keys, 0, 0, p.keys);
  for (int r = lane; r < kTileQueries && tile * kTileQueries + r < p.queries; r += 32) {
    const int2 row = of_rows[r];
    const int end = row.y & kEndMask;
    keys.x = min(keys.x, row.x);
    keys.y = max(keys.y, end);
    keys.z = max(keys.z, row.x);
    keys.w = min(keys.w, (row.y & (kHolesBit | kNoneBit)) != 0 ? 0 : end);
  }
  keys.x = __reduce_min_sync(0xffffffffU, keys.x);
  keys.y = __reduce_max_sync(0xffffffffU, keys.y);
  keys.z = __reduce_max_sync(0xffffffffU, keys.z);
  keys.w = __reduce_min_sync(0xffffffffU, keys.w);
  if (lane != 0) return;
  int32_t* of_tile = ranges + 4 * (p.tiles_at(b) + tile);
  of_tile[0] = keys.x, of_tile[1] = keys.y, of_tile[2] = keys.z, of_tile[3] = keys.w;
}

int ranges_stride(int64_t queries) {
  return static_cast<int>(quintet::attention::ranges_length(queries) / 4);
}

void find_ranges(const Problem& problem, int32_t* to, Stream stream) {
  const int tiles = (problem.queries + kTileQueries - 1) / kTileQueries;
  if (problem.batch * tiles == 0) return;
  simt::launch(ranges_kernel,
               simt::Launch{.grid = dim3(static_cast<unsigned>(problem.batch * tiles)),
                            .block = dim3(32 * kRowWarps),
                            .shared = kTileQueries * sizeof(int2),
                            .stream = stream},
               problem, to);
}

struct Dropout {
  KeySource key;
  float keep_probability;
  int64_t first_batch, all_heads, first_head;
};

// keep[b][h][j], by global index.
__global__ void keep_kernel(const __grid_constant__ Problem p, Dropout drop, uint8_t* keep) {
  const int64_t count = static_cast<int64_t>(p.batch) * p.heads * p.keys;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const int64_t key = i % p.keys, head = i / p.keys % p.heads, b = i / p.keys / p.heads;
    const int64_t element =
        ((drop.first_batch + b) * drop.all_heads + drop.first_head + head) * p.keys + key;
    const uint32_t bits = threefry_bits(drop.key(), static_cast<uint64_t>(element));
    const float drawn = __uint_as_float((bits >> 9) | 0x3f800000U) - 1.0F;  // random_uniform()
    keep[i] = drawn < drop.keep_probability ? 1 : 0;
  }
}

// to = the values whose key is kept, 0 for the others.
template <typename T>
__global__ void drop_values_kernel(const __grid_constant__ Problem p, const uint8_t* keep,
                                   const T* v, T* to) {
  const int64_t width = static_cast<int64_t>(p.heads) * p.depth, count = p.batch * p.keys * width;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const int64_t row = i / width, head = i % width / p.depth;
    const int64_t b = row / p.keys, key = row % p.keys;
    to[i] = keep[(b * p.heads + head) * p.keys + key] != 0 ? v[i] : simt::from_float<T>(0.0F);
  }
}

unsigned blocks_for(int64_t elements, int64_t threads) {
  return static_cast<unsigned>(std::clamp<int64_t>((elements + threads - 1) / threads, 1, 4096));
}

}  // namespace

Prepared::Prepared(Views in, const Attrs& attrs, bool divide, Stream stream) {
  QT_ASSERT(in.size() >= 8);
  read_shapes(in, attrs);
  read_table(in[3], attrs);
  problem.table_factor = divide ? 1.0F / problem.scale : 1.0F;
  if (!divide) make_bias_diagonals(stream);
  read_masks(in, stream);
  drop(in[0], attrs, stream);
}

void Prepared::read_shapes(Views in, const Attrs& attrs) {
  const View &q_view = in[0], &k_view = in[1], &v_view = in[2];
  if (q_view.rank != 3 || k_view.rank != 3 || v_view.rank != 3 || k_view.sizes != v_view.sizes ||
      q_view.size(0) != k_view.size(0) || q_view.size(2) != k_view.size(2))
    throw Bug("attention: operands do not have the shapes bq(hd), bk(hd), bk(hd)");
  dtype = q_view.dtype;
  QT_CHECK(dtype == DType::f32 || dtype == DType::bf16,
           "attention: q has dtype {}, the CUDA kernel takes float32 or bfloat16", name_of(dtype));
  QT_CHECK(k_view.dtype == dtype && v_view.dtype == dtype,
           "attention: q, k and v have dtypes {}, {} and {}; they must be the same", name_of(dtype),
           name_of(k_view.dtype), name_of(v_view.dtype));
  const auto all_heads = attrs.get<int64_t>("h");
  const int64_t all_width = q_view.global[2];
  QT_CHECK(
      all_heads > 0 && all_width % all_heads == 0,
      "attention: {} heads do not divide a width of {}; heads times head_dim must be the width",
      all_heads, all_width);
  const int64_t depth = all_width / all_heads;
  const int64_t heads = depth == 0 ? all_heads : q_view.size(2) / depth;
  QT_ASSERT(depth == 0 || (q_view.size(2) % depth == 0 && q_view.origin[2] % depth == 0));
  QT_ASSERT(k_view.global[1] == k_view.size(1));  // a softmax needs all keys
  QT_ASSERT(k_view.size(1) < kEndMask && q_view.size(1) < kEndMask);
  QT_CHECK(depth <= 256, "attention: heads of {} columns; the CUDA kernel takes at most 256",
           depth);
  problem.batch = static_cast<int>(q_view.size(0));
  problem.heads = static_cast<int>(heads);
  problem.queries = static_cast<int>(q_view.size(1));
  problem.keys = static_cast<int>(k_view.size(1));
  problem.depth = static_cast<int>(depth);
  problem.causal = attrs.get_or<bool>("causal", false);
  problem.scale = static_cast<float>(attrs.get_or<double>("scale", 1.0));
  problem.first_relative =
      static_cast<int>(k_view.origin[1] - q_view.origin[1] - attrs.get_or<int64_t>("q_offset", 0));
  q = q_view.pointer;
  k = k_view.pointer;
  v = v_view.pointer;
}

void Prepared::read_table(const View& table, const Attrs& attrs) {
  if (table.absent()) return;
  if (table.rank != 2 || table.size(0) != problem.heads)
    throw Bug("attention: operands do not have the shapes table [h, r]");
  QT_CHECK(table.dtype == DType::f32,
           "attention: the table of relative position biases has dtype {}, expected float32",
           name_of(table.dtype));
  const BucketRule rule{.bidirectional = attrs.get_or<bool>("bidirectional", true),
                        .buckets = table.size(1),
                        .max_distance = attrs.get<int64_t>("max_distance")};
  rule.check();
  const int64_t first = problem.first_relative;
  const int64_t farthest = std::max(
      {std::abs(first), std::abs(first - problem.queries), std::abs(first + problem.keys)});
  problem.table = static_cast<const float*>(table.pointer);
  problem.buckets = static_cast<int>(rule.buckets);
  problem.reach = static_cast<int>(std::min(rule.max_distance, farthest));
  // The same rule call after call: its logarithms are taken once.
  thread_local BucketRule known;
  thread_local Buckets buckets{};
  if (known.bidirectional != rule.bidirectional || known.buckets != rule.buckets ||
      known.max_distance != rule.max_distance) {
    buckets = buckets_of(rule);
    known = rule;
  }
  problem.rule = buckets;
}

void Prepared::make_bias_diagonals(Stream stream) {
  if (problem.table == nullptr || problem.heads == 0) return;
  auto* made = scratch<float>(static_cast<int64_t>(problem.heads) * diagonals_length());
  bias_diagonals = made;
  simt::launch(
      bias_diagonals_kernel,
      simt::Launch{
          .grid = dim3(static_cast<unsigned>(problem.heads)), .block = dim3(128), .stream = stream},
      problem, made);
}

void Prepared::read_masks(Views in, Stream stream) {
  problem.q_segments = int32_operand(in[4], problem.batch, problem.queries, "q_segments");
  problem.kv_segments = int32_operand(in[5], problem.batch, problem.keys, "kv_segments");
  problem.prefix = int32_operand(in[6], problem.batch, problem.keys, "prefix");
  QT_CHECK((problem.q_segments == nullptr) == (problem.kv_segments == nullptr),
           "attention: q_segments and kv_segments must be given together, only one of them is");
  // A causal mask alone needs no table of ranges unless it leaves a query without a key.
  const bool is_plain =
      problem.q_segments == nullptr &&
      (!problem.causal || (problem.prefix == nullptr && problem.first_relative <= 0));
  if (is_plain || problem.batch == 0 || problem.queries == 0) return;
  problem.ranges_stride = ranges_stride(problem.queries);
  // Of the whole mask: tiles of some of the queries are others.
  const bool is_whole = in[0].global[1] == problem.queries && problem.first_relative == 0;
  const bool is_aligned = reinterpret_cast<uintptr_t>(in[7].pointer) % 16 == 0;
  if (const View& ranges = in[7]; !ranges.absent() && is_whole && is_aligned) {
    if (ranges.rank != 2 || ranges.size(0) != problem.batch ||
        ranges.size(1) != 4 * problem.ranges_stride || ranges.dtype != DType::i32)
      throw Bug("attention: ranges are not int32 [b, n] of these queries");
    problem.ranges = reinterpret_cast<const int4*>(ranges.pointer);
    return;
  }
  auto* made = scratch<int4>(static_cast<int64_t>(problem.batch) * problem.ranges_stride);
  find_ranges(problem, reinterpret_cast<int32_t*>(made), stream);
  problem.ranges = made;
}

void Prepared::drop(const View& q_view, const Attrs& attrs, Stream stream) {
  problem.keep_scale = 1;
  const auto rate = attrs.get_or<double>("rate", 0.0);
  if (rate == 0) return;
  QT_CHECK(rate > 0 && rate < 1, "attention: dropout rate {} must be at least 0 and below 1", rate);
  const auto keep_probability = static_cast<float>(1.0 - rate);
  problem.keep_scale = 1.0F / keep_probability;
  const Dropout drop{KeySource(attrs), keep_probability, q_view.origin[0], attrs.get<int64_t>("h"),
                     problem.depth == 0 ? 0 : q_view.origin[2] / problem.depth};
  const int64_t flags = static_cast<int64_t>(problem.batch) * problem.heads * problem.keys;
  auto* drawn = scratch<uint8_t>(flags);
  keep = drawn;
  if (flags * problem.depth == 0) return;
  constexpr int kThreads = 256;
  const auto launch_of = [&](int64_t elements) {
    return simt::Launch{
        .grid = dim3(blocks_for(elements, kThreads)), .block = dim3(kThreads), .stream = stream};
  };
  simt::launch(keep_kernel, launch_of(flags), problem, drop, drawn);
  const int64_t elements = flags * problem.depth;
  if (dtype == DType::f32) {
    auto* to = scratch<float>(elements);
    simt::launch(drop_values_kernel<float>, launch_of(elements), problem, keep,
                 static_cast<const float*>(v), to);
    v = to;
  } else {
    auto* to = scratch<bf16>(elements);
    simt::launch(drop_values_kernel<bf16>, launch_of(elements), problem, keep,
                 static_cast<const bf16*>(v), to);
    v = to;
  }
}

}  // namespace quintet::QT_GPU::attention

namespace quintet::QT_GPU {

void attention_ranges_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  using namespace attention;
  Problem p{};
  p.batch = static_cast<int>(in[0].size(0));
  p.queries = static_cast<int>(in[0].size(1));
  p.keys = static_cast<int>(in[1].size(1));
  QT_ASSERT(p.keys < kEndMask && p.queries < kEndMask);
  p.causal = attrs.get_or<bool>("causal", false);
  p.q_segments = int32_operand(in[0], p.batch, p.queries, "q_segments");
  p.kv_segments = int32_operand(in[1], p.batch, p.keys, "kv_segments");
  p.prefix = int32_operand(in[2], p.batch, p.keys, "prefix");
  p.ranges_stride = ranges_stride(p.queries);
  find_ranges(p, out[0].data<int32_t>(), stream);
}

}  // namespace quintet::QT_GPU
