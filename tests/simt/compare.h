#pragma once
// How results of a case are compared.

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/simt/case.h"

namespace quintet::simt_test {

/// The first difference beyond `tolerance` of max(1, |expected|) (0: in bits); empty: there is
/// none.
inline std::string difference(const std::vector<float>& expected, const std::vector<float>& got,
                              float tolerance) {
  if (expected.size() != got.size())
    return fmt::format("{} values, expected {}", got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const float e = expected[i], g = got[i];
    if (std::memcmp(&e, &g, 4) == 0) continue;
    if (std::fabs(g - e) <= tolerance * std::fmax(1.0f, std::fabs(e))) continue;  // false for NaN
    return fmt::format("value {} is {}, expected {}", i, g, e);
  }
  return "";
}
inline std::string difference(const Case& c, const std::vector<float>& got) {
  return difference(c.expected, got, c.tolerance);
}

/// A name as gtest wants it.
inline std::string identifier(const std::string& name) {
  std::string out;
  for (const char ch : name) out += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return out;
}

}  // namespace quintet::simt_test
