#pragma once
// Where an op runs on a mesh: which letter of its rule each mesh axis shards, and what is resharded for that.
// Over a mesh axis that shards rows of batches activations keep their layout and parameters are resharded: the
// axis works on a letter where it shards an activation already, else where it shards a parameter, else where
// it is to shard the result. Over any other axis (`model`) parameters stay, and gradients that would be summed
// into them, and activations are gathered where they are sharded otherwise (Megatron's sequence parallelism).
// Of several such choices the one that moves the fewest bytes is taken, a byte between hosts counting for as many as
// Sharding::links() says; of equal ones the first.
//
//   const Plan plan = plan_op(op, inputs, shapes, attrs, make, sharding);
//   plan.inputs[1]   // the layout in which the kernel needs its second operand

#include "runtime/mesh/sharding.h"
#include "runtime/op/op.h"

namespace quintet {

struct Plan {
  /// Mesh axis -> letter of the rule; "" for one that does nothing here.
  std::vector<std::pair<std::string, std::string>> works_on;
  std::vector<Layout> inputs;   // that the kernel needs
  std::vector<Layout> results;  // that it makes, sums open
  std::vector<Layout>
      targets;  // where the rules put the results; of those saved for a gradient: as made
  std::vector<int64_t> blocks;  // of each result: how many places a `^` axis has; 0: has none
  bool in_phases = false;       // a `~` letter is sharded: the op's phases run in its place
  double cost = 0;              // bytes that a rank sends for all this, each at its links' cost
};

/// `shapes`: of bind(); `make`: which results are wanted. Of `attrs` it sees the sizes that the op's
/// rule names, the key of what plan_cache.h remembers. Throws a usage error naming the op and the
/// array where a size does not divide.
Plan plan_op(const Op& op, const Tensors& inputs, const std::vector<ResultShape>& shapes,
             const Attrs& attrs, const OutputMask& make, const Sharding& sharding);

/// "data on batch, model on f"
std::string to_string(const Plan& plan);

}  // namespace quintet
