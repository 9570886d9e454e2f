// Routing on a GPU: in one launch (route_one_pass.cu) or, where the order of slots depends on
// probabilities (batch priority, experts that choose), by sorting. Then a warp weighs a token: softmax,
// padding, its largest experts. All choices, in the order in which they are placed, are sorted by expert
// and group, keeping that order: a choice's position is its distance from where its expert and group
// begin, and a prefix sum over the choices that are served numbers the packed rows. Sorts and sums are
// the device library's, and so are exact.

#include <algorithm>
#include <bit>

#include "kernels/elementwise/elementwise_gpu.h"
#include "kernels/moe/moe_gpu.h"
#include "kernels/moe/route.cuh"
#include "kernels/moe/router_gpu.h"
#include "kernels/moe/softmax.cuh"
#include "kernels/simt/host/algorithms.h"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/operands_gpu.h"

namespace quintet::QT_GPU {
namespace {

using cpu::Routing;
using moe::over;
using moe::Routes;
using moe::Tally;

constexpr int kWarps = kBlockThreads / 32;
constexpr int kSumTokens = 256;  // of a group, whose probabilities one block adds
constexpr int32_t kTop = 0x7fffffff;

/// What is known of a token, numbered as in Routing.
struct Tokens {
  float* probabilities;  // [tokens, experts]; 0 of padding
  float* log_sums;       // [tokens], squared
  int32_t* padding;      // [tokens]
  int32_t* experts;      // [tokens, choices]; of tokens that choose
  uint8_t* served;       // [tokens, choices]
};
/// Choices t k + j by (expert, group), first those placed first; expert * groups + group is their key,
/// and that of choices without an expert is the number of segments.
struct Sorted {
  const int32_t *keys, *choices;
  int32_t* starts;  // [segments + 1]: the first choice of each segment
  int32_t* flags;   // [items + 1]: whether a choice gets a packed row; the last is 0
  int items, segments;
};

QT_DEVICE int64_t thread_number() { return int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; }

/// A warp a token.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    weigh_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens to, const T* x,
                 const float* logits, const float* zeros) {
  const int64_t t = thread_number() / 32;
  if (t >= r.tokens()) return;
  const int lane = static_cast<int>(threadIdx.x % 32), experts = static_cast<int>(r.experts);
  const int64_t place = r.place(t);
  const bool padding =
      r.ignore_padding && (place < 0 || moe::is_zero(x + place * r.embed, r.embed));
  const float* mine = place < 0 ? zeros : logits + place * experts;
  float* p = to.probabilities + t * experts;
  const moe::Softmax softmax(mine, experts);
  for (int e = lane; e < experts; e += 32) p[e] = padding ? 0.0f : softmax(mine[e]);
  if (lane == 0) {
    to.log_sums[t] = softmax.log_sum() * softmax.log_sum();
    to.padding[t] = padding ? 1 : 0;
  }
  if (r.router == Router::experts_choose) return;
  const bool goes_nowhere = padding && r.router == Router::tokens_choose;
  moe::Choice choice;
  for (int j = 0; j < r.choices; ++j) {
    const int e = choice.next(p, experts, j);
    if (lane == 0) to.experts[t * r.choices + j] = goes_nowhere ? -1 : e;
  }
}

/// Keys that sort numbers in [0, 1] from the largest on.
QT_DEVICE int32_t falling(float p) { return kTop - (__float_as_int(p) & kTop); }

__global__ void __launch_bounds__(kBlockThreads)
    priority_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens from,
                    int32_t* keys, int32_t* tokens) {
  const int64_t t = thread_number();
  if (t >= r.tokens()) return;
  const int best = from.experts[t * r.choices];
  keys[t] = falling(best < 0 ? 0.0f : from.probabilities[t * r.experts + best]);
  tokens[t] = static_cast<int32_t>(t);
}
__global__ void __launch_bounds__(kBlockThreads)
    group_kernel(const __grid_constant__ Routing r, const int32_t* tokens, int32_t* keys) {
  const int64_t i = thread_number();
  if (i < r.tokens()) keys[i] = static_cast<int32_t>(tokens[i] / r.group_size);
}
/// Choices of tokens in `order` (null: their own): first choices of all, then second ones.
__global__ void __launch_bounds__(kBlockThreads)
    choices_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens from,
                   const int32_t* order, int32_t* keys, int32_t* choices) {
  const int64_t i = thread_number(), n = r.tokens();
  if (i >= n * r.choices) return;
  const int64_t t = order == nullptr ? i % n : order[i % n], c = t * r.choices + i / n;
  const int64_t e = from.experts[c], groups = r.local_groups();
  keys[i] = static_cast<int32_t>(e < 0 ? r.experts * groups : e * groups + t / r.group_size);
  choices[i] = static_cast<int32_t>(c);
}
/// Where experts choose: all choices by probability.
__global__ void __launch_bounds__(kBlockThreads)
    candidates_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens from,
                      int32_t* keys, int32_t* choices) {
  const int64_t c = thread_number();
  if (c >= r.tokens() * r.experts) return;
  keys[c] = falling(from.probabilities[c]);
  choices[c] = static_cast<int32_t>(c);
}
__global__ void __launch_bounds__(kBlockThreads)
    candidate_keys_kernel(const __grid_constant__ Routing r, const int32_t* choices,
                          int32_t* keys) {
  const int64_t i = thread_number();
  if (i >= r.tokens() * r.experts) return;
  const int64_t t = choices[i] / r.experts, e = choices[i] % r.experts;
  keys[i] = static_cast<int32_t>(e * r.local_groups() + t / r.group_size);
}

__global__ void __launch_bounds__(kBlockThreads)
    starts_kernel(const __grid_constant__ Sorted sorted) {
  const int64_t segment = thread_number();
  if (segment > sorted.segments) return;
  int low = 0, high = sorted.items;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sorted.keys[middle] < segment)
      low = middle + 1;
    else
      high = middle;
  }
  sorted.starts[segment] = low;
}

/// Positions; who is served.
__global__ void __launch_bounds__(kBlockThreads)
    serve_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens tokens,
                 const __grid_constant__ Sorted sorted, const __grid_constant__ Routes to) {
  const int64_t i = thread_number();
  if (i == sorted.items) sorted.flags[i] = 0;
  if (i >= sorted.items) return;
  const int key = sorted.keys[i], choice = sorted.choices[i];
  const int64_t t = choice / r.choices, place = r.place(t);
  const bool has_expert = key < sorted.segments;
  int position = has_expert ? static_cast<int>(i) - sorted.starts[key] : -1;
  const bool is_served = has_expert && position < r.capacity;
  if (r.router == Router::experts_choose && !is_served) position = -1;
  tokens.served[choice] = is_served ? 1 : 0;
  sorted.flags[i] = is_served && place >= 0 && tokens.padding[t] == 0 ? 1 : 0;
  if (place < 0) return;
  const int64_t at = place * r.choices + choice % r.choices;
  to.experts[at] = has_expert ? static_cast<int32_t>(key / r.local_groups()) : -1;
  to.positions[at] = position;
  to.rows[at] = -1;
  to.gates[at] = 0;
}

/// `numbers`: prefix sums of the flags.
__global__ void __launch_bounds__(kBlockThreads)
    pack_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens tokens,
                const __grid_constant__ Sorted sorted, const int32_t* numbers,
                const __grid_constant__ Routes to) {
  const int64_t i = thread_number();
  if (i < to.capacity && i >= numbers[sorted.items]) to.choices[i] = -1;
  if (i >= sorted.items || sorted.flags[i] == 0) return;
  const int64_t choice = sorted.choices[i], t = choice / r.choices;
  const int64_t at = r.place(t) * r.choices + choice % r.choices;
  const int e = to.experts[at];
  to.rows[at] = numbers[i];
  to.gates[at] = tokens.probabilities[t * r.experts + e];
  if (numbers[i] < to.capacity) to.choices[numbers[i]] = static_cast<int32_t>(at);
}
__global__ void __launch_bounds__(kBlockThreads)
    offsets_kernel(const __grid_constant__ Routing r, const __grid_constant__ Sorted sorted,
                   const int32_t* numbers, int32_t* offsets) {
  const int64_t i = thread_number(), e = i % (r.experts + 1);
  if (i < r.rows * (r.experts + 1)) offsets[i] = numbers[sorted.starts[e * r.local_groups()]];
}

/// A warp a token.
__global__ void __launch_bounds__(kBlockThreads)
    tally_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens tokens,
                 Tally* tallies) {
  const int64_t t = thread_number() / 32;
  float gates = 0;
  bool served = false;
  for (int64_t j = threadIdx.x % 32; t < r.tokens() && j < r.choices; j += 32) {
    const int64_t c = t * r.choices + j;
    if (tokens.served[c] == 0) continue;
    served = true;
    gates += tokens.probabilities[t * r.experts +
                                  (r.router == Router::experts_choose ? j : tokens.experts[c])];
  }
  served = __any_sync(kWholeWarp, served) != 0;
  const bool speaks = threadIdx.x % 32 == 0 && t < r.tokens();
  auto floats = simt::shared<float>(0, 32);
  auto ints = simt::shared<int32_t>(128, 32);
  Tally sum;
  sum.gates = block_sum(gates, floats);
  sum.log_sums = block_sum(speaks ? tokens.log_sums[t] : 0.0f, floats);
  sum.served_tokens = block_sum(speaks && served ? 1 : 0, ints);
  sum.counted = block_sum(speaks && tokens.padding[t] == 0 ? 1 : 0, ints);
  if (threadIdx.x == 0) tallies[blockIdx.x] = sum;
}

/// sums[group, part, expert] = probabilities of a part of a group's tokens, times how many of the whole
/// group chose the expert. Grid: (experts / 32, parts, groups), blocks of 32 x 8.
__global__ void __launch_bounds__(kBlockThreads)
    balance_kernel(const __grid_constant__ Routing r, const __grid_constant__ Tokens tokens,
                   const __grid_constant__ Sorted sorted, float* sums) {
  const int lane = static_cast<int>(threadIdx.x % 32), row = static_cast<int>(threadIdx.x / 32);
  const int64_t e = int64_t{blockIdx.x} * 32 + lane, group = blockIdx.z;
  const int64_t first = int64_t{blockIdx.y} * kSumTokens;
  const int64_t end = min(first + kSumTokens, r.group_size);
  auto rows = simt::shared<float>(0, kBlockThreads);
  float sum = 0;
  for (int64_t t = first + row; e < r.experts && t < end; t += kWarps)
    sum += tokens.probabilities[(group * r.group_size + t) * r.experts + e];
  rows[threadIdx.x] = sum;
  __syncthreads();
  if (row > 0 || e >= r.experts) return;
  for (int i = 1; i < kWarps; ++i) sum += rows[32 * i + lane];
  const int64_t segment = e * r.local_groups() + group;
  const int chosen = sorted.starts[segment + 1] - sorted.starts[segment];
  sums[(group * gridDim.y + blockIdx.y) * r.experts + e] = sum * static_cast<float>(chosen);
}

/// What one block adds up.
struct Parts {
  const Tally* tallies;
  int64_t tally_count;
  const float* balance;
  int64_t balance_count;
};
__global__ void __launch_bounds__(kBlockThreads)
    totals_kernel(const __grid_constant__ Routing r, const __grid_constant__ Sorted sorted,
                  const __grid_constant__ Parts from, const __grid_constant__ Routes to) {
  const int64_t groups = r.local_groups();
  Tally tally{};
  for (int64_t i = threadIdx.x; i < from.tally_count; i += kBlockThreads) tally += from.tallies[i];
  float balance = 0;
  for (int64_t i = threadIdx.x; i < from.balance_count; i += kBlockThreads)
    balance += from.balance[i];
  int32_t served = 0;
  for (int64_t e = threadIdx.x; e < r.experts; e += kBlockThreads) {
    int32_t load = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int32_t* start = sorted.starts + e * groups + g;
      load += min(start[1] - start[0], static_cast<int32_t>(r.capacity));
    }
    to.load[e] = static_cast<float>(load);
    served += load;
  }
  moe::write_totals(r, tally, balance, served, to, simt::shared<float>(0, 32),
                    simt::shared<int32_t>(128, 32));
}

/// Bits that hold [0, n].
int bits_of(int64_t n) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(n))));
}

/// Two arrays of numbers and their sorted copies, in turns.
class Sorter {
 public:
  Sorter(int64_t n, Stream stream)
      : n_(n),
        stream_(stream),
        keys_{Ints(4 * n, stream), Ints(4 * n, stream)},
        values_{Ints(4 * n, stream), Ints(4 * n, stream)} {}
  int32_t* keys() const { return keys_[at_].data<int32_t>(); }
  int32_t* values() const { return values_[at_].data<int32_t>(); }
  /// keys() and values() are sorted from now on.
  void sort(int bits) {
    simt::sort_pairs({.keys = keys(),
                      .values = values(),
                      .sorted_keys = keys_[at_ ^ 1].data<int32_t>(),
                      .sorted_values = values_[at_ ^ 1].data<int32_t>(),
                      .n = n_,
                      .bits = bits},
                     stream_);
    at_ ^= 1;
  }

 private:
  using Ints = simt::Scratch;
  int64_t n_;
  Stream stream_;
  Ints keys_[2], values_[2];
  size_t at_ = 0;
};

/// Sorts all choices into `all`.
void sort_choices(const Routing& r, const Tokens& tokens, Sorter& all, Stream stream) {
  const int64_t items = r.tokens() * r.choices, segments = r.experts * r.local_groups();
  if (r.router == Router::experts_choose) {
    simt::launch(candidates_kernel, over(items, stream), r, tokens, all.keys(), all.values());
    all.sort(31);
    simt::launch(candidate_keys_kernel, over(items, stream), r, all.values(), all.keys());
  } else {
    Sorter order(r.batch_priority ? r.tokens() : 0, stream);
    if (r.batch_priority) {
      simt::launch(priority_kernel, over(r.tokens(), stream), r, tokens, order.keys(),
                   order.values());
      order.sort(31);
      simt::launch(group_kernel, over(r.tokens(), stream), r, order.values(), order.keys());
      order.sort(bits_of(r.local_groups()));
    }
    simt::launch(choices_kernel, over(items, stream), r, tokens,
                 r.batch_priority ? order.values() : nullptr, all.keys(), all.values());
  }
  all.sort(bits_of(segments));
}

void route_by_sorting(const Routing& r, const View& x, const float* logits, Views out,
                      Stream stream) {
  const int64_t n = r.tokens(), items = n * r.choices, segments = r.experts * r.local_groups();
  const simt::Scratch probabilities(4 * n * r.experts, stream), log_sums(4 * n, stream),
      padding(4 * n, stream), chosen(4 * items, stream), served(items, stream),
      zeros(4 * r.experts, stream), starts(4 * (segments + 1), stream),
      flags(4 * (items + 1), stream), numbers(4 * (items + 1), stream);
  const Tokens tokens{probabilities.data<float>(), log_sums.data<float>(), padding.data<int32_t>(),
                      chosen.data<int32_t>(), served.data<uint8_t>()};
  const Routes to = moe::routes(out);
  fill_gpu(View::of(zeros.data<float>(), std::span(&r.experts, 1)), 0, stream);
  for_dtype(x, r.op, [&]<typename T>(T) {
    simt::launch(weigh_kernel<T>, over(32 * n, stream), r, tokens, elements<T>(x, r.op, "x"),
                 logits, zeros.data<float>());
  });
  Sorter all(items, stream);
  sort_choices(r, tokens, all, stream);
  const Sorted sorted{all.keys(),
                      all.values(),
                      starts.data<int32_t>(),
                      flags.data<int32_t>(),
                      static_cast<int>(items),
                      static_cast<int>(segments)};
  simt::launch(starts_kernel, over(segments + 1, stream), sorted);
  simt::launch(serve_kernel, over(items + 1, stream), r, tokens, sorted, to);
  simt::exclusive_sum(flags.data<int32_t>(), numbers.data<int32_t>(), items + 1, stream);
  simt::launch(pack_kernel, over(std::max(items, to.capacity), stream), r, tokens, sorted,
               numbers.data<int32_t>(), to);
  simt::launch(offsets_kernel, over(r.rows * (r.experts + 1), stream), r, sorted,
               numbers.data<int32_t>(), to.offsets);

  const int64_t tally_blocks = (n + kWarps - 1) / kWarps;
  const simt::Scratch tallies(tally_blocks * static_cast<int64_t>(sizeof(Tally)), stream);
  simt::Launch counting = over(32 * n, stream);
  counting.shared = 256;
  simt::launch(tally_kernel, counting, r, tokens, tallies.data<Tally>());
  const bool balances = r.router != Router::experts_choose;
  const int64_t parts = (r.group_size + kSumTokens - 1) / kSumTokens;
  const int64_t sums = balances ? r.local_groups() * parts * r.experts : 0;
  const simt::Scratch balance(4 * sums, stream);
  if (balances)
    simt::launch(
        balance_kernel,
        {.grid = dim3(static_cast<unsigned>((r.experts + 31) / 32), static_cast<unsigned>(parts),
                      static_cast<unsigned>(r.local_groups())),
         .block = kBlockThreads,
         .shared = 4 * kBlockThreads,
         .stream = stream},
        r, tokens, sorted, balance.data<float>());
  simt::launch(totals_kernel, {.grid = 1, .block = kBlockThreads, .shared = 256, .stream = stream},
               r, sorted, Parts{tallies.data<Tally>(), tally_blocks, balance.data<float>(), sums},
               to);
}

}  // namespace

moe::Routes moe::routes(Views out) {
  return {.gates = out[0].data<float>(),
          .auxiliary = out[2].data<float>(),
          .z_loss = out[3].data<float>(),
          .rows = out[4].data<int32_t>(),
          .choices = out[5].data<int32_t>(),
          .offsets = out[6].data<int32_t>(),
          .experts = out[7].data<int32_t>(),
          .positions = out[8].data<int32_t>(),
          .counts = out[9].data<float>(),
          .load = out[10].data<float>(),
          .capacity = out[5].elements(),
          .count_count = static_cast<int>(std::min<int64_t>(out[9].elements(), 5))};
}

void route_gpu(Views in, Views out, const Attrs& attrs, Stream stream) {
  const View &x = in[0], &w = in[1];
  const Routing r("route", x, w, attrs);
  QT_CHECK(
      r.tokens() * std::max(r.choices, r.experts) < int64_t{1} << 31 && r.local_groups() <= 65535,
      "route: {} tokens with {} choices of {} experts are too many for one device", r.tokens(),
      r.choices, r.experts);
  const simt::Scratch workspace(out[1].absent() ? 4 * r.real_tokens() * r.experts : 0, stream);
  float* logits = out[1].absent() ? workspace.data<float>() : out[1].data<float>();
  const View bias = in.size() > 2 ? in[2] : View::none();
  moe::router_product(x, w, bias, attrs, logits, stream);
  if (r.tokens() > 0)
    return moe::can_route_in_one_pass(r) ? moe::route_in_one_pass(r, x, logits, out, stream)
                                         : route_by_sorting(r, x, logits, out, stream);
  for (const size_t i : {2, 3, 6, 9, 10}) {  // zero bits are the integer 0 too
    View zeros = out[i];
    zeros.dtype = DType::f32;
    if (zeros.elements() > 0) fill_gpu(zeros, 0, stream);
  }
}

}  // namespace quintet::QT_GPU
