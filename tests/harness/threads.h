#pragma once
// OpenMP's threads for a test. The thread sanitizer does not know how libgomp joins its threads: one.

#include <omp.h>

namespace quintet::testing {

inline void use_threads([[maybe_unused]] int count) {
#ifdef __SANITIZE_THREAD__
  count = 1;
#endif
  omp_set_num_threads(count);
}

}  // namespace quintet::testing
