#pragma once
// Golden fixtures: where they are, how to read them, how to compare with them.
//
//   for (const auto& folder : fixture_folders("model", "t5_")) { SCOPED_TRACE(folder); ... }
//   EXPECT_NEAR_ARRAY(got, want, kT1);

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "runtime/base/formats/json.h"

namespace quintet::testing {

/// $QUINTET_FIXTURES, else tests/fixtures of this checkout.
inline std::filesystem::path fixture_root() {
  const char* root = std::getenv("QUINTET_FIXTURES");
  return root != nullptr ? root : QUINTET_SOURCE_DIR "/tests/fixtures";
}

/// Sorted folders under root/area whose name starts with prefix.
inline std::vector<std::filesystem::path> fixture_folders(const std::string& area,
                                                          const std::string& prefix = "") {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::is_directory(fixture_root() / area)) return found;
  for (const auto& entry : std::filesystem::directory_iterator(fixture_root() / area))
    if (entry.is_directory() && entry.path().filename().string().starts_with(prefix))
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// |a - b| <= absolute + relative * max|b| over the whole tensor.
struct Tolerance {
  double absolute, relative;
};
inline constexpr Tolerance kT1{2e-5, 2e-5};  // float32 products in another order (fixtures README)
inline constexpr Tolerance kT2{5e-5, 1e-4};  // gradients

template <typename A, typename B>
::testing::AssertionResult near_array(std::span<A> got, std::span<B> want, Tolerance tolerance) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << "sizes " << got.size() << " and " << want.size();
  double largest = 0;
  for (const B& b : want) largest = std::max(largest, std::abs(static_cast<double>(b)));
  const double limit = tolerance.absolute + tolerance.relative * largest;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
    if (!(std::abs(a - b) <= limit) && !(std::isnan(a) && std::isnan(b)))
      return ::testing::AssertionFailure()
             << "element " << i << ": got " << a << ", want " << b << ", limit " << limit;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace quintet::testing
