// Blocks take parts of a row, each warp the largest of 256 elements, one after another; then one
// warp joins a block's and at last a row's. An order of (value, lower index) is total, so the
// result does not depend on the parts.

#include "kernels/logits/logits_gpu.h"
#include "kernels/simt/host/scratch.h"
#include "kernels/vectors/vectors.cuh"
#include "runtime/base/check.h"

namespace quintet::QT_GPU {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kHeld = 8, kPart = kThreads * kHeld;
constexpr int kMost = kMostTop;   // elements a row: one a lane
constexpr int kJoinedParts = 16;  // of a row at a time
constexpr int kNone = 0x7fffffff;

/// Larger floats have larger keys, none 0; both zeros have the same.
QT_DEVICE unsigned key_of(float x) {
  const unsigned u = __float_as_uint(x + 0.0f);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
QT_DEVICE float float_of(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/// An element, or {0, kNone}.
struct Entry {
  unsigned key = 0;
  int index = kNone;
};
QT_DEVICE bool ranks_before(Entry a, Entry b) {
  return a.key > b.key || (a.key == b.key && a.index < b.index);
}

/// Takes the `top` best out of the warp's entries: lane i returns the i-th.
template <int kCount>
QT_DEVICE Entry take_best(Entry (&entries)[kCount], int top) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Entry mine;
  for (int t = 0; t < top; ++t) {
    Entry best;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      if (ranks_before(entries[j], best)) best = entries[j];
    const unsigned key = __reduce_max_sync(kWholeWarp, best.key);
    const int index = __reduce_min_sync(kWholeWarp, best.key == key ? best.index : kNone);
    if (lane == t) mine = {key, index};
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      if (entries[j].index == index) entries[j] = {};
  }
  return mine;
}

/// Sum of exp(x - largest), of some elements.
struct Mass {
  float largest, sum;
};
QT_DEVICE Mass warp_mass(Mass m) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const Mass other{__shfl_xor_sync(kWholeWarp, m.largest, distance),
                     __shfl_xor_sync(kWholeWarp, m.sum, distance)};
    const float most = fmaxf(m.largest, other.largest);
    // Equal ones may be -infinity, which cannot be subtracted.
    const float mine = m.largest == most ? 1.0f : expf(m.largest - most);
    const float theirs = other.largest == most ? 1.0f : expf(other.largest - most);
    m = {most, m.sum * mine + other.sum * theirs};
  }
  return m;
}

struct Parts {
  Entry* entries;  // [rows, parts, kMost]
  Mass* masses;    // [rows, parts]
  int parts;
};

/// Grid: (parts, rows).
__global__ void __launch_bounds__(kThreads)
    top_of_part(const __grid_constant__ TopRows rows, const __grid_constant__ Parts to) {
  simt::start_next();
  simt::wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int top = static_cast<int>(rows.top), vocab = static_cast<int>(rows.vocab);
  const float* logits = rows.logits + blockIdx.y * rows.vocab;
  const int first = static_cast<int>(blockIdx.x) * kPart + warp * (kPart / kWarps) + lane;
  float x[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    x[j] = first + 32 * j < vocab ? logits[first + 32 * j] : -INFINITY;
  Entry entries[kHeld];
  float largest = -INFINITY, sum = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (first + 32 * j < vocab && x[j] == x[j]) {
      entries[j] = {key_of(x[j]), first + 32 * j};
      largest = fmaxf(largest, x[j]);
    }
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (first + 32 * j < vocab) sum += x[j] == largest ? 1.0f : expf(x[j] - largest);
  const Mass mass = warp_mass({largest, sum});
  auto best = simt::shared<Entry>(0, kWarps * kMost);
  auto masses = simt::shared<Mass>(sizeof(Entry) * kWarps * kMost, kWarps);
  best[warp * kMost + lane] = take_best(entries, top);
  if (lane == 0) masses[warp] = mass;
  __syncthreads();
  if (warp > 0) return;
  const int64_t part = int64_t{blockIdx.y} * to.parts + blockIdx.x;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) entries[w] = best[w * kMost + lane];
  to.entries[part * kMost + lane] = take_best(entries, top);
  const Mass all = warp_mass(lane < kWarps ? Mass(masses[lane]) : Mass{-INFINITY, 0});
  if (lane == 0) to.masses[part] = all;
}

/// A warp a row.
__global__ void __launch_bounds__(32)
    join_parts(const __grid_constant__ TopRows rows, const __grid_constant__ Parts from) {
  simt::start_next();
  simt::wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x), top = static_cast<int>(rows.top);
  const int64_t row = blockIdx.x, base = row * from.parts;
  Entry mine;
  for (int part = 0; part < from.parts; part += kJoinedParts) {
    Entry entries[kJoinedParts + 1];
#pragma unroll
    for (int j = 0; j < kJoinedParts; ++j)
      if (part + j < from.parts) entries[j] = from.entries[(base + part + j) * kMost + lane];
    entries[kJoinedParts] = mine;
    mine = take_best(entries, top);
  }
  Mass mass{-INFINITY, 0};
  for (int part = 0; part < from.parts; part += 32) {
    const Mass more =
        warp_mass(part + lane < from.parts ? from.masses[base + part + lane] : Mass{-INFINITY, 0});
    const float most = fmaxf(mass.largest, more.largest);
    const float before = mass.largest == most ? 1.0f : expf(mass.largest - most);
    const float after = more.largest == most ? 1.0f : expf(more.largest - most);
    mass = {most, mass.sum * before + more.sum * after};
  }
  if (lane < top) {
    const bool is_there = mine.index != kNone;
    rows.values[row * rows.top + lane] = is_there ? float_of(mine.key) : -INFINITY;
    rows.indices[row * rows.top + lane] = is_there ? mine.index : -1;
  }
  if (lane == 0) rows.log_sums[row] = logf(mass.sum);
}

}  // namespace

void top_gpu(const TopRows& rows, Stream stream) {
  QT_ASSERT(rows.rows > 0 && rows.vocab > 0 && rows.vocab < kNone - kPart);
  QT_ASSERT(rows.top >= 1 && rows.top <= kMost);
  const int64_t parts = (rows.vocab + kPart - 1) / kPart;
  simt::Scratch entries(static_cast<int64_t>(sizeof(Entry)) * rows.rows * parts * kMost);
  simt::Scratch masses(static_cast<int64_t>(sizeof(Mass)) * rows.rows * parts);
  const Parts partial{entries.data<Entry>(), masses.data<Mass>(), static_cast<int>(parts)};
  simt::launch(top_of_part,
               {.grid = dim3(static_cast<unsigned>(parts), static_cast<unsigned>(rows.rows)),
                .block = kThreads,
                .shared = sizeof(Entry) * kWarps * kMost + sizeof(Mass) * kWarps,
                .stream = stream,
                .early = true},
               rows, partial);
  simt::launch(
      join_parts,
      {.grid = static_cast<unsigned>(rows.rows), .block = 32, .stream = stream, .early = true},
      rows, partial);
}

}  // namespace quintet::QT_GPU
