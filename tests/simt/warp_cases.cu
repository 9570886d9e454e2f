// Warps: shuffles, votes, matches, reductions; conversions and approximate functions.

#include "tests/simt/device_array.cuh"

namespace quintet::QT_GPU {
namespace {

constexpr int kKinds = 16;

__global__ void warp_functions(const float* x, float* out) {
  const int lane = static_cast<int>(threadIdx.x % 32), i = static_cast<int>(threadIdx.x);
  const float v = x[i];
  const unsigned all = 0xffffffffu;
  int kind = 0;
  const auto put = [&](float y) { out[kind++ * static_cast<int>(blockDim.x) + i] = y; };
  put(__shfl_sync(all, v, 5));
  put(__shfl_sync(all, v, lane * 3 + 1, 8));
  put(__shfl_up_sync(all, v, 3));
  put(__shfl_up_sync(all, v, 1, 16));
  put(__shfl_down_sync(all, v, 7));
  put(__shfl_down_sync(all, v, 2, 4));
  put(__shfl_xor_sync(all, v, 9));
  put(__shfl_xor_sync(all, v, 3, 4));
  const unsigned ballot = __ballot_sync(all, v > 0.0f);
  put(static_cast<float>(ballot & 0xffffu));
  put(static_cast<float>(ballot >> 16));
  put(static_cast<float>(__any_sync(all, lane == 31) + 2 * __all_sync(all, lane < 31)));
  const unsigned same = __match_any_sync(all, lane % 5);
  put(static_cast<float>(same & 0xffffu));
  put(static_cast<float>(__reduce_add_sync(all, lane) +
                         __reduce_max_sync(all, lane * 7 % 32) * 1000));
  // Two halves of the warp on their own.
  float half_sum = v;
  if (lane < 16) {
    for (int o = 8; o > 0; o /= 2) half_sum += __shfl_xor_sync(0x0000ffffu, half_sum, o);
  } else {
    for (int o = 8; o > 0; o /= 2) half_sum += __shfl_xor_sync(0xffff0000u, half_sum, o);
  }
  put(half_sum);
  double wide = v;
  wide = __shfl_xor_sync(all, wide, 1);
  put(static_cast<float>(wide));
  put(static_cast<float>(__popc(ballot) + 100 * __ffs(static_cast<int>(ballot)) +
                         10000 * __clz(lane)));
}

std::vector<float> warp_functions_expected(const std::vector<float>& x) {
  const int n = static_cast<int>(x.size());
  std::vector<float> out(static_cast<size_t>(n) * kKinds);
  for (int i = 0; i < n; ++i) {
    const int w = i / 32 * 32, lane = i % 32;
    const auto at = [&](int l) { return x[w + l]; };
    unsigned ballot = 0, same = 0;
    int max7 = 0;
    for (int l = 0; l < 32; ++l) {
      ballot |= (at(l) > 0.0f ? 1u : 0u) << l;
      same |= (l % 5 == lane % 5 ? 1u : 0u) << l;
      max7 = std::max(max7, l * 7 % 32);
    }
    float half_sums[16];
    for (int l = 0; l < 16; ++l) half_sums[l] = at(lane / 16 * 16 + l);
    for (int o = 8; o > 0; o /= 2) {
      for (int l = 0; l < o; ++l) half_sums[l] += half_sums[l + o];
    }
    int first = 0, clz = 0;
    for (int l = 31; l >= 0; --l) {
      if ((ballot >> l) & 1u) first = l + 1;
    }
    for (int l = 31; l >= 0 && !((static_cast<unsigned>(lane) >> l) & 1u); --l) ++clz;
    int ones = 0;
    for (int l = 0; l < 32; ++l) ones += (ballot >> l) & 1u;
    const float kinds[kKinds] = {
        at(5),
        at(lane / 8 * 8 + (lane * 3 + 1) % 8),
        lane >= 3 ? at(lane - 3) : at(lane),
        lane % 16 >= 1 ? at(lane - 1) : at(lane),
        lane + 7 < 32 ? at(lane + 7) : at(lane),
        lane % 4 + 2 < 4 ? at(lane + 2) : at(lane),
        at(lane ^ 9),
        at(lane ^ 3),
        static_cast<float>(ballot & 0xffffu),
        static_cast<float>(ballot >> 16),
        1,
        static_cast<float>(same & 0xffffu),
        static_cast<float>(31 * 16 + max7 * 1000),
        half_sums[0],
        at(lane ^ 1),
        static_cast<float>(ones + 100 * first + 10000 * clz),
    };
    for (int k = 0; k < kKinds; ++k) out[static_cast<size_t>(k) * n + i] = kinds[k];
  }
  return out;
}

/// Sum of a block's values: shuffles, then one value a warp in shared memory.
__global__ void block_sum(const float* x, float* out, int fault) {
  auto partial = simt::shared<float>(0, 32);
  float v = x[threadIdx.x];
  const unsigned mask = fault == 2 && threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffffffffu;
  for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(mask, v, o);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  if (fault != 1) __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += partial[w];
  out[threadIdx.x] = sum;
}

__global__ void convert(const float* x, float* out, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= n) return;
  const float v = x[i];
  out[i] = simt::to_float(simt::from_float<simt::bf16>(v));
  out[n + i] = simt::to_float(simt::from_float<simt::half>(v));
  out[2 * n + i] = __uint_as_float(simt::to_tf32(v));
  const float2 b = simt::to_float2(simt::to_bf16x2(v, 1.0f));
  const float2 h = simt::to_float2(simt::to_half2(1.0f, v));
  out[3 * n + i] = b.x + (b.y - 1.0f);
  out[4 * n + i] = h.y + (h.x - 1.0f);
}

__global__ void approximate(const float* x, float* out, int n) {
  const int i = static_cast<int>(threadIdx.x);
  const float v = x[i];
  out[i] = simt::exp2_approx(v * 8.0f);
  out[n + i] = simt::rsqrt_approx(v + 2.0f);
  out[2 * n + i] = simt::rcp_approx(v + 2.0f);
  out[3 * n + i] = simt::log2_approx(v + 2.0f);
  out[4 * n + i] = simt::tanh_approx(v) * 1e-3f;  // 2^-11 of it is what the tolerance allows
}

/// a with `bits` bits after the leading one, nearest, ties to even or away from zero.
float rounded(float a, int bits, int lowest_exponent, double largest, bool away) {
  if (std::isinf(a) || a == 0.0f) return a;
  const int exponent = std::max(std::ilogb(a), lowest_exponent);
  const double step = std::ldexp(1.0, exponent - bits), units = std::fabs(double{a}) / step;
  const double r = (away ? std::floor(units + 0.5) : std::nearbyint(units)) * step;
  return static_cast<float>(std::copysign(r > largest ? INFINITY : r, a));
}

}  // namespace

void add_warp_cases(simt_test::Cases& out) {
  const auto x = values(64, 5);
  out.push_back({"shuffles, votes, matches, reductions",
                 80,
                 0,
                 warp_functions_expected(x),
                 [x](int) {
                   DeviceArray<float> in(x);
                   auto y = results(64 * kKinds);
                   simt::launch(warp_functions, {.block = 64}, in.get(), y.get());
                   return y.host();
                 },
                 {}});
  {
    const auto v = values(256, 6);
    double sum = 0;
    for (const float a : v) sum += a;
    out.push_back({"sum of a block",
                   80,
                   0,
                   std::vector<float>(256, static_cast<float>(sum)),
                   [v](int fault) {
                     DeviceArray<float> in(v);
                     auto y = results(256);
                     simt::launch(block_sum, {.block = 256, .shared = 128}, in.get(), y.get(),
                                  fault);
                     return y.host();
                   },
                   {"barrier removed", "masks that disagree"}});
  }
  {
    // Ties, subnormals of half, values too large for a format, infinity.
    const std::vector<float> v = {0.0f,
                                  1.0f,
                                  1.0f + 0x1p-8f,
                                  1.0f + 3 * 0x1p-8f,
                                  -2.71828f,
                                  0x1p-24f,
                                  0x1.8p-25f,
                                  1e6f,
                                  65519.0f,
                                  65520.0f,
                                  3.4e38f,
                                  6.1e-5f,
                                  1.0f + 0x1p-11f,
                                  1.0f + 3 * 0x1p-11f,
                                  -INFINITY,
                                  -0.3333333f,
                                  0x1p-25f,
                                  1234.5678f};
    std::vector<float> expected;
    const auto add = [&](int bits, int lowest, double largest, bool away) {
      for (const float a : v) expected.push_back(rounded(a, bits, lowest, largest, away));
    };
    const double bf16_most = 0x1.fep127, half_most = 65504.0;
    add(7, -126, bf16_most, false);
    add(10, -14, half_most, false);
    add(10, -126, 0x1.ffcp127, true);
    add(7, -126, bf16_most, false);
    add(10, -14, half_most, false);
    out.push_back({"conversions",
                   80,
                   0,
                   expected,
                   [v](int) {
                     const int n = static_cast<int>(v.size());
                     DeviceArray<float> in(v);
                     auto y = results(v.size() * 5);
                     simt::launch(convert, {.block = 32}, in.get(), y.get(), n);
                     return y.host();
                   },
                   {}});
  }
  {
    std::vector<float> expected(64 * 5);
    for (int i = 0; i < 64; ++i) {
      const double v = x[i];
      expected[i] = static_cast<float>(std::exp2(v * 8));
      expected[64 + i] = static_cast<float>(1 / std::sqrt(v + 2));
      expected[128 + i] = static_cast<float>(1 / (v + 2));
      expected[192 + i] = static_cast<float>(std::log2(v + 2));
      expected[256 + i] = static_cast<float>(std::tanh(v) * 1e-3);
    }
    out.push_back({"approximate functions",
                   80,
                   1e-6f,
                   expected,
                   [x](int) {
                     DeviceArray<float> in(x);
                     auto y = results(64 * 5);
                     simt::launch(approximate, {.block = 64}, in.get(), y.get(), 64);
                     return y.host();
                   },
                   {}});
  }
}

}  // namespace quintet::QT_GPU
