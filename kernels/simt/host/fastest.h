#pragma once
// Ways to compute the same, between which only a measurement on the GPU at hand can choose.
//
//   simt::run_fastest(stream, "mlp 16384 1024 2816", {in_one_launch, in_three});

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU::simt {

using Ways = std::initializer_list<std::function<void()>>;

/// The way whose number QUINTET_WAY has, for tests and benches of each; null: it is not set.
inline const std::function<void()>* asked_way(Ways ways) {
  const char* number = std::getenv("QUINTET_WAY");
  if (number == nullptr) return nullptr;
  return ways.begin() + std::min<size_t>(std::strtoul(number, nullptr, 10), ways.size() - 1);
}

/// Runs the way that takes the least time: measured at the first use of `problem`, one line, and
/// kept for later processes as algorithms of products are (gemm.h). A way may run several times, so
/// it must not change its operands. Where nothing may be measured it is the first: with
/// QUINTET_DETERMINISTIC, while a graph is recorded before the problem's first use, in the
/// emulator.
void run_fastest(Stream stream, const std::string& problem, Ways ways);

}  // namespace quintet::QT_GPU::simt
