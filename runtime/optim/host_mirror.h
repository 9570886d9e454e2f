#pragma once
// --optimizer_offload: an optimizer for parameters on a GPU whose state does not fit beside them. Its state lies in the
// host's memory, and the CPU's threads update. Parameters travel in groups through pinned memory: while one is updated,
// the gradients of the next come down on a stream of copies and what the last one became goes up on another; the
// device's next kernel waits for the copies, the host does not. Masters of which the device computes with a bfloat16
// copy may lie in the host's memory alone: 6 bytes a parameter over the bus then, 4 with bfloat16 gradients; others come
// and go, 12 or 10 bytes.
//
//   OptimizerPtr optimizer = host_mirror(adafactor(), {.masters_on_host = true});
//   optimizer->init(slots);   // with the GPU as current device, as in update()

#include "runtime/optim/optimizer.h"

namespace quintet {

struct HostMirrorOptions {
  DType gradient_dtype = DType::f32;
  bool masters_on_host = false;  // of parameters with a copy
};
/// `optimizer` then sees parameters and gradients in ordinary memory; its state lies there. One whose parameters are not
/// updated apart (Optimizer::updates_apart) has a single group, of all: nothing travels while it updates. After an error
/// in an update some groups are updated and others are not.
OptimizerPtr host_mirror(OptimizerPtr optimizer, const HostMirrorOptions& options);

/// Parameters [begin, end) that travel together.
struct MirrorGroup {
  size_t begin = 0, end = 0;
  int64_t bytes = 0;  // of pinned memory: gradients, and parameters that come and go
  size_t size() const { return end - begin; }
};
/// Those of host_mirror(), in their order: an eighth of all or 64 MiB, what is less, or one array.
std::vector<MirrorGroup> mirror_groups(std::span<const ParamSlot> params,
                                       const HostMirrorOptions& options, bool updates_apart);
/// All that host_mirror() has of it, three groups at most.
int64_t pinned_bytes(std::span<const MirrorGroup> groups);

}  // namespace quintet
