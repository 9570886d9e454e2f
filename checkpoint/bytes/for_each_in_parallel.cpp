#include "checkpoint/bytes/for_each_in_parallel.h"

#include <omp.h>

#include <algorithm>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/thread_pool.h"

namespace quintet {

void for_each_in_parallel(int64_t count, const std::function<void(int64_t)>& work) {
  const auto others = static_cast<int>(std::min<int64_t>(count, omp_get_max_threads())) - 1;
  std::optional<ThreadPool> pool;
  try {
    if (others > 0) pool.emplace("to read and write a checkpoint", others);
  } catch (const Error&) {  // without more threads it takes longer
  }
  if (pool) return pool->for_each(count, work);
  for (int64_t i = 0; i < count; ++i) work(i);
}

}  // namespace quintet
