#pragma once
// Variants that compute the same, between which only a measurement on the GPU at hand can choose.
//
//   simt::run_fastest_variant(stream, "mlp 16384 1024 2816", {fused, unfused});

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU::simt {

using Variants = std::initializer_list<std::function<void()>>;

/// The variant whose number QUINTET_VARIANT has, for tests and benches of each; null: it is not set.
inline const std::function<void()>* forced_variant(Variants variants) {
  const char* number = std::getenv("QUINTET_VARIANT");
  if (number == nullptr) return nullptr;
  return variants.begin() +
         std::min<size_t>(std::strtoul(number, nullptr, 10), variants.size() - 1);
}

/// Runs the variant that takes the least time: measured at the first use of `problem`, one line,
/// and cached for later processes as algorithms of products are (gemm.h). A variant may run several
/// times, so it must not change its operands. Where nothing may be measured it is the first: with
/// QUINTET_DETERMINISTIC, while a graph is recorded before the problem's first use, in the
/// emulator.
void run_fastest_variant(Stream stream, const std::string& problem, Variants variants);

}  // namespace quintet::QT_GPU::simt
