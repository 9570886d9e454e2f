#pragma once
// --quantize and --kv_cache_dtype, of verbs that generate: in how many bits weights, and the keys and values of
// attention, are kept.

#include <optional>
#include <string>

#include "apps/flags/command_line.h"
#include "kernels/decode_attention/cache_type.h"
#include "kernels/device.h"
#include "kernels/prepacked_matmul/prepacked_matmul.h"
#include "runtime/base/check.h"

namespace quintet {

struct QuantizeFlag {
  std::string name;  // empty: as the model is

  void add_to(CLI::App& app) {
    app.add_option("--quantize", name,
                   "weights as f32, bf16, int8 or fp8 (one scale per column); int8_dynamic, on the "
                   "CPU, also "
                   "quantizes activations to 8 bits; default: as the model has them")
        ->check(CLI::IsMember({"f32", "bf16", "int8", "int8_dynamic", "fp8"}));
  }
  /// Once the device is open; throws a usage error for what a GPU does not compute.
  std::optional<WeightType> type() const {
    if (name.empty()) return std::nullopt;
    QT_CHECK(name != "int8_dynamic" || Device::current().is_cpu(),
             "--quantize={}: a GPU multiplies weights in 8 bits with wider numbers; use "
             "--quantize=int8, or --device=cpu",
             name);
    return weight_type_from_name(name);
  }
};

struct CacheFlag {
  std::string name = "auto";

  void add_to(CLI::App& app) {
    app.add_option("--kv_cache_dtype", name,
                   "the key-value cache in int8 or fp8, with a scale per head and token; auto: as "
                   "they are computed")
        ->check(CLI::IsMember({"auto", "int8", "fp8"}));
  }
  bool is_given() const { return name != "auto"; }
  CacheType type() const {
    return name == "int8" ? CacheType::int8 : name == "fp8" ? CacheType::fp8 : CacheType::native;
  }
};

}  // namespace quintet
