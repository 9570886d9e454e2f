// The kernel: a cluster of blocks has some heads and some of the MLP's hidden units, a block of it an
// equal part of x, its slice. Blocks of a cluster meet in each other's shared memory; blocks that have the same
// slice in other clusters send it, marked, through the L2 cache. README.md.

#include "kernels/decode_attention/one_pass.cuh"
#include "kernels/decode_step/decode_step_gpu.h"
#include "kernels/decode_step/weight_stream.cuh"
#include "kernels/mlp/activate.cuh"
#include "kernels/simt/resident.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kJoining = 4;        // lanes that share a sum of a block's threads
constexpr int kMostBlocks = 8;     // of a cluster
constexpr int kMostClusters = 16;  // that send to each other
constexpr int kOutputs = kStepThreads / kJoining;
constexpr int kPhases = 3;      // of a layer: self-attention, cross-attention, MLP
constexpr size_t kHeader = 64;  // bytes of the workspace before the words: marks used so far

/// Words that blocks of the same slice send: [phase, layer % 2, cluster, rank, rows, slice]. A block that
/// writes those of layer i has read those of layer i - 1 from all clusters, each of which had read layer i - 2's.
__host__ __device__ int64_t sent_words(const StepPlan& plan, int rows) {
  return int64_t{plan.clusters} * plan.cluster * rows * plan.slice;
}

/// Tokens that a row attends to in a head.
template <typename T>
struct Past {
  const T *keys, *values;
  int64_t base, sequence_stride, token_stride;
  const uint16_t* sources;  // null: all in one sequence
  const float* biases;      // of the head, or null
  int own, newest, limit, last_bias;

  __device__ int64_t offset(int t) const {
    const int sequence = sources == nullptr ? 0 : t == newest ? own : sources[t];
    return base + sequence * sequence_stride + t * token_stride;
  }
  __device__ float bias(int t) const {
    if (biases == nullptr) return 0;
    const int back = newest - t;
    return biases[back < last_bias ? back : last_bias] * kLog2e;
  }
};

template <typename T>
QT_DEVICE float rounded(float v) {
  return simt::to_float(simt::from_float<T>(v));
}

/// A block at work. Whole blocks call its functions, each from one place if it is long: see WeightStream.
template <typename T, int kRows>
struct StepBlock {
  static constexpr int kLane = kLanes<T>, kRowWarps = kStepWarps / kRows;
  const DecodeStep& s;
  const StepPlan& p;
  const BlockShare<T>& share;
  WeightRing<T> weights;
  const StepPlan::Layout at;
  const size_t floats;  // bytes before them
  const int tid, rows;
  uint32_t marks = 0;  // used before this step
  int parity = 0;      // of the exchange that comes next

  __device__ StepBlock(const BlockShare<T>& block, WeightStream<T>& stream)
      : s(block.a.step),
        p(block.a.plan),
        share(block),
        weights(stream, p.portions),
        at(p.layout(kRows, kLane, s.head_dim, s.logits_weights != nullptr)),
        floats(static_cast<size_t>(p.portions) * WeightStream<T>::portion_bytes()),
        tid(static_cast<int>(threadIdx.x)),
        rows(s.rows()) {}

  __device__ simt::Shared<float> at_float(int begin, int end) const {
    return simt::shared<float>(floats + sizeof(float) * static_cast<size_t>(begin),
                               static_cast<size_t>(end - begin));
  }
  __device__ auto x() const { return at_float(at.x, at.staged); }
  __device__ auto staged() const { return at_float(at.staged, at.qkv); }
  __device__ auto qkv() const { return at_float(at.qkv, at.attended); }
  __device__ auto attended() const { return at_float(at.attended, at.hidden); }
  __device__ auto hidden() const { return at_float(at.hidden, at.own); }
  __device__ auto own() const { return at_float(at.own, at.squares); }
  __device__ auto squares() const { return at_float(at.squares, at.joined); }
  /// Of attention's warps; of logits: x of the whole cluster.
  __device__ auto joined() const { return at_float(at.joined, at.end); }
  __device__ auto exchange(int which) const {
    const int each = p.cluster * kRows * p.exchanged, begin = at.exchange + which * each;
    return at_float(begin, begin + each);
  }

  /// Element i of [kRows, columns].
  struct Place {
    int row, column;
    __device__ Place(int i, int columns)
        : row(kRows == 1 ? 0 : i / columns), column(i - row * columns) {}
  };

  /// The sums of threads for a piece, [row_step, kRows, columns] apart by `stride`: what a block has of
  /// in [kRows, piece.rows] times the piece.
  __device__ void multiply(const StepPiece& piece, simt::Shared<float> in,
                           simt::Shared<float> partial, int stride) {
    const int step = piece.width.row_step(), first = piece.width.times_in(tid);
    const int group = tid - first * piece.width.groups, limit = first < step ? piece.rows : 0;
    const bool is_long = weights.is_long(piece.rows, step);
    float sums[kRows][kLane] = {};
#pragma unroll 1
    for (int base = 0; base < piece.rows; base += kPasses * step) {
      uint32_t words[kPasses][4];
      weights.take(words);
#pragma unroll
      for (int u = 0; u < kPasses; ++u) {
        const int row = base + u * step + first;
        if (row >= limit) continue;
        float w[kLane];
        unpack_words<T>(words[u], w);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float v = in[r * piece.rows + row];
#pragma unroll
          for (int i = 0; i < kLane; ++i) sums[r][i] += v * w[i];
        }
      }
      if (is_long) weights.refill();
    }
    if (limit == 0) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      store<kLane>(static_cast<float*>(
                       partial + (first * stride + r * piece.width.groups * kLane + group * kLane)),
                   sums[r]);
  }
  /// The product that comes next: its columns go to the cluster's blocks, to all that have this slice, or
  /// to the logits. The next barrier is the caller's.
  __device__ void product(const StepCursor& now, float logit_scale) {
    const StepPiece piece = share.piece(now);
    const int columns = piece.width.groups * kLane, stride = kRows * columns + 8;
    const auto partial = at_float(at.partial, at.exchange);
    multiply(piece,
             now.is_normed()                   ? staged()
             : now.kind == StepCursor::kMlpOut ? hidden()
             : now.kind == StepCursor::kLogits ? joined()
                                               : attended(),
             partial, stride);
    __syncthreads();
    const int lane = tid % kJoining, step = piece.width.row_step();
    const bool is_send = !now.is_normed() && now.kind != StepCursor::kLogits;
    const bool is_first = now.kind == StepCursor::kMlpOut || now.head == share.cluster;
    const bool is_last = now.kind == StepCursor::kMlpOut || now.head + p.clusters >= s.heads;
    uint64_t* const words = sent(now.phase(), now.layer) + slot(share.cluster);
    float* const logits = s.logits + share.first_logit() + now.head * kMostLogitGroups * kLane;
#pragma unroll 1
    for (int base = 0; base < kRows * columns; base += kOutputs) {
      const int i = base + tid / kJoining;
      float sum = 0;
      if (i < kRows * columns)
#pragma unroll 4
        for (int g = lane; g < step; g += kJoining) sum += partial[g * stride + i];
      sum += __shfl_xor_sync(kWholeWarp, sum, 1);
      sum += __shfl_xor_sync(kWholeWarp, sum, 2);
      if (i >= kRows * columns) continue;
      const Place of(i, columns);
      if (now.is_normed()) {
        give(of.row, of.column, sum, lane);
      } else if (lane == 0 && of.row < rows) {
        if (is_send && !is_first) sum += own()[i];
        if (!is_send)
          logits[int64_t{of.row} * s.vocab + of.column] = factor_of(of.row) * logit_scale * sum;
        else if (is_last)
          simt::store_marked(words + i, sum, mark(now.layer));
        else
          own()[i] = sum;
      }
    }
    if (now.is_normed() && tid < kRows * kJoining)
      give(tid / kJoining, columns, squares()[tid / kJoining], lane);
    if (now.is_normed()) simt::cluster_arrive();
    weights.refill();
    if (now.is_normed()) simt::cluster_wait();
  }

  /// Element i of a row, to this block's place in all blocks of the cluster; by each of kJoining lanes.
  __device__ void give(int r, int i, float v, int lane) const {
    const auto mine = exchange(parity);
#pragma unroll 1
    for (int to = lane; to < p.cluster; to += kJoining)
      simt::map_cluster(mine,
                        static_cast<uint32_t>(to))[(share.rank * kRows + r) * p.exchanged + i] = v;
  }
  /// What all have given, after the cluster's barrier; it stays until the exchange after the next begins.
  __device__ simt::Shared<float> given() {
    parity ^= 1;
    return exchange(parity ^ 1);
  }
  /// Sum over the cluster's blocks.
  __device__ float gathered(simt::Shared<float> all, int r, int i) const {
    float sum = 0;
#pragma unroll
    for (int q = 0; q < kMostBlocks; ++q)
      if (q < p.cluster) sum += all[(q * kRows + r) * p.exchanged + i];
    return sum;
  }
  /// The norm's factor of each row, behind squares(), whose sums were given as element `columns`.
  __device__ void leave_factors(simt::Shared<float> all, int columns) {
    if (tid < kRows)
      squares()[kRows + tid] =
          simt::rsqrt_approx(gathered(all, tid, columns) / static_cast<float>(s.embed) + s.eps);
    __syncthreads();
  }
  __device__ float factor_of(int r) const { return squares()[kRows + r]; }

  /// What stands behind x: its squares' sum of this slice. A barrier later they may be read.
  __device__ void sum_squares() {
    const int warp = tid / 32;
    if (warp >= kRows) return;
    float sum = 0;
#pragma unroll 1
    for (int i = tid % 32; i < p.slice; i += 32) {
      const float v = x()[warp * p.slice + i];
      sum += v * v;
    }
    sum = warp_sum(sum);
    if (tid % 32 == 0) squares()[warp] = sum;
  }
  __device__ void start_x(const float* norm) {
    for (int i = tid; i < kRows * p.slice; i += kStepThreads) {
      const Place of(i, p.slice);
      const int c = share.first() + of.column;
      const float v =
          of.row < rows ? simt::to_float(static_cast<const T*>(s.x)[int64_t{of.row} * s.embed + c])
                        : 0.0f;
      x()[i] = v;
      staged()[i] = v * norm[c];
    }
    __syncthreads();
    sum_squares();
  }

  __device__ uint64_t* sent(int phase, int layer) const {
    auto* const first = reinterpret_cast<uint64_t*>(static_cast<char*>(s.workspace) + kHeader);
    return first + (phase * 2 + layer % 2) * sent_words(p, rows);
  }
  __device__ int64_t slot(int cluster) const {
    return (int64_t{cluster} * p.cluster + share.rank) * rows * p.slice;
  }
  __device__ uint32_t mark(int layer) const { return marks + 1 + static_cast<uint32_t>(layer); }
  /// x grows by what the first `senders` clusters send; `norm`: of what follows, or null. Sums over clusters
  /// i, i + 4, ... first, then (0 + 1) + (2 + 3), however many lanes do it.
  __device__ void receive(int senders, int phase, int layer, const float* norm) {
    constexpr int kOf = kJoining / kRows;       // lanes of an output
    constexpr int kEach = kMostClusters / kOf;  // loads of each
    const int lane = tid % kOf;
    const uint64_t* const words = sent(phase, layer);
#pragma unroll 1
    for (int base = 0; base < rows * p.slice; base += kStepThreads / kOf) {
      const int i = base + tid / kOf, c = Place(i, p.slice).column;
      const bool exists = i < rows * p.slice;
      const float scale = exists && norm != nullptr ? norm[share.first() + c] : 0.0f;
      const uint64_t* from[kEach];
#pragma unroll
      for (int u = 0; u < kEach; ++u) {
        const int cluster = lane + u * kOf;
        from[u] = exists && cluster < senders ? words + slot(cluster) + i : nullptr;
      }
      float parts[kEach], quarters[kRows] = {};
      simt::await_marked(from, mark(layer), parts);
#pragma unroll
      for (int u = 0; u < kEach; ++u) quarters[u % kRows] += parts[u];
      __syncwarp();
      float sum = 0;
      if constexpr (kOf == 4) {
        sum = quarters[0] + __shfl_xor_sync(kWholeWarp, quarters[0], 1);
        sum += __shfl_xor_sync(kWholeWarp, sum, 2);
      } else if constexpr (kOf == 2) {
        sum = quarters[0] + __shfl_xor_sync(kWholeWarp, quarters[0], 1);
        sum += quarters[1] + __shfl_xor_sync(kWholeWarp, quarters[1], 1);
      } else {
        sum = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
      }
      if (!exists || lane != 0) continue;
      const float v = rounded<T>(x()[i] + sum);
      x()[i] = v;
      staged()[i] = v * scale;
    }
    __syncthreads();
    sum_squares();
  }

  /// Tokens that row r sees.
  __device__ int limit(bool is_self, int r) const {
    if (!is_self) return s.lengths[r / s.decodes];
    return s.positions[r] < s.max_length ? s.positions[r] + 1 : s.max_length;
  }
  __device__ Past<T> past_of(bool is_self, int layer, int r, int head) const {
    const DecodeStepLayer& of = s.layer[layer];
    const int own = r % s.decodes, joined = s.heads * s.head_dim;
    if (!is_self)
      return {static_cast<const T*>(of.cross_keys),
              static_cast<const T*>(of.cross_values),
              int64_t{r / s.decodes} * s.inputs * joined + head * s.head_dim,
              0,
              joined,
              nullptr,
              nullptr,
              0,
              -1,
              limit(false, r),
              0};
    const bool appends = s.positions[r] < s.max_length;
    return {static_cast<const T*>(of.keys),
            static_cast<const T*>(of.values),
            (r - own) * s.sequence_stride + head * s.head_stride,
            s.sequence_stride,
            s.token_stride,
            s.sources + int64_t{r} * s.max_length,
            appends && of.bias != nullptr ? of.bias + int64_t{head} * s.biases : nullptr,
            own,
            appends ? s.positions[r] : -1,
            limit(true, r),
            s.biases - 1};
  }

  /// Every kRows-th warp has the same row; of its tokens rank, rank + blocks, ... are this block's, a few
  /// lanes one of them at a time.
  struct Turns {
    int row, lanes, first, stride, part, of_warp;
    __device__ Turns(const StepBlock& b)
        : row(b.tid / 32 % kRows),
          lanes(b.share.query.groups),
          of_warp(b.p.cluster * b.share.query.times_in(32)) {
      first = b.share.rank + b.tid / 32 / kRows * of_warp +
              b.p.cluster * b.share.query.times_in(b.tid % 32);
      stride = of_warp * kRowWarps;
      part = (b.tid & (lanes - 1)) * kLane;
    }
    /// A row's warps that have any of `tokens`.
    __device__ int warps(int tokens) const {
      const int count = (tokens + of_warp - 1) >> __popc(static_cast<unsigned>(of_warp - 1));
      return count < kRowWarps ? count : kRowWarps;
    }
  };
  struct Held {
    uint32_t key[4], value[4];
  };
  __device__ static void fetch(const Past<T>& past, int t, int part, Held& to) {
    if (t >= past.limit || t == past.newest) return;
    const int64_t from = past.offset(t) + part;
    load_words<4>(past.keys + from, to.key);
    load_words<4>(past.values + from, to.value);
  }
  /// The row's attention over this thread's tokens, of which the first is there; the warp's result to joined().
  __device__ void attend(const Past<T>& past, const Turns& turns, Held held) {
    const auto row = qkv() + turns.row * 3 * s.head_dim;
    float query[kLane];
#pragma unroll
    for (int i = 0; i < kLane; ++i) query[i] = row[turns.part + i] * kLog2e;
    Running<1, kLane> running;
    running.start();
    // Lanes of a warp go on together.
    const int warp_first = share.rank + tid / 32 / kRows * turns.of_warp;
#pragma unroll 1
    for (int t = turns.first, base = warp_first; base < past.limit;
         t += turns.stride, base += turns.stride) {
      Held next;
      fetch(past, t + turns.stride, turns.part, next);
      float key[kLane] = {}, value[kLane] = {};
      if (t == past.newest) {
#pragma unroll
        for (int i = 0; i < kLane; ++i) {
          key[i] = row[s.head_dim + turns.part + i];
          value[i] = row[2 * s.head_dim + turns.part + i];
        }
      } else if (t < past.limit) {
        unpack_words<T>(held.key, key);
        unpack_words<T>(held.value, value);
      }
      float score = 0;
#pragma unroll
      for (int i = 0; i < kLane; ++i) score += query[i] * key[i];
      for (int distance = turns.lanes / 2; distance > 0; distance /= 2)
        score += __shfl_xor_sync(kWholeWarp, score, distance);
      score += t < past.limit ? past.bias(t) : -INFINITY;
      const float most = fmaxf(running.largest[0], score);
      const float rescale = simt::exp2_approx(running.largest[0] - most);
      const float weight = simt::exp2_approx(score - most);
      running.largest[0] = most;
      running.total[0] = running.total[0] * rescale + weight;
#pragma unroll
      for (int i = 0; i < kLane; ++i)
        running.sums[0][i] = running.sums[0][i] * rescale + weight * value[i];
      held = next;
    }
#pragma unroll 1
    for (int distance = turns.lanes; distance < 32; distance *= 2) running.join_lanes(distance);
    if (tid % 32 >= turns.lanes) return;
    const auto to = joined() + tid / 32 * (s.head_dim + 2);
    if (tid % 32 == 0) {
      to[0] = running.largest[0];
      to[1] = running.total[0];
    }
#pragma unroll
    for (int i = 0; i < kLane; ++i) to[2 + turns.part + i] = running.sums[0][i];
  }
  /// Element d of a weighted sum of parts: [largest, total, sums] each.
  struct Sum {
    float most = kLowest, total = 0, sum = 0;
  };
  __device__ Sum join(simt::Shared<float> parts, int count, int stride, int d) const {
    Sum all;
#pragma unroll 4
    for (int q = 0; q < count; ++q) all.most = fmaxf(all.most, parts[q * stride]);
#pragma unroll 4
    for (int q = 0; q < count; ++q) {
      const float weight = simt::exp2_approx(parts[q * stride] - all.most);
      all.total += weight * parts[q * stride + 1];
      all.sum += weight * parts[q * stride + 2 + d];
    }
    return all;
  }
  /// Joins warps, then blocks: attended().
  __device__ void join_blocks(bool is_self, const Turns& turns) {
    __syncthreads();
    const int d = s.head_dim, each = d + 2;
#pragma unroll 1
    for (int i = tid / kJoining; i < rows * d; i += kOutputs) {
      const Place of(i, d);
      const Sum all = join(joined() + of.row * each, turns.warps(limit(is_self, of.row)),
                           kRows * each, of.column);
      if (of.column == 0) {
        give(of.row, 0, all.most, tid % kJoining);
        give(of.row, 1, all.total, tid % kJoining);
      }
      give(of.row, 2 + of.column, all.sum, tid % kJoining);
    }
    simt::cluster_sync();
    const auto all = given();
#pragma unroll 1
    for (int i = tid; i < rows * d; i += kStepThreads) {
      const Place of(i, d);
      const Sum it = join(all + of.row * p.exchanged, p.cluster, kRows * p.exchanged, of.column);
      attended()[i] = rounded<T>(it.sum / it.total);
    }
    __syncthreads();
  }

  /// This thread's first token of a head.
  __device__ void fetch_first(bool is_self, int layer, int head, const Turns& turns,
                              Held& held) const {
    if (head >= s.heads || layer >= s.layers || turns.row >= rows) return;
    fetch(past_of(is_self, layer, turns.row, head), turns.first, turns.part, held);
  }
  /// Self- or cross-attention of a head, whose queries (and keys and values) were given.
  __device__ void attention(const StepCursor& now, const Turns& turns, const Held& held) {
    const bool is_self = now.kind == StepCursor::kQkv;
    const int d = s.head_dim, columns = (is_self ? 3 : 1) * d;
    const auto all = given();
    leave_factors(all, columns);
#pragma unroll 1
    for (int i = tid; i < rows * columns; i += kStepThreads) {
      const Place of(i, columns);
      qkv()[of.row * 3 * d + of.column] =
          rounded<T>(factor_of(of.row) * gathered(all, of.row, of.column));
    }
    __syncthreads();
    if (turns.row < rows) {
      const Past<T> past = past_of(is_self, now.layer, turns.row, now.head);
      if (is_self) append(past, now.layer, turns.row);
      if (tid / 32 / kRows < turns.warps(past.limit)) attend(past, turns, held);
    }
    join_blocks(is_self, turns);
  }
  /// Writes the new token's key and value, if it is this block's.
  __device__ void append(const Past<T>& past, int layer, int r) const {
    const int d = s.head_dim;
    if (past.newest < 0 || past.newest % p.cluster != share.rank) return;
    for (int i = tid / 32 / kRows * 32 + tid % 32; i < 2 * d; i += 32 * kRowWarps) {
      T* const to = static_cast<T*>(i < d ? s.layer[layer].keys : s.layer[layer].values);
      to[past.offset(past.newest) + (i < d ? i : i - d)] =
          simt::from_float<T>(qkv()[r * 3 * d + d + i]);
    }
  }
  /// The cluster's hidden units, whose sums were given.
  __device__ void activate() {
    const int width = share.hidden(), gates = s.layer[0].wi_1 == nullptr ? 1 : 2;
    constexpr bool kFast = !std::is_same_v<T, float>;
    const auto all = given();
    leave_factors(all, gates * width);
#pragma unroll 1
    for (int i = tid; i < rows * width; i += kStepThreads) {
      const Place of(i, width);
      float h = 1;
#pragma unroll 1
      for (int g = 0; g < gates; ++g)
        h *= activation<kFast>(g == 0 ? s.act0 : s.act1,
                               factor_of(of.row) * gathered(all, of.row, g * width + of.column))
                 .value;
      hidden()[i] = rounded<T>(h);
    }
    __syncthreads();
  }
  /// The whole of the norm of x before its factor, to joined(), and the factors.
  __device__ void gather_x() {
    __syncthreads();
#pragma unroll 1
    for (int i = tid / kJoining; i < kRows * p.slice; i += kOutputs)
      give(Place(i, p.slice).row, Place(i, p.slice).column, staged()[i], tid % kJoining);
    if (tid < kRows * kJoining)
      give(tid / kJoining, p.slice, squares()[tid / kJoining], tid % kJoining);
    simt::cluster_sync();
    const auto all = given();
#pragma unroll 1
    for (int i = tid; i < kRows * s.embed; i += kStepThreads) {
      const Place of(i, s.embed);
      joined()[i] = all[(of.column / p.slice * kRows + of.row) * p.exchanged + of.column % p.slice];
    }
    leave_factors(all, p.slice);
  }
  __device__ const float* norm_after(int layer, int phase) const {
    if (phase == 0 && s.inputs > 0) return s.layer[layer].cross_norm;
    if (phase < 2) return s.layer[layer].mlp_norm;
    return layer + 1 < s.layers ? s.layer[layer + 1].self_norm : s.norm;
  }
  __device__ void run() {
    marks = *static_cast<const uint32_t*>(s.workspace);
    const Turns turns(*this);
    Held held;
    fetch_first(true, 0, share.cluster, turns, held);
    start_x(s.layer[0].self_norm);
    const int with_heads = s.heads < p.clusters ? s.heads : p.clusters;
    StepCursor now = share.start(0);
#pragma unroll 1
    for (int layer = 0, phase = 0;;) {
      if (layer == s.layers) {
        if (s.logits_weights == nullptr) break;
        gather_x();
      }
#pragma unroll 1
      while (now.kind != StepCursor::kEnd && now.layer == layer &&
             (layer == s.layers || now.phase() == phase)) {
        product(now, s.logit_scale);
        if (now.kind == StepCursor::kIn)
          activate();
        else if (now.is_normed())
          attention(now, turns, held);
        share.advance(now);
        if (now.layer != layer || now.phase() != phase || !now.is_normed()) continue;
        __syncthreads();  // another head
        fetch_first(phase == 0, layer, now.head, turns, held);
      }
      if (layer == s.layers) break;
      const bool has_cross = s.inputs > 0;
      if (phase == 0 && has_cross) fetch_first(false, layer, share.cluster, turns, held);
      if (phase == 2) fetch_first(true, layer + 1, share.cluster, turns, held);
      receive(phase == 2 ? p.clusters : with_heads, phase, layer, norm_after(layer, phase));
      phase += phase == 0 && !has_cross ? 2 : 1;
      if (phase == kPhases) ++layer, phase = 0;
    }
    if (s.logits_weights == nullptr && share.cluster == 0)
      for (int i = tid; i < rows * p.slice; i += kStepThreads)
        static_cast<T*>(s.out)[int64_t{i / p.slice} * s.embed + share.first() + i % p.slice] =
            simt::from_float<T>(x()[i]);
    // All clusters have sent something, so all blocks have read it.
    if (blockIdx.x == 0 && tid == 0)
      *static_cast<uint32_t*>(s.workspace) = marks + static_cast<uint32_t>(s.layers);
  }
};

static_assert(sizeof(StepArguments) <= 4096);  // what a launch passes

template <typename T, int kRows>
__global__ void __launch_bounds__(kStepThreads, 1)
    step_kernel(const __grid_constant__ StepArguments a) {
  const BlockShare<T> share(a);
  WeightStream<T> weights(share);
  simt::start_next();
  simt::wait_for_previous();
  simt::cluster_sync();  // their shared memory is there
  StepBlock<T, kRows>(share, weights).run();
}

int rounded_up(int n, int to) { return (n + to - 1) / to * to; }

/// As many blocks a cluster as there are clusters, about; at most 8, which every device has.
int blocks_of_cluster() {
  const int multiprocessors = simt::device().multiprocessors;
  int blocks = kMostBlocks;
  while (blocks * blocks > multiprocessors) blocks /= 2;
  return blocks;
}

/// With so many blocks a cluster; `clusters` 0: it does not fit.
template <typename T, int kRows>
StepPlan plan_of(const DecodeStep& s, int cluster, simt::Launch& how) {
  constexpr int kLane = kLanes<T>;
  StepPlan plan{.cluster = cluster};
  const int lanes = s.head_dim / kLane, gates = s.layer[0].wi_1 == nullptr ? 1 : 2;
  if (s.embed % (plan.cluster * kLane) != 0 || s.mlp_dim % kLane != 0 || s.head_dim % kLane != 0 ||
      (s.logits_weights != nullptr && s.vocab % kLane != 0) || lanes > 32 ||
      (lanes & (lanes - 1)) != 0)
    return {};
  plan.slice = s.embed / plan.cluster;
  how.block = kStepThreads;
  how.cluster = static_cast<unsigned>(plan.cluster);
  for (plan.portions = 16; plan.portions >= 4; --plan.portions) {
    // A cluster that has no part of the MLP would not be waited for.
    int clusters = std::min(kMostClusters, simt::device().multiprocessors / plan.cluster);
    const auto size = [&] {
      plan.hidden = rounded_up((s.mlp_dim + clusters - 1) / clusters, kLane);
      plan.clusters = (s.mlp_dim + plan.hidden - 1) / plan.hidden;
      plan.exchanged =
          std::max({3 * s.head_dim + 1, gates * plan.hidden + 1, s.head_dim + 2, plan.slice + 1});
      for (const int columns : {3 * s.head_dim, gates * plan.hidden, plan.slice})
        if (columns / kLane > kStepThreads) return false;
      how.grid = dim3(static_cast<unsigned>(plan.clusters * plan.cluster));
      how.shared = static_cast<size_t>(plan.portions) * WeightStream<T>::portion_bytes() +
                   sizeof(float) *
                       static_cast<size_t>(
                           plan.layout(kRows, kLane, s.head_dim, s.logits_weights != nullptr).end);
      return how.shared <= simt::device().shared_limit;
    };
    if (!size()) continue;
    const auto resident = static_cast<int>(simt::resident_clusters(step_kernel<T, kRows>, how));
    if (resident >= plan.clusters) return plan;
    clusters = resident;
    if (clusters > 0 && size()) return plan;
  }
  return {};
}

/// Of the sizes alone; the largest cluster that divides x.
template <typename T, int kRows>
StepPlan plan_of(const DecodeStep& s, simt::Launch& how) {
  StepPlan plan;
  for (int cluster = blocks_of_cluster(); plan.clusters == 0 && cluster > 1; cluster /= 2)
    plan = plan_of<T, kRows>(s, cluster, how);
  return plan;
}

/// f(T, Count<rows that the kernel has room for>)
template <class F>
auto with_kernel(const DecodeStep& s, const F& f) {
  const auto with_rows = [&]<typename T>(T t) {
    if (s.rows() == 1) return f(t, Count<1>{});
    return s.rows() == 2 ? f(t, Count<2>{}) : f(t, Count<4>{});
  };
  return s.dtype == DType::f32 ? with_rows(float{}) : with_rows(bf16{});
}

}  // namespace

int64_t decode_step_workspace_gpu(const DecodeStep& s) {
  if (simt::device().sm != 90 || s.rows() < 1 || s.rows() > kMostStepRows || s.layers < 1 ||
      s.layers > kMostStepLayers || s.max_length < 1)
    return 0;
  return with_kernel(s, [&]<typename T, class Rows>(T, Rows) -> int64_t {
    simt::Launch how;
    const StepPlan plan = plan_of<T, Rows::value>(s, how);
    if (plan.clusters == 0) return 0;
    return static_cast<int64_t>(kHeader) + kPhases * 2 * 8 * sent_words(plan, s.rows());
  });
}

void decode_step_gpu(const DecodeStep& s, Stream stream) {
  with_kernel(s, [&]<typename T, class Rows>(T, Rows) {
    simt::Launch how{.stream = stream, .cooperative = true};
    const StepPlan plan = plan_of<T, Rows::value>(s, how);
    QT_ASSERT(plan.clusters > 0);
    simt::launch(step_kernel<T, Rows::value>, how, StepArguments{plan, s});
  });
}

}  // namespace quintet::QT_GPU
