#pragma once
// The --dtype of a benchmark.

#include <string>

#include "apps/flags/command_line.h"
#include "kernels/device.h"
#include "runtime/base/check.h"

namespace quintet {

inline void add_dtype_flag(CLI::App& app, std::string& dtype) {
  app.add_option("--dtype", dtype, "float32, or bfloat16 on a GPU")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
}

/// Once the device is known. `bench`: the verb's second word. Throws a usage error for bfloat16 on the CPU.
inline void check_dtype_flag(const std::string& bench, const std::string& dtype) {
  QT_CHECK(dtype == "float32" || !Device::current().is_cpu(),
           "quintet bench {}: --dtype={} needs a GPU; on the CPU use float32", bench, dtype);
}

}  // namespace quintet
