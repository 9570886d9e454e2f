#pragma once
// How an array lies on a mesh of devices: part of every tensor's type.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/axis.h"
#include "runtime/base/dtype.h"

namespace quintet {

/// What an array would be on one device.
struct Spec {
  Axes axes;
  DType dtype = DType::f32;
  int64_t elements() const {
    int64_t n = 1;
    for (const Axis& a : axes) n *= a.size;
    return n;
  }
  bool operator==(const Spec&) const = default;
};

using MeshAxes = std::vector<std::string>;  // of one dimension, outermost first; empty: unsharded

/// `dims[i]`: the mesh axes that shard dimension i, outermost first (empty: none). `partial`: mesh
/// axes over which the array is still a sum to be taken.
struct Layout {
  std::vector<MeshAxes> dims;
  MeshAxes partial;
  bool operator==(const Layout&) const = default;
  /// On every rank all of the array, no sum open.
  static Layout replicated(size_t rank) { return {std::vector<MeshAxes>(rank), {}}; }
  bool sharded() const {
    for (const MeshAxes& axes : dims)
      if (!axes.empty()) return true;
    return false;
  }
};

/// A range of an array: what is on a rank, or, before it is sharded over the mesh, the rows of a
/// microbatch.
struct Block {
  std::vector<int64_t> origin, sizes;
  bool operator==(const Block&) const = default;
};

/// All of an array.
inline Block full_slice(const Spec& spec) {
  Block block;
  for (const Axis& axis : spec.axes) {
    block.origin.push_back(0);
    block.sizes.push_back(axis.size);
  }
  return block;
}

/// "[batch=8, embed=512] float32"
std::string to_string(const Spec& spec);
/// "[batch=8/data, embed=512] float32, sum over model"
std::string to_string(const Spec& spec, const Layout& layout);

}  // namespace quintet
