#include "runtime/mesh/collectives/reduce.h"

#include <algorithm>
#include <array>

#include "runtime/base/check.h"

namespace quintet {
namespace {

// Elements at a time, so that a partial result stays in the cache.
constexpr int64_t kStrip = 1024;

template <typename Accumulator, typename T>
void reduce(const std::vector<const void*>& blocks, T* to, int64_t count, Reduction how) {
  std::array<Accumulator, kStrip> total;
  for (int64_t begin = 0; begin < count; begin += kStrip) {
    const int64_t n = std::min(kStrip, count - begin);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const T* block = static_cast<const T*>(blocks[b]) + begin;
      if (b == 0) {
        for (int64_t i = 0; i < n; ++i) total[i] = static_cast<Accumulator>(block[i]);
      } else if (how == Reduction::sum) {
        for (int64_t i = 0; i < n; ++i)
          total[i] = static_cast<Accumulator>(total[i] + static_cast<Accumulator>(block[i]));
      } else {
        // Not std::max: a NaN on any rank must be one on all.
        for (int64_t i = 0; i < n; ++i) {
          const auto x = static_cast<Accumulator>(block[i]);
          total[i] = x > total[i] || x != x ? x : total[i];
        }
      }
    }
    for (int64_t i = 0; i < n; ++i) to[begin + i] = static_cast<T>(total[i]);
  }
}

}  // namespace

void reduce_blocks(const std::vector<const void*>& blocks, void* to, int64_t count, DType dtype,
                   Reduction how) {
  switch (dtype) {
    case DType::f32:
      return reduce<float>(blocks, static_cast<float*>(to), count, how);
    case DType::bf16:
      return reduce<float>(blocks, static_cast<bfloat16*>(to), count, how);
    case DType::f64:
      return reduce<double>(blocks, static_cast<double*>(to), count, how);
    case DType::i32:
      return reduce<int32_t>(blocks, static_cast<int32_t*>(to), count, how);
    case DType::i64:
      return reduce<int64_t>(blocks, static_cast<int64_t*>(to), count, how);
    case DType::u8:
      return reduce<uint8_t>(blocks, static_cast<uint8_t*>(to), count, how);
    case DType::i8:
      return reduce<int8_t>(blocks, static_cast<int8_t*>(to), count, how);
    case DType::u32:
      return reduce<uint32_t>(blocks, static_cast<uint32_t*>(to), count, how);
    case DType::f16:
    case DType::boolean:
      break;
  }
  throw Bug(fmt::format("collectives do not reduce {}", name_of(dtype)));
}

}  // namespace quintet
