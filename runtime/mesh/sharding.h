#pragma once
// The partitioning of a run: a mesh, this rank's place on it, and the rules that cut arrays by their
// logical axes. Current for a thread; without one, arrays are whole and nothing is communicated.
//
//   const Sharding sharding(mesh, standard_logical_axis_rules({}));
//   const Sharding::Use use(sharding);
//   sharding.place(spec)   // {{"data"}, {}, {"model"}} of [batch, length, mlp]

#include "runtime/mesh/rules.h"

namespace quintet {

class Mesh;

class Sharding {
 public:
  /// `mesh`: its axes with their sizes, outermost first; those of size 1 never appear in a layout.
  /// `ranks`: who communicates; nullptr on one rank and where steps are only planned. Throws a usage
  /// error naming the rule that has an axis the mesh does not have.
  Sharding(Axes mesh, std::vector<int64_t> coordinates, LogicalAxisRules rules,
           const Mesh* ranks = nullptr);
  /// Of the ranks of a mesh, which must outlive it.
  Sharding(const Mesh& mesh, LogicalAxisRules rules);

  /// The one of this thread; nullptr: one rank.
  static const Sharding* current();
  /// Makes a sharding current for its lifetime; one of a single rank counts as none.
  class Use {
   public:
    explicit Use(const Sharding& sharding);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const Sharding* previous_;
  };

  const Axes& mesh() const { return mesh_; }
  const Mesh* ranks() const { return ranks_; }
  int64_t size() const;
  /// Different for every sharding that this process makes.
  uint64_t id() const { return id_; }
  /// Whether the rules say anything about an axis of this name.
  bool rules_know(const std::string& logical) const;
  /// Where the rules put an array.
  Layout place(const Spec& spec) const;
  /// This rank's part of `frame`. Throws a usage error naming `what`, the axis and the sizes where
  /// one does not divide.
  Block block(std::string_view what, const Spec& spec, const Layout& layout,
              const Block& frame) const;
  /// Which of the blocks that `axes` cut is this rank's.
  int64_t index_in(const MeshAxes& axes) const;

 private:
  Axes mesh_;
  std::vector<int64_t> coordinates_;
  LogicalAxisRules rules_;
  const Mesh* ranks_;
  uint64_t id_;
};

}  // namespace quintet
