#pragma once
// What a step reads of its batch, where the step is recorded once and repeated with other batches
// (runtime/trainer/step_graph.h).
//
//   StepFeeds feeds;
//   { StepFeeds::Recording recording(feeds); feeds.add(tensor, 0, make); }
//   feeds.read(next_batch);  // the next launch copies what make(next_batch) returns into tensor

#include <functional>
#include <vector>

#include "runtime/base/execution_context.h"
#include "runtime/tensor/tensor.h"

namespace quintet {

/// An array made of a batch: a feature, or what follows from some. A function of the batch alone.
using ArrayOf = std::function<HostArray(const HostArrays& batch)>;

class StepFeeds {
 public:
  /// While one lives, tensors are not filled at once.
  using Recording = ContextMember<&ExecutionContext::feeds>;

  /// `to` gets bytes [first, first + to.bytes()) of the array.
  void add(const Tensor& to, int64_t first, ArrayOf make);
  void read(const HostArrays& batch) const;

 private:
  struct Feed {
    ArrayOf make;
    int64_t first, bytes;
    Buffer pinned;
  };
  std::vector<Feed> feeds_;
};

}  // namespace quintet
