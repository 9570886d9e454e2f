#pragma once
// Gradients of leaves are resharded to their leaves' layouts while the next are computed, several at a
// time. Sums over
// ranks of small ones are taken together, in buckets: a collective of few bytes takes as long as its
// messages wait, not as its bytes travel.
//
//   GradientBuckets buckets;        // of one backward pass, or of several that are summed first
//   buckets.add(leaf, grad, 0);   // as they appear
//   buckets.finish();             // leaf.grad() is there

#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/execution/reshard.h"

namespace quintet {

class GradientBuckets {
 public:
  explicit GradientBuckets(int64_t passes = 1) : passes_(passes) {}

  /// `grad` is added to what the leaf has. Every rank of the mesh calls it. Until the last of those that
  /// are `to_come` in this pass, and in the other passes, they are summed where they are, so that one
  /// collective takes their sum.
  void add(const Tensor& leaf, Tensor grad, int64_t to_come);
  /// Waits for those that are under way.
  void finish();

  /// a + b of one layout, into the storage of whichever is not shared.
  static Tensor accumulate(Tensor a, Tensor b);

 private:
  struct Waiting {
    Tensor leaf, grad;  // an open sum
  };
  /// Arrays behind each other in one.
  struct Bucket {
    MeshAxes axes;  // over which the sums are open
    DType dtype;
    std::vector<Waiting> waiting;
    int64_t bytes = 0;
  };
  /// Of a bucket; alone in what is sent it is just the gradient.
  struct Part {
    Tensor leaf;
    Spec spec;
    Block global_slice;
  };
  struct Sent {  // under way
    std::vector<Part> parts;
    AsyncReshard reshard;
    int64_t bytes;
  };

  void place(const Tensor& leaf, Tensor grad);
  bool wait_for_others(const Tensor& leaf, Tensor& grad);
  void send(Bucket& bucket);
  void start(std::vector<Part> parts, Tensor all, const Layout& to);
  void receive_first();
  /// The sum over replicas of a gradient that has been scattered begins.
  void advance_next();
  static void store(const std::vector<Part>& parts, Tensor all);
  static void store(const Tensor& leaf, Tensor grad);

  int64_t passes_;
  std::unordered_map<const void*, int64_t>
      passed_;                       // a leaf's passes that have given all they have
  std::vector<Waiting> unfinished_;  // more of the leaf is to come
  std::vector<Bucket> buckets_;
  std::deque<Sent> sent_;
  int64_t sent_bytes_ = 0;
  size_t advanced_ = 0;  // of sent_, the first ones: those whose second collective has begun
  int64_t not_advanced_bytes_ = 0;
};

}  // namespace quintet
