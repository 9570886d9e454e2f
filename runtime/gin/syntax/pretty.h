#pragma once
// Values over several lines, as Python's pprint.pformat lays them out: one item a line where the
// whole does not fit, keys of dicts sorted, long strings cut at spaces.

#include <string>

#include "runtime/gin/syntax/value.h"

namespace quintet::gin {

/// `width` in characters; it is exceeded where a piece cannot be cut.
std::string pretty(const Value& value, size_t width);

/// repr() with the keys of dicts in pprint's order: numbers first, then each other type by itself.
std::string sorted_repr(const Value& value);

}  // namespace quintet::gin
