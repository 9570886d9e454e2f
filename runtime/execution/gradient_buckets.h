#pragma once
// Gradients of leaves are resharded to their leaves' layouts while the next are computed, several at a
// time. Those of a layer, and small ones of whichever, are taken together, in buckets: a collective of few
// bytes takes as long as its messages wait, not as its bytes travel.
//
//   GradientBuckets buckets;        // of one backward pass, or of several that are summed first
//   buckets.add(leaf, grad, 0);   // as they appear
//   buckets.finish();             // leaf.grad() is there

#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/execution/parameter_layers.h"
#include "runtime/execution/reshard.h"

namespace quintet {

/// Of gradients, float32 or bfloat16: what sums over ranks are sent as, and what leaves have.
struct GradientDTypes {
  DType travels = DType::f32, stored = DType::f32;
};

class GradientBuckets {
 public:
  /// `layers` outlive it. Whatever is summed on a rank is summed in float32; what a leaf has is rounded to
  /// dtypes.stored when something is added to it.
  explicit GradientBuckets(int64_t passes = 1,
                           const ParameterLayers& layers = ParameterLayers::none(),
                           GradientDTypes dtypes = {})
      : passes_(passes), layers_(layers), dtypes_(dtypes) {}

  /// `grad` is added to what the leaf has. Every rank of the mesh calls it. Until the last of those that
  /// are `to_come` in this pass, and in the other passes, they are summed where they are, so that one
  /// collective takes their sum.
  void add(const Tensor& leaf, Tensor grad, int64_t to_come);
  /// What the leaf has been given and no collective takes yet, for an op that adds its gradient to it, in whatever layout;
  /// absent: nothing. Who has not added gives it back.
  Tensor take_sum(const Tensor& leaf);
  void return_sum(const Tensor& leaf, Tensor sum);
  /// A region that was computed again is through: its gradients travel while the next one runs, those of
  /// the one before have arrived. Who computes layers again has little memory.
  void end_region();
  /// Waits for those that are under way.
  void finish();

  /// a + b of one layout, into the storage of whichever is not shared.
  static Tensor accumulate(Tensor a, Tensor b);
  /// factor * x in the layout of x, whose sum over ranks may be open: ranks go on alike, whatever their factors.
  static Tensor scaled(const Tensor& x, double factor);

 private:
  struct Waiting {
    Tensor leaf, grad;  // an open sum
  };
  /// What will travel together.
  struct Bucket {
    Route route;
    std::vector<Waiting> waiting;
    int64_t bytes = 0;
  };
  struct Sent {  // under way
    Tensors leaves;
    AsyncReshard reshard;
    int64_t bytes;
    DType dtype;  // of the gradients, whatever they travel as
  };

  std::vector<Waiting>::iterator unfinished_of(const Tensor& leaf);
  void place(const Tensor& leaf, Tensor grad);
  bool joins(const Bucket& bucket, const Tensor& leaf, const Tensor& grad) const;
  void send(Bucket& bucket);
  void receive_first();
  /// The sum over replicas of a gradient that has been scattered begins.
  void advance_next();
  void store(const Tensor& leaf, Tensor grad) const;

  int64_t passes_;
  const ParameterLayers& layers_;
  GradientDTypes dtypes_;
  std::unordered_map<const void*, int64_t>
      passed_;                       // a leaf's passes that have given all they have
  std::vector<Waiting> unfinished_;  // more of the leaf is to come
  std::vector<Bucket> buckets_;
  std::deque<Sent> sent_;
  int64_t sent_bytes_ = 0;
  size_t sent_in_region_ = 0;
  size_t advanced_ = 0;  // of sent_, the first ones: those whose second collective has begun
  int64_t not_advanced_bytes_ = 0;
  size_t placed_ = 0;
};

}  // namespace quintet
