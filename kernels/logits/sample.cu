// A block a row. The threshold of topk and topp is found digit by digit, from a histogram of counts
// or of masses of the tokens that agree with the digits found so far (radix select).

#include "kernels/logits/logits_gpu.h"
#include "kernels/random/threefry.cuh"
#include "kernels/vectors/vectors.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kThreads = 512, kDigits = 256, kParts = 3;
constexpr float kMinTemperature = 1e-4f;

// Shared memory: a histogram of kParts numbers a digit, then a workspace for reductions and one result.
constexpr size_t kWorkspaceAt = sizeof(unsigned) * kDigits * kParts;
constexpr size_t kResultAt = kWorkspaceAt + sizeof(float) * 32 * 2;
constexpr size_t kShared = kResultAt + 64;

/// Larger floats have larger keys; NaN has the smallest.
QT_DEVICE unsigned key_of(float x) {
  const unsigned u = __float_as_uint(x);
  if (x != x) return 0;
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
QT_DEVICE float float_of(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

struct Best {
  float score;
  int index;
};
QT_DEVICE Best better(Best a, Best b) {
  return b.score > a.score || (b.score == a.score && b.index < a.index) ? b : a;
}

/// One row, its elements divided by the temperature.
template <typename T>
struct Row {
  const T* logits;
  int vocab;
  float temperature;
  /// Calls body(i, x, whether there is such an element) on all threads the same number of times.
  template <typename Body>
  __device__ void for_each(const Body& body) const {
#pragma unroll 4
    for (int base = 0; base < vocab; base += kThreads) {
      const int i = base + static_cast<int>(threadIdx.x);
      const bool is_in = i < vocab;
      body(i, is_in ? at(i) : -INFINITY, is_in);
    }
  }
  __device__ float at(int i) const {
    const float x = simt::to_float(logits[i]);
    return temperature == 1.0f ? x : x / temperature;
  }
};

/// The best of all threads', on all threads.
QT_DEVICE Best block_best(Best mine) {
  auto scores = simt::shared<float>(kWorkspaceAt, 32);
  auto indices = simt::shared<int>(kWorkspaceAt + sizeof(float) * 32, 32);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    mine = better(mine, {__shfl_xor_sync(kWholeWarp, mine.score, distance),
                         __shfl_xor_sync(kWholeWarp, mine.index, distance)});
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();
  if (lane == 0) scores[warp] = mine.score, indices[warp] = mine.index;
  __syncthreads();
  Best best{scores[0], indices[0]};
  for (int w = 1; w < kThreads / 32; ++w) best = better(best, {scores[w], indices[w]});
  return best;
}

struct Summary {
  Best best;
  float log_sum;  // of exp(x - best)
};

/// Maximum, its first index and the sum of exponentials of elements for which keep(x) holds.
template <typename T, typename Keep>
QT_DEVICE Summary summarize(const Row<T>& row, const Keep& keep) {
  constexpr int kHeld = 8;  // loads under way, and exponentials that do not wait for each other
  float largest = -1e30f, total = 0;
  Best mine{-INFINITY, 0x7fffffff};
  for (int first = static_cast<int>(threadIdx.x); first < row.vocab; first += kHeld * kThreads) {
    float held[kHeld];
#pragma unroll
    for (int n = 0; n < kHeld; ++n)
      held[n] = first + n * kThreads < row.vocab ? row.at(first + n * kThreads) : NAN;
    const float before = largest;
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
      const int i = first + n * kThreads;
      if (i < row.vocab && keep(held[n])) {
        mine = better(mine, {held[n], i});
        largest = fmaxf(largest, held[n]);
      } else {
        held[n] = -INFINITY;
      }
    }
    total *= expf(before - largest);
#pragma unroll
    for (int n = 0; n < kHeld; ++n) total += expf(held[n] - largest);
  }
  Summary s;
  s.best = block_best(mine);
  const float share = total > 0 ? total * expf(largest - s.best.score) : 0.0f;
  s.log_sum = logf(block_sum(share, simt::shared<float>(kWorkspaceAt, 32)));
  return s;
}

/// A mass in [0, 1] as 42 bits, in parts of 14, so that sums of 2^18 of them fit an unsigned each.
QT_DEVICE void split_mass(float mass, unsigned (&parts)[kParts]) {
  const auto bits = static_cast<unsigned long long>(mass * 4398046511104.0f);  // 2^42
  const unsigned long long most = (1ull << 42) - 1, m = bits < most ? bits : most;
  parts[0] = static_cast<unsigned>(m) & 0x3fffu;
  parts[1] = static_cast<unsigned>(m >> 14) & 0x3fffu;
  parts[2] = static_cast<unsigned>(m >> 28);
}

/// The largest element such that it and all larger ones weigh `wanted` or more; the smallest of all
/// if they do not. weigh(x, parts) gives an element's weight, the parts being 14 bits apart.
template <int kUsed, typename T, typename Weigh>
QT_DEVICE float select_threshold(const Row<T>& row, unsigned long long wanted, const Weigh& weigh) {
  auto histogram = simt::shared<unsigned>(0, kDigits * kParts);
  auto found = simt::shared<unsigned long long>(kResultAt, 2);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kDigits * kParts; i += kThreads)
      histogram[i] = 0;
    __syncthreads();
    row.for_each([&](int, float x, bool is_in) {
      const unsigned key = key_of(x);
      const bool agrees = is_in && (shift == 24 || (key ^ prefix) >> (shift + 8) == 0);
      const int digit = static_cast<int>(key >> shift & 255u);
      unsigned parts[kParts] = {};
      if (agrees) weigh(x, parts);
      bool is_left = agrees;
      // Neighbouring logits share their leading digits: the commonest are added within the warp
      // first.
#pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const unsigned left = __ballot_sync(kWholeWarp, is_left);
        const int leader = left == 0 ? 0 : __ffs(static_cast<int>(left)) - 1;
        const int common = __shfl_sync(kWholeWarp, digit, leader);
        const bool is_peer = is_left && digit == common;
#pragma unroll
        for (int p = 0; p < kUsed; ++p) {
          const unsigned sum = __reduce_add_sync(kWholeWarp, is_peer ? parts[p] : 0u);
          if (left != 0 && lane == leader) atomicAdd(&histogram[digit * kParts + p], sum);
        }
        is_left = is_left && !is_peer;
      }
      if (is_left) {
#pragma unroll
        for (int p = 0; p < kUsed; ++p) atomicAdd(&histogram[digit * kParts + p], parts[p]);
      }
    });
    __syncthreads();
    if (threadIdx.x < 32) {
      // Lane l adds digits 255 - 8 l downwards to the 7th below; then the sums before it.
      unsigned long long own = 0;
      const auto weight = [&](int digit) {
        return histogram[digit * kParts] +
               (static_cast<unsigned long long>(histogram[digit * kParts + 1]) << 14) +
               (static_cast<unsigned long long>(histogram[digit * kParts + 2]) << 28);
      };
      const int top = 255 - 8 * lane;
      for (int j = 0; j < 8; ++j) own += weight(top - j);
      unsigned long long before = 0, all = own;
      for (int distance = 1; distance < 32; distance *= 2) {
        const auto other = __shfl_up_sync(kWholeWarp, all, distance);
        if (lane >= distance) all += other;
      }
      before = all - own;
      const bool crosses = before < wanted && all >= wanted;
      const unsigned who = __ballot_sync(kWholeWarp, crosses);
      if (crosses) {
        int digit = top;
        while (before + weight(digit) < wanted) before += weight(digit--);
        found[0] = static_cast<unsigned long long>(digit), found[1] = wanted - before;
      } else if (who == 0 && lane == 31) {
        found[0] = kDigits, found[1] = 0;  // all together weigh less
      }
    }
    __syncthreads();
    const auto digit = static_cast<unsigned>(found[0]);
    if (digit == kDigits) return -INFINITY;
    wanted = found[1];
    prefix |= digit << shift;
  }
  return float_of(prefix);
}

/// Element i of jax.random.gumbel.
QT_DEVICE float gumbel(Key key, uint64_t i) {
  const float u =
      (__uint_as_float(threefry_bits(key, i) >> 9 | 0x3f800000u) - 1.0f) + 1.17549435e-38f;
  return -logf(-logf(u));
}

template <typename T, typename Keep>
QT_DEVICE Best draw(const Row<T>& row, Key key, uint64_t first, const Keep& keep) {
  Best mine{-INFINITY, 0x7fffffff};
  row.for_each([&](int i, float x, bool is_in) {
    if (is_in && keep(x))
      mine = better(mine, {x + gumbel(key, first + static_cast<uint64_t>(i)), i});
  });
  return block_best(mine);
}

/// A token drawn of what topk and then topp leave of a row, and what it was drawn from.
struct Drawn {
  int token;
  Summary left;
};

/// whole: of the row. topk, topp: 0 is off.
template <typename T>
QT_DEVICE Drawn draw_of_truncated(const Row<T>& row, Summary whole, int64_t topk, float topp,
                                  Key key, uint64_t first) {
  Summary left = whole;
  float least = -INFINITY, share = 0;
  const auto probability = [&](float x) { return expf(x - left.best.score - left.log_sum); };
  const auto is_kept = [&](float x) {
    return x == x && x >= least && (share == 0.0f || probability(x) >= share);
  };
  if (topk > 0) {
    least = select_threshold<1>(
        row, static_cast<unsigned long long>(topk < row.vocab ? topk : row.vocab),
        [](float, unsigned(&parts)[kParts]) { parts[0] = 1; });
    if (topp > 0) left = summarize(row, is_kept);
  }
  if (topp > 0) {
    const auto wanted = static_cast<unsigned long long>(ceilf(topp * 4398046511104.0f));
    share =
        probability(select_threshold<kParts>(row, wanted, [&](float x, unsigned(&parts)[kParts]) {
          if (x >= least) split_mass(probability(x), parts);
        }));
  }
  const int token = draw(row, key, first, is_kept).index;
  return {token, topk > 0 || topp > 0 ? summarize(row, is_kept) : whole};
}

/// Tokens of a row of NaN alone are no index.
QT_DEVICE int token_of(int index, int64_t vocab) { return index < vocab ? index : 0; }

template <typename T>
__global__ void __launch_bounds__(kThreads, 2) sample_kernel(const __grid_constant__ SampleRows s) {
  const int64_t row_id = s.row_ids == nullptr ? blockIdx.x : s.row_ids[blockIdx.x];
  const float temperature =
      s.temperatures == nullptr
          ? 0.0f
          : s.temperatures[s.has_one_temperature ? 0 : row_id / s.num_decodes];
  const bool is_greedy = !(temperature > kMinTemperature);
  const Row<T> as_given{static_cast<const T*>(s.logits) + blockIdx.x * s.stride,
                        static_cast<int>(s.vocab), 1.0f};
  const Row<T> row{as_given.logits, as_given.vocab, is_greedy ? 1.0f : temperature};
  const auto all = [](float x) { return x == x; };
  const Summary whole = summarize(row, all);
  int token = whole.best.index;
  float log_prob = s.rescale_log_probs ? 0.0f : -whole.log_sum;
  if (!is_greedy) {
    const Drawn drawn =
        draw_of_truncated(row, whole, s.topk, s.topp, *s.key,
                          static_cast<uint64_t>(row_id) * static_cast<uint64_t>(s.vocab));
    token = token_of(drawn.token, s.vocab);
    const Summary scored = s.rescale_log_probs ? drawn.left : summarize(as_given, all);
    const float x = s.rescale_log_probs ? row.at(token) : as_given.at(token);
    log_prob = (x - scored.best.score) - scored.log_sum;
  }
  if (threadIdx.x == 0) {
    s.tokens[blockIdx.x] = token_of(token, s.vocab);
    s.log_probs[blockIdx.x] = log_prob;
  }
}

/// A block a draw.
__global__ void __launch_bounds__(kThreads, 2) draw_kernel(const __grid_constant__ DrawRows d) {
  simt::start_next();
  simt::wait_for_previous();
  const RowDraw request = d.draws[blockIdx.x];
  if (request.row < 0) return;
  const Row<float> row{d.logits + request.row * d.vocab, static_cast<int>(d.vocab),
                       request.temperature};
  DrawnToken drawn{.token = request.token};
  if (request.token < 0) {
    const Drawn of = draw_of_truncated(row, summarize(row, [](float x) { return x == x; }),
                                       request.topk, request.topp, request.key, 0);
    drawn.token = token_of(of.token, d.vocab);
    drawn.log_prob = (row.at(drawn.token) - of.left.best.score) - of.left.log_sum;
  }
  drawn.logit = row.logits[drawn.token];
  if (threadIdx.x == 0) d.drawn[blockIdx.x] = drawn;
}

static_assert(kMostDrawnFrom <= 1 << 18, "split_mass");

}  // namespace

void sample_gpu(const SampleRows& s, Stream stream) {
  QT_ASSERT(s.rows > 0 && s.vocab > 0 && s.stride >= s.vocab && s.num_decodes > 0);
  QT_ASSERT(s.dtype == DType::f32 || s.dtype == DType::bf16);
  QT_ASSERT(s.topk == 0 || s.topp == 0);
  QT_CHECK(s.vocab <= kMostDrawnFrom, "sampling on a GPU: {} tokens; at most {} are supported",
           s.vocab, kMostDrawnFrom);
  const simt::Launch how{.grid = static_cast<unsigned>(s.rows),
                         .block = kThreads,
                         .shared = kShared,
                         .stream = stream};
  if (s.dtype == DType::f32)
    simt::launch(sample_kernel<float>, how, s);
  else
    simt::launch(sample_kernel<bf16>, how, s);
}

void draw_gpu(const DrawRows& d, Stream stream) {
  QT_ASSERT(d.count > 0 && d.vocab > 0 && d.vocab <= kMostDrawnFrom);
  simt::launch(draw_kernel,
               {.grid = static_cast<unsigned>(d.count),
                .block = kThreads,
                .shared = kShared,
                .stream = stream,
                .early = true},
               d);
}

}  // namespace quintet::QT_GPU
