#pragma once
// Logical axis names, spelled once (T5X's words), and a named axis.

#include <cstdint>
#include <string>
#include <vector>

namespace quintet {

namespace axis {
inline constexpr const char* kBatch = "batch";
inline constexpr const char* kLength = "length";
inline constexpr const char* kEmbed = "embed";
inline constexpr const char* kMlp = "mlp";
inline constexpr const char* kHeads = "heads";
inline constexpr const char* kKv = "kv";
inline constexpr const char* kJoinedKv = "joined_kv";
inline constexpr const char* kVocab = "vocab";
inline constexpr const char* kExpert = "expert";
inline constexpr const char* kExpertMlp = "expert_mlp";
inline constexpr const char* kUnmodeled = "unmodeled";  // of the router
inline constexpr const char* kRelposBuckets = "relpos_buckets";
inline constexpr const char* kBlocks = "blocks";  // of a sharded axis, one statistic each
}  // namespace axis

/// One axis of a global (unsharded) array.
struct Axis {
  std::string name;
  int64_t size = 0;
  bool operator==(const Axis&) const = default;
};
using Axes = std::vector<Axis>;

}  // namespace quintet
