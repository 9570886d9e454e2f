// Tensor copies: swizzles, edges, more axes, stores, reductions.

#include "tests/simt/device_array.cuh"

namespace quintet::QT_GPU {
namespace {

using simt::bf16;
using simt::Swizzle;

constexpr int kRows = 40, kColumns = 96;  // of the array
constexpr int kBoxRows = 24;              // of the tile

struct Tiles {
  int column, row;
};

/// Loads one box and writes what element (r, c) of the tile is, reading it with `reads`' swizzle.
__global__ void load_tile(const __grid_constant__ simt::TensorMap map, float* out, Tiles at,
                          int width, Swizzle reads, int fault) {
  auto bar = simt::shared<uint64_t>(0, 1);
  auto tile = simt::shared<bf16>(1024, static_cast<size_t>(kBoxRows) * width);
  if (threadIdx.x == 0) {
    simt::mbarrier_init(bar, 1);
    simt::fence_barrier_init();
    simt::mbarrier_arrive_expect_tx(bar, static_cast<uint32_t>(kBoxRows * width * 2));
    simt::tma_load_2d(tile, map, bar, at.column, at.row);
  }
  __syncthreads();
  if (fault != 2) simt::mbarrier_wait(bar, 0);
  for (int i = static_cast<int>(threadIdx.x); i < kBoxRows * width;
       i += static_cast<int>(blockDim.x)) {
    out[i] = simt::to_float(tile[simt::swizzled(static_cast<uint32_t>(i) * 2, reads) / 2]);
  }
}

/// Writes x * 2 into a swizzled tile and stores (or adds) it.
__global__ void store_tile(const __grid_constant__ simt::TensorMap map, const float* x, Tiles at,
                           int width, Swizzle swizzle, bool add, int fault) {
  auto tile = simt::shared<bf16>(0, static_cast<size_t>(kBoxRows) * width);
  for (int i = static_cast<int>(threadIdx.x); i < kBoxRows * width;
       i += static_cast<int>(blockDim.x)) {
    tile[simt::swizzled(static_cast<uint32_t>(i) * 2, swizzle) / 2] = simt::from_float<bf16>(x[i]);
  }
  if (fault != 1) simt::fence_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (add)
      simt::tma_reduce_add_2d(map, tile, at.column, at.row);
    else
      simt::tma_store_2d(map, tile, at.column, at.row);
    simt::tma_store_commit();
    if (fault != 2) simt::tma_store_wait_read<0>();
  }
}

/// One 4-d and one 3-d box of float32.
__global__ void load_axes(const __grid_constant__ simt::TensorMap four,
                          const __grid_constant__ simt::TensorMap three, float* out) {
  auto bar = simt::shared<uint64_t>(0, 1);
  auto a = simt::shared<float>(1024, 128);
  auto b = simt::shared<float>(2048, 64);
  if (threadIdx.x == 0) {
    simt::mbarrier_init(bar, 1);
    simt::fence_barrier_init();
    simt::mbarrier_arrive_expect_tx(bar, (128 + 64) * 4);
    simt::tma_load_4d(a, four, bar, 4, 1, 2, 0);
    simt::tma_load_3d(b, three, bar, 0, -1, 5);
  }
  __syncthreads();
  simt::mbarrier_wait(bar, 0);
  for (int i = static_cast<int>(threadIdx.x); i < 192; i += 32)
    out[i] = i < 128 ? a[i] : b[i - 128];
}

const char* name_of(Swizzle s) {
  return s == Swizzle::k128 ? "128" : s == Swizzle::k64 ? "64" : s == Swizzle::k32 ? "32" : "no";
}

/// The box at (column, row) of x [kRows, kColumns], zeros outside.
std::vector<float> box_of(const std::vector<float>& x, Tiles at, int width) {
  std::vector<float> out;
  for (int r = at.row; r < at.row + kBoxRows; ++r) {
    for (int c = at.column; c < at.column + width; ++c) {
      out.push_back(r >= 0 && r < kRows && c >= 0 && c < kColumns ? x[r * kColumns + c] : 0.0f);
    }
  }
  return out;
}

void add_load(simt_test::Cases& out, Swizzle swizzle, Tiles at) {
  const auto x = values(kRows * kColumns, 19);
  const int width = swizzle == Swizzle::kNone ? 24 : static_cast<int>(span_of(swizzle)) / 2;
  const Swizzle other = swizzle == Swizzle::k128 ? Swizzle::k64 : Swizzle::k128;
  out.push_back({std::string("tensor load, ") + name_of(swizzle) + "-byte swizzle, column " +
                     std::to_string(at.column) + ", row " + std::to_string(at.row),
                 90,
                 0,
                 box_of(x, at, width),
                 [=](int fault) {
                   DeviceArray<bf16> in(to_bf16(x));
                   auto y = results(static_cast<size_t>(kBoxRows) * width);
                   const auto map = simt::make_tensor_map<bf16>(
                       in.get(), {kColumns, kRows}, {kColumns * 2}, {width, kBoxRows}, swizzle);
                   simt::launch(load_tile, {.block = 64, .shared = 1024 + 24 * 128}, map, y.get(),
                                at, width, fault == 1 ? other : swizzle, fault);
                   return y.host();
                 },
                 {"other swizzle", "wait removed"}});
}

void add_store(simt_test::Cases& out, Swizzle swizzle, Tiles at, bool add) {
  const int width = swizzle == Swizzle::kNone ? 24 : static_cast<int>(span_of(swizzle)) / 2;
  const auto before = values(kRows * kColumns, 20);
  const auto x = values(static_cast<size_t>(kBoxRows) * width, 21);
  std::vector<float> expected = before;
  for (int r = 0; r < kBoxRows; ++r) {
    for (int c = 0; c < width; ++c) {
      const int row = at.row + r, column = at.column + c;
      if (row < 0 || row >= kRows || column < 0 || column >= kColumns) continue;
      float& e = expected[row * kColumns + column];
      e = add ? e + x[r * width + c] : x[r * width + c];
    }
  }
  out.push_back({std::string(add ? "tensor reduction, " : "tensor store, ") + name_of(swizzle) +
                     "-byte swizzle, column " + std::to_string(at.column),
                 90,
                 add ? 1.0f / 256 : 0,
                 expected,
                 [=](int fault) {
                   DeviceArray<bf16> y(to_bf16(before));
                   DeviceArray<float> in(x);
                   const auto map = simt::make_tensor_map<bf16>(
                       y.get(), {kColumns, kRows}, {kColumns * 2}, {width, kBoxRows}, swizzle);
                   simt::launch(store_tile, {.block = 64, .shared = 24 * 128}, map, in.get(), at,
                                width, swizzle, add, fault);
                   std::vector<float> all;
                   for (const bf16 v : y.host()) all.push_back(simt::to_float(v));
                   return all;
                 },
                 {"proxy fence removed", "block ends before the store has read"}});
}

}  // namespace

void add_tensor_cases(simt_test::Cases& out) {
  for (const Swizzle s : {Swizzle::kNone, Swizzle::k32, Swizzle::k64, Swizzle::k128}) {
    add_load(out, s, {16, 8});
    add_load(out, s, {80, 30});
  }
  add_load(out, Swizzle::k128, {-24, -5});
  add_store(out, Swizzle::kNone, {8, 4}, false);
  add_store(out, Swizzle::k128, {64, 30}, false);
  add_store(out, Swizzle::k64, {8, 4}, true);
  add_store(out, Swizzle::kNone, {16, 30}, true);
  {
    // [3, 5, 6, 16] and [7, 4, 8], row-major.
    const auto x = values(3 * 5 * 6 * 16, 22), z = values(7 * 4 * 8, 23);
    std::vector<float> expected;
    for (int d = 0; d < 2; ++d) {
      for (int c = 2; c < 4; ++c) {
        for (int b = 1; b < 5; ++b) {
          for (int a = 4; a < 12; ++a) expected.push_back(x[((d * 5 + c) * 6 + b) * 16 + a]);
        }
      }
    }
    for (int c = 5; c < 9; ++c) {
      for (int b = -1; b < 1; ++b) {
        for (int a = 0; a < 8; ++a)
          expected.push_back(c < 7 && b >= 0 ? z[(c * 4 + b) * 8 + a] : 0.0f);
      }
    }
    out.push_back(
        {"tensor load of 3 and 4 axes",
         90,
         0,
         expected,
         [=](int) {
           DeviceArray<float> xd(x), zd(z);
           auto y = results(192);
           const auto four = simt::make_tensor_map<float>(
               xd.get(), {16, 6, 5, 3}, {16 * 4, 6 * 16 * 4, 5 * 6 * 16 * 4}, {8, 4, 2, 2});
           const auto three =
               simt::make_tensor_map<float>(zd.get(), {8, 4, 7}, {8 * 4, 4 * 8 * 4}, {8, 2, 4});
           simt::launch(load_axes, {.block = 32, .shared = 2048 + 256}, four, three, y.get());
           return y.host();
         },
         {}});
  }
}

}  // namespace quintet::QT_GPU
