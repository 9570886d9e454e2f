#include "checkpoint/finite.h"

#include <cstring>

#include "checkpoint/manifest.h"
#include "runtime/base/check.h"

namespace quintet {
namespace {

/// Exponents of NaN and infinity have all their bits set.
template <typename Bits>
int64_t count_exponents(std::span<const std::byte> bytes, Bits exponent) {
  int64_t count = 0;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

}  // namespace

int64_t count_not_finite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::f32:
      return count_exponents<uint32_t>(bytes, 0x7f80'0000u);
    case DType::bf16:
      return count_exponents<uint16_t>(bytes, 0x7f80u);
    case DType::f16:
      return count_exponents<uint16_t>(bytes, 0x7c00u);
    case DType::f64:
      return count_exponents<uint64_t>(bytes, 0x7ff0'0000'0000'0000u);
    default:
      return 0;
  }
}

NotFinite count_not_finite(const std::vector<TensorSlice>& slices) {
  std::vector<int64_t> counts(slices.size());
  const auto size = static_cast<int64_t>(slices.size());
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < size; ++i) {
    const TensorSlice& slice = slices[static_cast<size_t>(i)];
    int64_t bytes = size_of(slice.dtype);
    for (const int64_t axis : slice.sizes) bytes *= axis;
    counts[static_cast<size_t>(i)] =
        count_not_finite(slice.dtype, {slice.data, static_cast<size_t>(bytes)});
  }
  NotFinite found;
  for (size_t i = 0; i < slices.size(); ++i)
    if (counts[i] > 0) found[slices[i].name] += counts[i];
  return found;
}

std::string describe(const NotFinite& counts) {
  if (counts.empty()) return "";
  const auto& [name, count] = *counts.begin();
  const size_t others = counts.size() - 1;
  return fmt::format(
      "{} ({} value{}){} hold{} values that are not finite", name, count, count == 1 ? "" : "s",
      others == 0 ? "" : fmt::format(" and {} other tensor{}", others, others == 1 ? "" : "s"),
      others == 0 ? "s" : "");
}

}  // namespace quintet
