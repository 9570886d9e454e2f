#pragma once
// What must be done even where memory is short.

#include <chrono>
#include <new>
#include <thread>

namespace quintet::serve {

/// Does what takes little memory when there is none: what others end soon frees some. Throws
/// bad_alloc after five seconds.
template <class Action>
void insist(const Action& action) {
  for (int tries = 1;; ++tries) {
    try {
      return action();
    } catch (const std::bad_alloc&) {
      if (tries == 500) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace quintet::serve
