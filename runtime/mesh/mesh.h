#pragma once
// A mesh: ranks laid out along named axes. Arrays are sharded along its axes (layout.h); collectives
// run along them.
//
//   Mesh mesh({{"data", 2}, {"model", 2}}, &comm);
//   mesh.coordinate("model");                       // 0 or 1
//   mesh.group({"data"}).all_reduce(...);           // ranks that differ in `data` alone
//
// The last axis varies fastest, and ranks of one host follow each other, so neighbours along
// `model` share a host where they can. A process may hold several meshes. Knows nothing of rules or
// models.

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/mesh/collectives/collectives.h"

namespace quintet {

struct MeshAxis {
  std::string name;
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};

class Mesh {
 public:
  /// This rank alone: every axis has size 1.
  Mesh() = default;
  /// Over the first ranks of `comm`, as many as the axes' sizes multiply to; further ones (data
  /// servers) have no place in it and may not construct it. Throws a usage error if there are too
  /// few ranks. `comm` must outlive the mesh; nullptr: sizes must all be 1.
  Mesh(std::vector<MeshAxis> axes, Comm* comm);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  /// Position of this rank, row-major over the axes.
  int rank() const { return self_; }
  /// Of an axis the mesh has not: 1 and 0.
  int size(const std::string& axis) const;
  int coordinate(const std::string& axis) const { return coordinate(axis, self_); }
  int coordinate(const std::string& axis, int position) const;

  /// The ranks that differ from this one only along `axes`, the first of them outermost: member i
  /// holds block i of a dimension that `axes` shard, in that order. Axes the mesh has not count as 1.
  /// Needs no communication; the reference stays good as long as the mesh.
  const Group& group(const std::vector<std::string>& axes) const;
  /// Those that differ along all other axes alone: they hold the same block of an array which `axes`
  /// shard.
  const Group& replicas(const std::vector<std::string>& axes) const;
  /// Axes along which some ranks are on another host than their neighbours: the same on all ranks.
  std::vector<std::string> axes_between_hosts() const;
  /// All ranks of the mesh, by position.
  const Group& world() const;
  /// Comm rank of a position.
  int comm_rank(int position) const { return ranks_[static_cast<size_t>(position)]; }
  Comm* comm() const { return comm_; }

 private:
  int stride(const std::string& axis) const;

  std::vector<MeshAxis> axes_;
  Comm* comm_ = nullptr;
  std::vector<int> ranks_ = {0};  // comm rank by position
  int self_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<std::string>, Group> groups_;
};

/// "data=2 x model=4"
std::string to_string(const Mesh& mesh);

}  // namespace quintet
