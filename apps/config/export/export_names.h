#pragma once
// What gin files may name of t5x.export_lib and t5x.precompile, with T5X's defaults. What has no effect or is refused:
// apps/config/ineffective/export_rows.cpp.

#include <functional>

#include "runtime/gin/registry/registry.h"

namespace quintet {

/// The configurables' full names.
inline constexpr const char* kSave = "t5x.export_lib.save";
inline constexpr const char* kPrecompile = "t5x.precompile.precompile";

/// t5x.export_lib.save with `run` as its body, and what its parameters name.
void register_export(gin::Registry& registry, std::function<gin::Value(const gin::Arguments&)> run);
/// t5x.precompile.precompile with `run` as its body.
void register_precompile(gin::Registry& registry,
                         std::function<gin::Value(const gin::Arguments&)> run);

}  // namespace quintet
