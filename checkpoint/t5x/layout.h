#pragma once
// How T5X's arrays become those of our networks: which name, which layer of a stack, which axes in one.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_reader.h"

namespace quintet::t5x {

/// Whether the parameter's last axis is the one as wide as the model: its kernels lead back to the residual stream.
inline bool width_is_last(std::string_view path) {
  return path.ends_with("/out/kernel") || path.ends_with("/wo/kernel") ||
         path.ends_with("/o_wo_fused/kernel");
}

/// Where an array of ours lies in one of T5X's.
struct Source {
  std::string stored;          // its name
  std::vector<int64_t> shape;  // ours
  int layer_axis = -1;         // of the stored array; -1: it has none
  int64_t layer = 0;           // index on that axis
  int joined = -1;    // our axis that is two of the stored ones (without the layers'); -1: none
  int64_t inner = 1;  // size of the second of the two
};

/// Ours by name, of all that are stored but for the slots that Adafactor does not use. Empty if every array is
/// as ours already.
std::map<std::string, Source> layout_of(const std::map<std::string, StoredTensor>& stored,
                                        const std::string& where);

}  // namespace quintet::t5x
