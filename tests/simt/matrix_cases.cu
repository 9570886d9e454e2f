// Warp-wide matrix instructions.

#include "tests/simt/device_array.cuh"

namespace quintet::QT_GPU {
namespace {

using simt::bf16;
using simt::half;

/// Loads four 8x8 matrices plain and transposed; lane values go out as floats.
__global__ void load_matrices(const bf16* x, float* out, int fault) {
  auto tile = simt::shared<bf16>(0, 256);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) tile[i] = x[i];
  if (fault != 1) __syncwarp();
  uint32_t r[4], t[4], two[2], two_t[2];
  const auto* row = &tile[lane * 8];
  simt::ldmatrix_x4(r, row);
  simt::ldmatrix_x4_trans(t, row);
  simt::ldmatrix_x2(two, row);
  simt::ldmatrix_x2_trans(two_t, row);
  for (int m = 0; m < 4; ++m) {
    const float2 a = simt::unpack<bf16>(r[m]), b = simt::unpack<bf16>(t[m]);
    out[(m * 32 + lane) * 4 + 0] = a.x;
    out[(m * 32 + lane) * 4 + 1] = a.y;
    out[(m * 32 + lane) * 4 + 2] = b.x;
    out[(m * 32 + lane) * 4 + 3] = b.y;
  }
  out[512 + lane] =
      two[0] == r[0] && two[1] == r[1] && two_t[0] == t[0] && two_t[1] == t[1] ? 1.0f : 0.0f;
}

/// What stmatrix writes, ldmatrix reads: out = x again, by way of registers.
__global__ void store_matrices(const bf16* x, float* out) {
  auto from = simt::shared<bf16>(0, 256);
  auto to = simt::shared<bf16>(512, 256);
  auto to_t = simt::shared<bf16>(1024, 256);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) from[i] = x[i];
  __syncwarp();
  uint32_t r[4];
  simt::ldmatrix_x4(r, &from[lane * 8]);
  simt::stmatrix_x4(&to[lane * 8], r);
  simt::stmatrix_x4_trans(&to_t[lane * 8], r);
  __syncwarp();
  for (int i = lane; i < 256; i += 32) {
    out[i] = simt::to_float(to[i]);
    out[256 + i] = simt::to_float(to_t[i]);
  }
}

/// d [16, 8] = a [16, 16] b [16, 8] + c, by ldmatrix; b is row-major, so it is loaded transposed.
template <typename T>
__global__ void multiply(const float* a, const float* b, const float* c, float* d, int fault) {
  auto as = simt::shared<T>(0, 256);
  auto bs = simt::shared<T>(512, 128);
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += 32) as[i] = simt::from_float<T>(a[i]);
  for (int i = lane; i < 128; i += 32) bs[i] = simt::from_float<T>(b[i]);
  __syncwarp();
  uint32_t ar[4], br[2];
  simt::ldmatrix_x4(ar, &as[lane % 16 * 16 + lane / 16 * 8]);
  simt::ldmatrix_x2_trans(br, &bs[lane % 16 * 8]);
  if (fault == 1) {
    const uint32_t keep = ar[1];
    ar[1] = ar[2];
    ar[2] = keep;
  }
  float dr[4];
  const float cr[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t],
                       c[(g + 8) * 8 + 2 * t + 1]};
  simt::mma_m16n8k16(dr, ar, br, cr, T{});
  for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = dr[i];
}

__global__ void multiply_tf32(const float* a, const float* b, float* d) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const uint32_t ar[4] = {simt::to_tf32(a[g * 8 + t]), simt::to_tf32(a[(g + 8) * 8 + t]),
                          simt::to_tf32(a[g * 8 + t + 4]), simt::to_tf32(a[(g + 8) * 8 + t + 4])};
  const uint32_t br[2] = {simt::to_tf32(b[t * 8 + g]), simt::to_tf32(b[(t + 4) * 8 + g])};
  float dr[4] = {};
  simt::mma_m16n8k8_tf32(dr, ar, br, dr);
  for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = dr[i];
}

/// a [16, 32], b transposed [8, 32], of int8.
__global__ void multiply_s8(const int8_t* a, const int8_t* b, float* d) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const auto word = [](const int8_t* p) { return *reinterpret_cast<const uint32_t*>(p); };
  const uint32_t ar[4] = {word(a + g * 32 + 4 * t), word(a + (g + 8) * 32 + 4 * t),
                          word(a + g * 32 + 4 * t + 16), word(a + (g + 8) * 32 + 4 * t + 16)};
  const uint32_t br[2] = {word(b + g * 32 + 4 * t), word(b + g * 32 + 4 * t + 16)};
  int32_t dr[4] = {1, 1, 1, 1};
  simt::mma_m16n8k32_s8(dr, ar, br, dr);
  for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = static_cast<float>(dr[i]);
}

template <typename T>
void add_multiply(simt_test::Cases& out, const char* name) {
  const auto a = values(256, 11), b = values(128, 12), c = values(128, 13);
  auto expected = product(a, b, 16, 8, 16);
  for (int i = 0; i < 128; ++i) expected[i] += c[i];
  out.push_back({name,
                 80,
                 1e-6f,
                 expected,
                 [=](int fault) {
                   DeviceArray<float> ad(a), bd(b), cd(c);
                   auto d = results(128);
                   simt::launch(multiply<T>, {.block = 32, .shared = 768}, ad.get(), bd.get(),
                                cd.get(), d.get(), fault);
                   return d.host();
                 },
                 {"two fragment registers swapped"}});
}

}  // namespace

void add_matrix_cases(simt_test::Cases& out) {
  const auto x = values(256, 14);
  {
    std::vector<float> expected(512 + 32, 1.0f);
    for (int m = 0; m < 4; ++m) {
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        float* e = &expected[(m * 32 + lane) * 4];
        e[0] = x[m * 64 + g * 8 + 2 * t];
        e[1] = x[m * 64 + g * 8 + 2 * t + 1];
        e[2] = x[m * 64 + 2 * t * 8 + g];
        e[3] = x[m * 64 + (2 * t + 1) * 8 + g];
      }
    }
    out.push_back({"ldmatrix",
                   80,
                   0,
                   expected,
                   [x](int fault) {
                     DeviceArray<bf16> in(to_bf16(x));
                     auto y = results(544);
                     simt::launch(load_matrices, {.block = 32, .shared = 512}, in.get(), y.get(),
                                  fault);
                     return y.host();
                   },
                   {"__syncwarp removed"}});
  }
  {
    std::vector<float> expected = x;
    for (int m = 0; m < 4; ++m) {
      const auto one = transposed({x.begin() + m * 64, x.begin() + (m + 1) * 64}, 8, 8);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    out.push_back({"stmatrix",
                   90,
                   0,
                   expected,
                   [x](int) {
                     DeviceArray<bf16> in(to_bf16(x));
                     auto y = results(512);
                     simt::launch(store_matrices, {.block = 32, .shared = 1536}, in.get(), y.get());
                     return y.host();
                   },
                   {}});
  }
  add_multiply<bf16>(out, "mma.m16n8k16 of bf16");
  add_multiply<half>(out, "mma.m16n8k16 of half");
  {
    const auto a = values(128, 15), b = values(64, 16);
    out.push_back({"mma.m16n8k8 of tf32",
                   80,
                   1e-6f,
                   product(a, b, 16, 8, 8),
                   [=](int) {
                     DeviceArray<float> ad(a), bd(b);
                     auto d = results(128);
                     simt::launch(multiply_tf32, {.block = 32}, ad.get(), bd.get(), d.get());
                     return d.host();
                   },
                   {}});
  }
  {
    std::vector<int8_t> a, b;
    std::vector<float> af, bt;
    for (const float v : values(16 * 32, 17))
      a.push_back(static_cast<int8_t>(v * 127)), af.push_back(a.back());
    for (const float v : values(8 * 32, 18))
      b.push_back(static_cast<int8_t>(v * 127)), bt.push_back(b.back());
    auto expected = product(af, transposed(bt, 8, 32), 16, 8, 32);
    for (float& e : expected) e += 1.0f;
    out.push_back({"mma.m16n8k32 of int8",
                   80,
                   0,
                   expected,
                   [=](int) {
                     DeviceArray<int8_t> ad(a), bd(b);
                     auto d = results(128);
                     simt::launch(multiply_s8, {.block = 32}, ad.get(), bd.get(), d.get());
                     return d.host();
                   },
                   {}});
  }
}

}  // namespace quintet::QT_GPU
