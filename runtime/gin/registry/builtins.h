#pragma once
// What every registry knows: gin.macro, gin.constant, gin.singleton, %gin.REQUIRED, and the helpers
// of t5x.gin_utils (sum_fn, bool_fn, string_split_fn).

namespace quintet::gin {

class Registry;
void register_builtins(Registry& registry);

inline constexpr const char* kMacroName = "gin.macro";
inline constexpr const char* kSingletonName = "gin.singleton";
inline constexpr const char* kRequiredName = "gin.REQUIRED";

}  // namespace quintet::gin
