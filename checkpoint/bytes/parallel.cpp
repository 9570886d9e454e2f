#include "checkpoint/bytes/parallel.h"

#include <omp.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/thread_pool.h"

namespace quintet {
namespace {

constexpr int64_t kMostThreads = 16;  // each has a block of memory, and memory has no more speed
constexpr size_t kCrcBytes = 4 << 20;

}  // namespace

void for_each_in_parallel(int64_t count, const std::function<void(int64_t)>& work) {
  const auto others =
      static_cast<int>(std::min<int64_t>({count, omp_get_max_threads(), kMostThreads})) - 1;
  std::optional<ThreadPool> pool;
  try {
    if (others > 0) pool.emplace("to read and write a checkpoint", others);
  } catch (const Error&) {  // without more threads it takes longer
  }
  if (pool) return pool->for_each(count, work);
  for (int64_t i = 0; i < count; ++i) work(i);
}

uint32_t crc32c_in_parallel(std::span<const std::byte> bytes) {
  std::vector<uint32_t> crcs((bytes.size() + kCrcBytes - 1) / kCrcBytes);
  const auto block = [&](size_t i) {
    return bytes.subspan(i * kCrcBytes, std::min(kCrcBytes, bytes.size() - i * kCrcBytes));
  };
  for_each_in_parallel(std::ssize(crcs), [&](int64_t i) {
    const auto k = static_cast<size_t>(i);
    crcs[k] = crc32c(block(k));
  });
  uint32_t crc = 0;
  for (size_t i = 0; i < crcs.size(); ++i) crc = crc32c_concat(crc, crcs[i], block(i).size());
  return crc;
}

}  // namespace quintet
