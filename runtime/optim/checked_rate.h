#pragma once
// Learning rates as they are configured: checked when a schedule or an optimizer is made.

#include <string_view>

#include "runtime/base/check.h"

namespace quintet {

/// The rate; throws a usage error that begins with `what` if it is below 0 or not a number.
inline double checked_rate(double rate, std::string_view what) {
  QT_CHECK(rate >= 0, "{}: a learning rate must be 0 or more, found {}", what, rate);
  return rate;
}

}  // namespace quintet
